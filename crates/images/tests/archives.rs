//! Archives of images as people and attackers make them, unpacked into a real store: what is refused, what is left out, and that nothing lands anywhere else.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_images::digest::Digest;
use cofferdam_images::reference::Reference;
use cofferdam_images::store::Prune;
use cofferdam_images::{Bounds, ImageError, Rootfs, Store, Stored, archive};
use cofferdam_store::DataDir;
use serde_json::json;
use tar::{Builder, EntryType, Header};

/// One layer, written as it is told: the library would refuse most of it.
struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn entry(mut self, kind: EntryType, name: &str, link: &str, mode: u32, data: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(data.len() as u64);
        header.set_mtime(1_000_000);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, data).unwrap();
        self
    }

    fn file(self, name: &str, data: &str) -> Self {
        self.entry(EntryType::Regular, name, "", 0o644, data.as_bytes())
    }

    fn dir(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name, "", 0o755, b"")
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, 0o777, b"")
    }

    fn hard(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, 0o644, b"")
    }

    fn whiteout(self, name: &str) -> Self {
        self.file(name, "")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::of(&DataDir::at(dir.path().join("data")));
        Self { dir, store }
    }

    fn bounds() -> Bounds {
        Bounds::within(Duration::from_secs(60))
    }

    fn import(&self, archive: &[u8]) -> Result<Stored, ImageError> {
        self.import_within(archive, &Self::bounds())
    }

    fn import_within(&self, archive: &[u8], bounds: &Bounds) -> Result<Stored, ImageError> {
        let file = self.dir.path().join("image.tar");
        fs::write(&file, archive).unwrap();
        let mut got = archive::import(&self.store, &file, None, bounds, None)?;
        assert_eq!(got.len(), 1);
        Ok(got.remove(0))
    }

    /// Unpacks one image of these layers and returns its root.
    fn unpack(&self, layers: Vec<Layer>) -> PathBuf {
        let layers: Vec<Vec<u8>> = layers.into_iter().map(Layer::bytes).collect();
        let stored = self.import(&saved(&layers)).unwrap();
        self.root(&stored)
    }

    #[track_caller]
    fn refuse(&self, layers: Vec<Layer>, words: &str) {
        let layers: Vec<Vec<u8>> = layers.into_iter().map(Layer::bytes).collect();
        let error = self.import(&saved(&layers)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        self.assert_empty();
    }

    fn root(&self, stored: &Stored) -> PathBuf {
        self.dir
            .path()
            .join("data/images/roots")
            .join(stored.image.id.hex())
            .join("root")
    }

    /// Nothing was kept, and nothing lies about.
    #[track_caller]
    fn assert_empty(&self) {
        assert_eq!(self.store.list().unwrap(), []);
        let making = self.dir.path().join("data/images/making");
        let left = fs::read_dir(making).into_iter().flatten().flatten();
        let left: Vec<_> = left.filter(|entry| entry.path().is_dir()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn config(layers: &[Vec<u8>]) -> Vec<u8> {
    let ids: Vec<String> = layers
        .iter()
        .map(|layer| Digest::of(layer).to_string())
        .collect();
    json!({"os": "linux", "config": {"Env": ["A=1"], "Cmd": ["/bin/tool"]},
        "rootfs": {"type": "layers", "diff_ids": ids}})
    .to_string()
    .into_bytes()
}

fn pack(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// What `docker save` writes.
fn saved(layers: &[Vec<u8>]) -> Vec<u8> {
    saved_with(layers, &config(layers))
}

fn saved_with(layers: &[Vec<u8>], config: &[u8]) -> Vec<u8> {
    let names: Vec<String> = (0..layers.len())
        .map(|n| format!("{n}/layer.tar"))
        .collect();
    let config_name = format!("{}.json", Digest::of(config).hex());
    let manifest = json!([{"Config": config_name, "RepoTags": ["test:1"], "Layers": names}]);
    let manifest = manifest.to_string();
    let mut files: Vec<(&str, &[u8])> = vec![
        ("manifest.json", manifest.as_bytes()),
        (&config_name, config),
    ];
    for (name, layer) in names.iter().zip(layers) {
        files.push((name, layer));
    }
    pack(&files)
}

/// An OCI layout; `blobs` are the layers as they are in it.
fn layout(layers: &[Vec<u8>], blobs: &[Vec<u8>], spoil: &str) -> Vec<u8> {
    let config = config(layers);
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::of(bytes).hex());
    let describe = |bytes: &[u8]| json!({"digest": Digest::of(bytes), "size": bytes.len()});
    let listed: Vec<_> = blobs.iter().map(|bytes| describe(bytes)).collect();
    let manifest = json!({"schemaVersion": 2, "config": describe(&config), "layers": listed});
    let manifest = manifest.to_string().into_bytes();
    let mut entry = describe(&manifest);
    entry["annotations"] = json!({"io.containerd.image.name": "registry.test/tool:1"});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let mut files: Vec<(String, Vec<u8>)> = vec![
        (
            "oci-layout".into(),
            b"{\"imageLayoutVersion\":\"1.0.0\"}".to_vec(),
        ),
        ("index.json".into(), index.into_bytes()),
        (blob(&manifest), manifest.clone()),
        (blob(&config), config.clone()),
    ];
    files.extend(blobs.iter().map(|bytes| (blob(bytes), bytes.clone())));
    let spoiled = match spoil {
        "manifest" => Some(2),
        "config" => Some(3),
        "layer" => Some(4),
        _ => None,
    };
    if let Some(at) = spoiled {
        // One bit in the middle of something that is still what it looks like.
        let bytes = &mut files[at].1;
        let middle = bytes.iter().rposition(|&b| b == b'1').unwrap();
        bytes[middle] = b'2';
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (&**n, &**b)).collect();
    pack(&files)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn layers_replace_and_whiteouts_remove_what_is_below_and_nothing_of_their_own() {
    let place = Place::new();
    let root = place.unpack(vec![
        Layer::new()
            .dir("etc/")
            .file("etc/a", "old")
            .file("etc/gone", "x")
            .dir("opt/")
            .file("opt/below", "x")
            .dir("opt/deep/")
            .file("opt/deep/below", "x")
            .file("kind", "a file")
            .dir("tree/")
            .file("tree/x", "x")
            .file("tree.txt", "beside"),
        Layer::new()
            .file("etc/a", "new")
            .whiteout("etc/.wh.gone")
            .whiteout("etc/.wh.never-there")
            // The order within a layer means nothing: what it makes stays, whether before or after.
            .file("opt/own", "kept")
            .file("opt/deep/own", "kept")
            .whiteout("opt/.wh..wh..opq")
            .file("opt/later", "kept")
            .dir("kind/")
            .file("kind/inside", "x")
            .whiteout(".wh.tree")
            .whiteout(".wh..wh.plnk"),
        Layer::new().file("etc/b", "x").whiteout("etc/.wh.b"),
    ]);
    assert_eq!(read(root.join("etc/a")), "new");
    assert_eq!(names(&root.join("etc")), ["a", "b"]);
    assert_eq!(names(&root.join("opt")), ["deep", "later", "own"]);
    assert_eq!(names(&root.join("opt/deep")), ["own"]);
    assert_eq!(names(&root.join("kind")), ["inside"]);
    assert_eq!(names(&root), ["etc", "kind", "opt", "tree.txt"]);
}

#[test]
fn nothing_is_written_outside_whatever_names_and_links_say() {
    let place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "safe").unwrap();
    let there = outside.display().to_string();
    let root = place.unpack(vec![
        Layer::new()
            .file("/absolute", "inside")
            .file("./a/./b", "inside")
            .link("way", &there)
            .link("up", "../../../../../../../../tmp")
            .link("loop", "loop")
            .dir("real/")
            .link("alias", "/real")
            // Through a link, as a program inside would see it.
            .file("alias/file", "inside")
            // In the place of a link, and not at its end.
            .link("shadow", &format!("{there}/file"))
            .file("shadow", "replaced"),
        // From a layer above, too.
        Layer::new()
            .link("tmp", "/real")
            .file("up/through", "inside"),
    ]);
    assert_eq!(read(root.join("absolute")), "inside");
    assert_eq!(read(root.join("a/b")), "inside");
    assert_eq!(read(root.join("real/file")), "inside");
    assert_eq!(read(root.join("real/through")), "inside");
    assert_eq!(read(root.join("shadow")), "replaced");
    assert!(fs::symlink_metadata(root.join("way")).unwrap().is_symlink());
    assert_eq!(names(&outside), ["file"]);
    assert_eq!(read(outside.join("file")), "safe");

    let place = Place::new();
    place.refuse(vec![Layer::new().file("../out", "x")], "leads out");
    place.refuse(vec![Layer::new().file("a/../../out", "x")], "leads out");
    place.refuse(
        vec![Layer::new().link("way", &there).file("way/x", "x")],
        "cannot be put where it says",
    );
    place.refuse(
        vec![Layer::new().link("way", "way").file("way/x", "x")],
        "cannot be put where it says",
    );
    place.refuse(
        vec![Layer::new().hard("x", "../outside/file")],
        "second name",
    );
    place.refuse(
        vec![Layer::new().link("way", &there).hard("x", "way/file")],
        "cannot be put",
    );
    place.refuse(vec![Layer::new().hard("x", "nothing")], "cannot be put");
    place.refuse(vec![Layer::new().dir("d/").hard("x", "d")], "cannot be put");
    place.refuse(vec![Layer::new().whiteout(".wh...")], "without a name");
    place.refuse(vec![Layer::new().whiteout("a/.wh.")], "without a name");
    assert_eq!(names(&outside), ["file"]);
    assert_eq!(read(outside.join("file")), "safe");
    assert!(!place.dir.path().join("out").exists());
}

#[test]
fn whiteouts_remove_nothing_outside() {
    let place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "safe").unwrap();
    let there = outside.display().to_string();
    let root = place.unpack(vec![
        Layer::new().link("way", &there).file("keep", "x"),
        Layer::new()
            .whiteout("way/.wh.file")
            .whiteout("way/.wh..wh..opq"),
        Layer::new().whiteout(".wh.way"),
    ]);
    assert_eq!(names(&root), ["keep"]);
    assert_eq!(names(&outside), ["file"]);
}

#[test]
fn hard_links_share_a_file_and_nothing_in_an_image_gives_rights() {
    let place = Place::new();
    let layer = Layer::new()
        .entry(EntryType::Regular, "bin/su", "", 0o4755, b"x")
        .hard("bin/again", "bin/su")
        .hard("bin/su", "bin/su")
        .entry(EntryType::Char, "dev/mem", "", 0o666, b"")
        .entry(EntryType::Block, "dev/sda", "", 0o666, b"")
        .entry(EntryType::Fifo, "pipe", "", 0o666, b"")
        .entry(EntryType::Directory, "closed/", "", 0o000, b"")
        .file("closed/file", "x")
        .entry(EntryType::Regular, "old-directory/", "", 0o755, b"");
    let stored = place.import(&saved(&[layer.bytes()])).unwrap();
    let root = place.root(&stored);
    let (a, b) = (root.join("bin/su"), root.join("bin/again"));
    let (a, b) = (fs::metadata(a).unwrap(), fs::metadata(b).unwrap());
    assert_eq!(a.ino(), b.ino());
    assert_eq!(a.permissions().mode() & 0o7777, 0o755);
    assert_eq!(a.mtime(), 1_000_000, "compiled Python is compared with it");
    assert_eq!(names(&root), ["bin", "closed", "old-directory"]);
    assert!(root.join("old-directory").is_dir());
    assert_eq!(stored.image.left_out.special_files, 3);
    assert_eq!(stored.image.left_out.set_id_bits, 1);
    assert_eq!(
        fs::metadata(root.join("closed"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
}

#[test]
fn long_names_are_taken_and_endless_ones_refused() {
    let place = Place::new();
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    builder.append_data(&mut header, &long, &b"x"[..]).unwrap();
    builder
        .append_pax_extensions([
            ("path", "by/extension".as_bytes()),
            ("SCHILY.xattr.security.capability", b"\x01".as_slice()),
        ])
        .unwrap();
    let mut header = Header::new_ustar();
    header.set_size(1);
    header.set_mode(0o644);
    header.set_entry_type(EntryType::Regular);
    header.as_old_mut().name[0] = b'?';
    header.set_cksum();
    builder.append(&header, &b"y"[..]).unwrap();
    let root = place.unpack(vec![Layer(builder)]);
    assert_eq!(read(root.join(&long)), "x");
    assert_eq!(read(root.join("by/extension")), "y");

    let endless = vec![b'a'; 1 << 20];
    let place = Place::new();
    let long = Layer::new().entry(EntryType::GNULongName, "././@LongLink", "", 0, &endless);
    place.refuse(vec![long.file("x", "x")], "too long");
    let part = "p".repeat(90);
    let place = Place::new();
    let sparse = Layer::new().entry(EntryType::GNUSparse, &part, "", 0o644, b"x");
    place.refuse(vec![sparse], "sparse");
    place.refuse(
        vec![Layer(pax_named(&vec!["d"; 300].join("/")))],
        "leads out of the image, or is no name",
    );
    let other = Layer(pax_sized("10000000000"));
    place.refuse(vec![other], "more than 8 GiB");
}

fn pax_named(name: &str) -> Builder<Vec<u8>> {
    pax("path", name)
}

fn pax_sized(size: &str) -> Builder<Vec<u8>> {
    pax("size", size)
}

fn pax(key: &str, value: &str) -> Builder<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    builder
        .append_pax_extensions([(key, value.as_bytes())])
        .unwrap();
    let mut header = Header::new_ustar();
    header.set_size(1);
    header.set_mode(0o644);
    header.set_entry_type(EntryType::Regular);
    header.as_old_mut().name[0] = b'?';
    header.set_cksum();
    builder.append(&header, &b"y"[..]).unwrap();
    builder
}

#[test]
fn bombs_go_off_at_the_bound() {
    let place = Place::new();
    // A gibibyte of zeros that is a megabyte while it comes.
    let mut header = Header::new_gnu();
    header.set_size(1 << 30);
    header.set_mode(0o644);
    header.set_path("zeros").unwrap();
    header.set_cksum();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..1 << 10 {
        gzip.write_all(&zeros).unwrap();
    }
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 16 << 20);
    let small = Bounds {
        bytes: 32 << 20,
        ..Place::bounds()
    };
    let archive = saved(&[bomb]);
    let error = place.import_within(&archive, &small).unwrap_err();
    assert!(error.to_string().contains("larger than 32 MiB"), "{error}");
    place.assert_empty();

    let mut many = Layer::new();
    for number in 0..200 {
        many = many.file(&format!("f{number}"), "");
    }
    let few = Bounds {
        entries: 100,
        ..Place::bounds()
    };
    let archive = saved(&[many.bytes()]);
    let error = place.import_within(&archive, &few).unwrap_err();
    assert!(error.to_string().contains("more than 100 names"), "{error}");
    place.assert_empty();

    // Directories that no entry names are names too, and an empty file is not nothing.
    let way = vec!["d"; 150].join("/");
    let deep = saved(&[pax_named(&way).into_inner().unwrap()]);
    let error = place.import_within(&deep, &few).unwrap_err();
    assert!(error.to_string().contains("more than 100 names"), "{error}");
    place.assert_empty();
    let small = Bounds {
        bytes: 1 << 19,
        ..Place::bounds()
    };
    let error = place.import_within(&archive, &small).unwrap_err();
    assert!(error.to_string().contains("larger than"), "{error}");
    place.assert_empty();

    let late = Bounds::within(Duration::ZERO);
    let error = place.import_within(&archive, &late).unwrap_err();
    assert!(error.to_string().contains("longer than it may"), "{error}");
    place.assert_empty();
}

/// Each image has a configuration and one layer of its own, with a kilobyte in it.
fn several(count: usize, spoil: usize) -> Vec<u8> {
    let mut listed = Vec::new();
    let mut files = Vec::new();
    for number in 0..count {
        let layer = Layer::new().file("file", &format!("{number:01000}"));
        let layer = [layer.bytes()];
        let (name, blob) = (format!("{number}.json"), format!("{number}.tar"));
        listed.push(
            json!({"Config": name, "RepoTags": [format!("test:{number}")], "Layers": [blob]}),
        );
        if number != spoil {
            files.push((name, config(&layer)));
        }
        let [layer] = layer;
        files.push((blob, layer));
    }
    files.push((
        "manifest.json".to_owned(),
        json!(listed).to_string().into_bytes(),
    ));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (&**n, &**b)).collect();
    pack(&files)
}

#[test]
fn the_images_of_one_file_share_its_bounds_and_are_read_one_after_the_other() {
    let place = Place::new();
    let file = place.dir.path().join("images.tar");
    let import = |archive: &[u8], bounds: &Bounds| {
        fs::write(&file, archive).unwrap();
        archive::import(&place.store, &file, None, bounds, None)
    };
    let error = import(&several(65, 99), &Place::bounds()).unwrap_err();
    assert!(error.to_string().contains("more than 64 images"), "{error}");
    let many = vec![Vec::new(); 257];
    let error = import(&saved(&many), &Place::bounds()).unwrap_err();
    assert!(
        error.to_string().contains("more than 256 layers"),
        "{error}"
    );
    place.assert_empty();

    // The first two are read before anybody sees that the third has no configuration.
    let error = import(&several(4, 2), &Place::bounds()).unwrap_err();
    assert!(error.to_string().contains("`2.json`"), "{error}");
    assert_eq!(place.store.list().unwrap().len(), 2);

    let place = Place::new();
    let few = Bounds {
        entries: 3,
        ..Place::bounds()
    };
    fs::write(&file, several(4, 99)).unwrap();
    let error = archive::import(&place.store, &file, None, &few, None).unwrap_err();
    assert!(error.to_string().contains("more than 3 names"), "{error}");
    assert_eq!(place.store.list().unwrap().len(), 3);
}

#[test]
fn every_digest_is_compared() {
    let layer = Layer::new().file("file", "contents 1").bytes();
    let place = Place::new();
    // The layer of another image.
    let wrong = saved_with(
        std::slice::from_ref(&layer),
        &config(&[Layer::new().file("x", "").bytes()]),
    );
    let error = place.import(&wrong).unwrap_err().to_string();
    assert!(error.contains("its contents have the digest"), "{error}");
    // More layers than the configuration knows.
    let wrong = saved_with(
        &[layer.clone(), layer.clone()],
        &config(std::slice::from_ref(&layer)),
    );
    let error = place.import(&wrong).unwrap_err().to_string();
    assert!(error.contains("names 1 layers and there are 2"), "{error}");
    place.assert_empty();
    for spoil in ["manifest", "config", "layer"] {
        let one = std::slice::from_ref(&layer);
        let spoiled = layout(one, one, spoil);
        let error = place.import(&spoiled).unwrap_err().to_string();
        let is_told = error.contains("is something else") || error.contains("digest");
        assert!(is_told, "{spoil}: {error}");
        place.assert_empty();
    }
}

#[test]
fn a_layout_with_gzip_and_zstd_is_the_same_image_as_the_plain_archive() {
    let lower = Layer::new().dir("bin/").file("bin/tool", "tool").bytes();
    let upper = Layer::new().file("etc/own", "x").bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&lower).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(
        upper.as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    let layers = [lower, upper];
    let place = Place::new();
    let packed = layout(&layers, &[gzip.finish().unwrap(), zstd], "");
    let stored = place.import(&packed).unwrap();
    let root = place.root(&stored);
    assert_eq!(read(root.join("bin/tool")), "tool");
    assert_eq!(read(root.join("etc/own")), "x");
    assert_eq!(stored.names, ["registry.test/tool:1"]);
    let [pinned] = stored.digests.as_slice() else {
        panic!("{stored:?}");
    };
    assert!(pinned.starts_with("registry.test/tool@sha256:"), "{pinned}");
    for name in ["registry.test/tool:1", pinned, &stored.image.id.to_string()] {
        Rootfs::find(&place.store, name).unwrap();
    }
    // The same layers without compression are the same image, with one more name.
    let again = place.import(&saved(&layers)).unwrap();
    assert_eq!(again.image, stored.image);
    assert_eq!(again.names, ["registry.test/tool:1", "test:1"]);
    assert_eq!(place.store.list().unwrap().len(), 1);
}

#[test]
fn what_is_no_archive_of_images_is_said_to_be_none() {
    let place = Place::new();
    for (bytes, words) in [
        (Vec::new(), "neither"),
        (b"hello".to_vec(), "refused"),
        (vec![0x1f, 0x8b, 8, 0], "gunzip"),
        (pack(&[("etc/passwd", b"x")]), "docker save"),
        (pack(&[("manifest.json", b"[{}]")]), "manifest.json"),
        (
            pack(&[(
                "manifest.json",
                br#"[{"Config":"../../etc/passwd","Layers":[]}]"#,
            )]),
            "which is not in it",
        ),
        (
            pack(&[
                ("oci-layout", b"{}"),
                ("index.json", br#"{"manifests":[{"digest":"sha256:../x"}]}"#),
            ]),
            "index.json",
        ),
    ] {
        let error = place.import(&bytes).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    let absent = place.dir.path().join("absent.tar");
    let bounds = Place::bounds();
    let error = archive::import(&place.store, &absent, None, &bounds, None).unwrap_err();
    assert!(matches!(error, ImageError::Unreadable { .. }), "{error}");
    let error = archive::import(&place.store, place.dir.path(), None, &bounds, None).unwrap_err();
    assert!(error.to_string().contains("no regular file"), "{error}");
    place.assert_empty();
}

#[test]
fn an_image_goes_with_its_last_name_and_not_while_a_run_uses_it() {
    let place = Place::new();
    let archive = saved(&[Layer::new().file("x", "x").bytes()]);
    let stored = place.import(&archive).unwrap();
    let file = place.dir.path().join("image.tar");
    let other = Reference::parse("other:2").unwrap();
    let bounds = Place::bounds();
    archive::import(&place.store, &file, Some(&other), &bounds, None).unwrap();
    let held = place.store.hold("other:2").unwrap();
    assert_eq!(place.store.remove("test:1").unwrap().removed, ["test:1"]);
    let error = place.store.remove("other:2").unwrap_err();
    assert!(matches!(error, ImageError::InUse { .. }), "{error}");
    let pruned = place.store.prune(Prune::Unused).unwrap();
    assert_eq!((pruned.removed.len(), pruned.in_use.len()), (0, 1));
    assert!(held.root.join("x").exists());
    drop(held);
    assert_eq!(place.store.prune(Prune::Nameless).unwrap().removed.len(), 0);
    let removed = place.store.remove("other:2").unwrap();
    assert!(removed.freed_bytes > 0);
    assert_eq!(
        removed.removed,
        ["other:2".to_owned(), stored.image.id.to_string()]
    );
    place.assert_empty();
    let error = place.store.hold("test:1").unwrap_err().to_string();
    assert!(
        error.contains("cofferdam images pull --store native test:1"),
        "{error}"
    );
}

#[test]
fn many_at_once_make_one_image() {
    let place = Place::new();
    let mut layer = Layer::new();
    for number in 0..300 {
        layer = layer.file(&format!("f{number}"), &"x".repeat(1000));
    }
    let file = place.dir.path().join("image.tar");
    fs::write(&file, saved(&[layer.bytes()])).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (store, file) = (&place.store, &file);
            scope.spawn(move || {
                let name = Reference::parse(&format!("name{number}:1")).unwrap();
                archive::import(store, file, Some(&name), &Place::bounds(), None).unwrap();
            });
        }
    });
    let [stored] = &place.store.list().unwrap()[..] else {
        panic!("more than one image");
    };
    assert_eq!(stored.names.len(), 8);
    assert_eq!(names(&place.root(stored)).len(), 300);
}
