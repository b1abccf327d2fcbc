//! Registries that ask for a token, as they behave and as they should not: who gets the password, and what happens when a token grows old.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cofferdam_images::digest::Digest;
use cofferdam_images::reference::Reference;
use cofferdam_images::registry::{self, Settings, Transport};
use cofferdam_images::{Bounds, ImageError, Store, Stored};
use cofferdam_store::DataDir;
use serde_json::json;
use tar::{Builder, Header};

/// What a request was for, and who it said it was from.
type Asked = (String, Option<String>);
/// The status, a challenge, and the body.
type Answer = (&'static str, Option<String>, Vec<u8>);

/// Answers on loopback until the test ends.
fn serve(
    mut answer: impl FnMut(&Asked) -> Answer + Send + 'static,
) -> (u16, Arc<Mutex<Vec<Asked>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let log = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&log);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Some(asked) = hear(&stream) {
                let (status, challenge, body) = answer(&asked);
                heard.lock().unwrap().push(asked);
                let challenge = challenge.map(|text| format!("www-authenticate: {text}\r\n"));
                let head = format!(
                    "HTTP/1.1 {status}\r\n{}content-length: {}\r\nconnection: close\r\n\r\n",
                    challenge.unwrap_or_default(),
                    body.len()
                );
                let mut stream = &stream;
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            }
        }
    });
    (port, log)
}

fn hear(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers = lines.take_while(|line| !line.is_empty());
    let who = headers.filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_it = name.eq_ignore_ascii_case("authorization");
        is_it.then(|| value.to_owned())
    });
    let who = who.reduce(|_, last| last);
    Some((path, who))
}

/// An image of one file in each of several layers: what a registry has, by the end of its path.
fn image(layers: usize) -> BTreeMap<String, Vec<u8>> {
    let describe = |bytes: &[u8]| json!({"digest": Digest::of(bytes), "size": bytes.len()});
    let layers: Vec<Vec<u8>> = (0..layers)
        .map(|number| {
            let mut builder = Builder::new(Vec::new());
            let mut header = Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            builder
                .append_data(&mut header, format!("f{number}"), &b"x"[..])
                .unwrap();
            builder.into_inner().unwrap()
        })
        .collect();
    let ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let config = json!({"os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}});
    let config = config.to_string().into_bytes();
    let listed: Vec<_> = layers.iter().map(|layer| describe(layer)).collect();
    let manifest = json!({"schemaVersion": 2, "config": describe(&config), "layers": listed});
    let mut all = BTreeMap::from([("manifests/1".to_owned(), manifest.to_string().into_bytes())]);
    for blob in layers.into_iter().chain([config]) {
        all.insert(format!("blobs/{}", Digest::of(&blob)), blob);
    }
    all
}

fn pull(port: u16, transport: Transport) -> Result<Stored, ImageError> {
    let dir = tempfile::tempdir().unwrap();
    let registry = format!("127.0.0.1:{port}");
    let credentials = dir.path().join("auth.json");
    let entry = json!({"auths": {&registry: {"username": "me", "password": "secret"}}});
    fs::write(&credentials, entry.to_string()).unwrap();
    fs::set_permissions(&credentials, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = Settings {
        transport,
        credentials: Some(credentials),
        authority: None,
        progress: None,
    };
    let store = Store::of(&DataDir::at(dir.path().join("data")));
    let name = Reference::parse(&format!("{registry}/tool:1")).unwrap();
    let bounds = Bounds::within(Duration::from_secs(30));
    registry::pull(&store, &name, &settings, &bounds)
}

/// The port of 0.0.0.0 is reached as if it were somebody else's, and is here all the same.
#[test]
fn no_registry_makes_a_password_leave_in_the_clear() {
    let (other, asked) = serve(|_| ("200 OK", None, br#"{"token": "t"}"#.to_vec()));
    let send_to = |realm: String| {
        let challenge = format!("Bearer realm=\"{realm}\",service=\"s\"");
        let registry = serve(move |_| ("401 Unauthorized", Some(challenge.clone()), Vec::new()));
        registry.0
    };
    for elsewhere in [
        format!("http://0.0.0.0:{other}/token"),
        format!("http://localhost:1@0.0.0.0:{other}/token"),
        format!("HTTP://0.0.0.0:{other}/token"),
        "ftp://127.0.0.1/token".to_owned(),
    ] {
        let error = pull(send_to(elsewhere.clone()), Transport::Encrypted).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("not encrypted"), "{elsewhere}: {text}");
    }
    assert_eq!(*asked.lock().unwrap(), []);
    // On this machine, or where somebody said so, it may.
    let here = send_to(format!("http://127.0.0.1:{other}/token"));
    assert!(pull(here, Transport::Encrypted).is_err());
    let there = send_to(format!("http://0.0.0.0:{other}/token"));
    assert!(pull(there, Transport::Plain).is_err());
    let asked = asked.lock().unwrap();
    let told: Vec<_> = asked.iter().map(|(_, who)| who.as_deref()).collect();
    assert_eq!(told, [Some("Basic bWU6c2VjcmV0"); 2]);
}

#[test]
fn a_token_that_grows_old_is_replaced_and_a_useless_one_only_once() {
    for (layers, uses, is_enough) in [(5, 2, true), (3, 1, true), (2, 0, false)] {
        let blobs = image(layers);
        // Each token is good for so many requests.
        let (mut issued, mut left) = (0, 0);
        let (port_of, own) = std::sync::mpsc::channel::<u16>();
        let mut port = None;
        let (port_here, asked) = serve(move |(path, who)| {
            let port = *port.get_or_insert_with(|| own.recv().unwrap());
            if path.starts_with("/token") {
                (issued, left) = (issued + 1, uses);
                let token = json!({"token": format!("t{issued}")}).to_string();
                return ("200 OK", None, token.into_bytes());
            }
            if left == 0 || *who != Some(format!("Bearer t{issued}")) {
                let realm = format!("Bearer realm=\"http://127.0.0.1:{port}/token\"");
                return ("401 Unauthorized", Some(realm), Vec::new());
            }
            left -= 1;
            let body = path
                .strip_prefix("/v2/tool/")
                .and_then(|end| blobs.get(end));
            body.map_or(("404 Not Found", None, Vec::new()), |body| {
                ("200 OK", None, body.clone())
            })
        });
        port_of.send(port_here).unwrap();
        let pulled = pull(port_here, Transport::Encrypted);
        let asked = asked.lock().unwrap();
        let tokens = asked.iter().filter(|(path, _)| path.starts_with("/token"));
        let tokens = tokens.count();
        if is_enough {
            pulled.unwrap();
            // A manifest, a configuration and the layers.
            assert_eq!(tokens, (layers + 2).div_ceil(uses));
        } else {
            let error = pulled.unwrap_err();
            assert!(matches!(error, ImageError::Denied { .. }), "{error}");
            assert_eq!((tokens, asked.len()), (1, 3));
        }
    }
}
