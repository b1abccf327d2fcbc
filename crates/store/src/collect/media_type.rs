//! What kind of contents a file has: by how it begins, then by its name, then by whether it is text. The name alone makes nothing an image, and nothing text.

/// The media type of a file by its name and the first 8 KiB of its contents, or all where there is less.
pub fn media_type(name: &[u8], beginning: &[u8]) -> &'static str {
    if let Some(found) = by_magic(beginning) {
        return refined(name, found);
    }
    let is_text = is_text(beginning);
    match by_extension(name) {
        Some((media_type, Needs::Text)) if is_text => media_type,
        Some((media_type, Needs::NoText)) if !is_text => media_type,
        _ if is_text => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Where a magic number stands, and what it means.
const MAGIC: [(usize, &[u8], &str); 26] = [
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\0\0\x01\0", "image/x-icon"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", ZIP),
    (0, b"PK\x05\x06", ZIP),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\x7fELF", "application/x-elf"),
    (0, b"\0asm", "application/wasm"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"\x93NUMPY", "application/x-npy"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (4, b"ftyp", "video/mp4"),
    (8, b"WAVE", "audio/wav"),
];

const ZIP: &str = "application/zip";

fn by_magic(beginning: &[u8]) -> Option<&'static str> {
    let found = MAGIC.iter().find(|(at, magic, media_type)| {
        let here = beginning.get(*at..).is_some_and(|b| b.starts_with(magic));
        // These two are kinds of one container.
        let needs_riff = matches!(*media_type, "image/webp" | "audio/wav");
        // A few letters are an ordinary beginning of a text as well.
        let is_telling = magic.len() > 4 || magic.iter().any(|byte| !byte.is_ascii_graphic());
        here && (!needs_riff || beginning.starts_with(b"RIFF"))
            && (is_telling || !is_text(beginning))
    });
    found.map(|(_, _, media_type)| *media_type)
}

/// Documents that are archives are told apart by their names.
fn refined(name: &[u8], found: &'static str) -> &'static str {
    if found != ZIP {
        return found;
    }
    match extension(name).as_slice() {
        b"docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        b"xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        b"pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        b"odt" => "application/vnd.oasis.opendocument.text",
        b"epub" => "application/epub+zip",
        b"jar" => "application/java-archive",
        b"npz" => "application/x-npz",
        _ => ZIP,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Text,
    NoText,
}

fn by_extension(name: &[u8]) -> Option<(&'static str, Needs)> {
    let text = |media_type| Some((media_type, Needs::Text));
    let other = |media_type| Some((media_type, Needs::NoText));
    match extension(name).as_slice() {
        b"html" | b"htm" => text("text/html; charset=utf-8"),
        b"css" => text("text/css; charset=utf-8"),
        b"csv" => text("text/csv; charset=utf-8"),
        b"tsv" => text("text/tab-separated-values; charset=utf-8"),
        b"md" | b"markdown" => text("text/markdown; charset=utf-8"),
        b"js" | b"mjs" | b"cjs" => text("text/javascript; charset=utf-8"),
        b"json" | b"map" => text("application/json"),
        b"jsonl" | b"ndjson" => text("application/x-ndjson"),
        b"ipynb" => text("application/x-ipynb+json"),
        b"xml" | b"trx" => text("application/xml"),
        b"svg" => text("image/svg+xml"),
        b"yaml" | b"yml" => text("application/yaml"),
        b"toml" => text("application/toml"),
        b"sql" => text("application/sql"),
        b"mp3" => other("audio/mpeg"),
        b"woff2" => other("font/woff2"),
        b"woff" => other("font/woff"),
        b"ttf" => other("font/ttf"),
        b"pkl" | b"pickle" => other("application/x-pickle"),
        b"br" => other("application/x-brotli"),
        b"tar" => other("application/x-tar"),
        _ => None,
    }
}

fn extension(name: &[u8]) -> Vec<u8> {
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(at) if at > 0 => name.get(at + 1..).unwrap_or_default().to_ascii_lowercase(),
        _ => Vec::new(),
    }
}

/// UTF-8 without NUL. The last character may be cut, since only the beginning is here.
fn is_text(beginning: &[u8]) -> bool {
    let valid = match std::str::from_utf8(beginning) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    valid && !beginning.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_have_a_type(name in any::<Vec<u8>>(), beginning in any::<Vec<u8>>()) {
            prop_assert!(media_type(&name, &beginning).contains('/'));
        }
    }

    #[test]
    fn contents_come_before_names() {
        let tar = [&[b'x'; 257][..], b"ustar\0"].concat();
        for (name, contents, expected) in [
            ("a.txt", &b"\x89PNG\r\n\x1a\n...."[..], "image/png"),
            ("a.html", b"\xff\xd8\xff\xe0", "image/jpeg"),
            ("a", b"%PDF-1.7", "application/pdf"),
            (
                "a.docx",
                b"PK\x03\x04",
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            ),
            ("a.bin", b"PK\x03\x04", "application/zip"),
            ("a", b"\x7fELF\x02", "application/x-elf"),
            ("a", b"\0asm\x01\0\0\0", "application/wasm"),
            ("a", b"SQLite format 3\0", "application/vnd.sqlite3"),
            ("a", b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
            ("a", b"RIFF\x10\0\0\0WAVEfmt ", "audio/wav"),
            ("a", &tar, "application/x-tar"),
            ("a.json", b"{}", "application/json"),
            ("a.JSON", b"\xff\xfe", "application/octet-stream"),
            ("a.svg", b"<svg/>", "image/svg+xml"),
            ("evil.png", b"<script>", "text/plain; charset=utf-8"),
            (
                "BZhistory",
                b"BZhello, this is a text",
                "text/plain; charset=utf-8",
            ),
            ("a", b"ID3 is how it begins", "text/plain; charset=utf-8"),
            ("a", b"this ftyp of text", "text/plain; charset=utf-8"),
            ("a", b"\0\0\0\x20ftypisom", "video/mp4"),
            ("a.woff2", b"wOF2\0\x01", "font/woff2"),
            ("noext", b"plain", "text/plain; charset=utf-8"),
            ("empty", b"", "text/plain; charset=utf-8"),
            ("cut", b"caf\xc3", "text/plain; charset=utf-8"),
            ("nul", b"a\0b", "application/octet-stream"),
            (".json", b"hidden", "text/plain; charset=utf-8"),
        ] {
            assert_eq!(media_type(name.as_bytes(), contents), expected, "{name}");
        }
    }
}
