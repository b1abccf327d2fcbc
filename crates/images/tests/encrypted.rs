//! A real registry with encryption, a certificate authority of its own, and passwords or tokens: what is signed for us comes, and nobody else gets anything.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cofferdam_images::digest::Digest;
use cofferdam_images::reference::Reference;
use cofferdam_images::registry::{self, Settings};
use cofferdam_images::{Bounds, ImageError, Store, Stored};
use cofferdam_store::DataDir;
use cofferdam_testkit::docker::{skip, succeed, which};
use cofferdam_testkit::registry::Registry;
use serde_json::json;
use tar::{Builder, Header};

/// An authority, and a key of a server on loopback that it has signed.
struct Keys {
    dir: tempfile::TempDir,
}

impl Keys {
    fn make() -> Option<Self> {
        if let Some(missing) = ["openssl", "curl", "python3"]
            .into_iter()
            .find(|tool| which(tool).is_none())
        {
            return skip(missing);
        }
        let keys = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let openssl = |args: &[&str]| {
            let mut command = Command::new("openssl");
            succeed(command.current_dir(keys.dir.path()).args(args))
        };
        openssl(&[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        openssl(&[
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=127.0.0.1",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
        ]);
        fs::write(
            keys.path("extensions"),
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n",
        )
        .unwrap();
        openssl(&[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "extensions",
            "-out",
            "server.pem",
        ]);
        Some(keys)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As a registry's section `http` has it.
    fn tls(&self) -> String {
        let (key, certificate) = (self.path("server.key"), self.path("server.pem"));
        format!(
            "  tls: {{ certificate: {}, key: {} }}\n",
            certificate.display(),
            key.display()
        )
    }
}

/// Puts an image of one file into a registry's storage, by a registry that wants nothing.
fn stock(data: &Path) {
    let registry = Registry::start_in(data, "", "").unwrap();
    let base = format!("http://{}/v2/tool", registry.address());
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    builder.append_data(&mut header, "file", &b"x"[..]).unwrap();
    let layer = builder.into_inner().unwrap();
    let config = json!({"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer)]}});
    let config = config.to_string().into_bytes();
    let kinds = "application/vnd.docker.";
    let describe = |bytes: &[u8], kind: &str| json!({"mediaType": format!("{kinds}{kind}"), "digest": Digest::of(bytes), "size": bytes.len()});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": format!("{kinds}distribution.manifest.v2+json"),
        "config": describe(&config, "container.image.v1+json"),
        "layers": [describe(&layer, "image.rootfs.diff.tar")],
    });
    let file = data.join("sent");
    let send = |bytes: &[u8], url: &str, kind: &str| {
        fs::write(&file, bytes).unwrap();
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-f", "--noproxy", "*", "-X", "PUT", "--data-binary"]);
        curl.arg(format!("@{}", file.display()));
        curl.args(["-H", &format!("content-type: {kind}"), url]);
        succeed(&mut curl);
    };
    for blob in [&layer, &config] {
        let mut begin = Command::new("curl");
        begin.args([
            "-sS",
            "-f",
            "--noproxy",
            "*",
            "-X",
            "POST",
            "-d",
            "",
            "-o",
            "/dev/null",
        ]);
        begin.args(["-w", "%header{location}", &format!("{base}/blobs/uploads/")]);
        let place = succeed(&mut begin);
        let join = if place.contains('?') { '&' } else { '?' };
        let url = format!("{}{join}digest={}", place.trim(), Digest::of(blob));
        send(blob, &url, "application/octet-stream");
    }
    let kind = format!("{kinds}distribution.manifest.v2+json");
    send(
        manifest.to_string().as_bytes(),
        &format!("{base}/manifests/1"),
        &kind,
    );
    fs::remove_file(&file).unwrap();
}

/// Whoever is asked for: with which authority, by which name.
fn pull(
    address: &str,
    authority: Option<&Path>,
    password: Option<&str>,
) -> Result<Stored, ImageError> {
    let dir = tempfile::tempdir().unwrap();
    let credentials = password.map(|password| {
        let path = dir.path().join("auth.json");
        let entry = json!({"auths": {address: {"username": "me", "password": password}}});
        fs::write(&path, entry.to_string()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    });
    let settings = Settings {
        credentials,
        authority: authority.map(Path::to_owned),
        ..Settings::default()
    };
    let store = Store::of(&DataDir::at(dir.path().join("data")));
    let name = Reference::parse(&format!("{address}/tool:1")).unwrap();
    let bounds = Bounds::within(Duration::from_secs(60));
    registry::pull(&store, &name, &settings, &bounds)
}

#[test]
fn a_registry_is_believed_by_its_authority_and_gives_by_password() {
    let Some(keys) = Keys::make() else {
        return;
    };
    if which("docker-registry").is_none() {
        return skip::<()>("docker-registry").unwrap_or_default();
    }
    let data = tempfile::tempdir().unwrap();
    stock(data.path());
    let passwords = keys.path("passwords");
    // The password `secret`.
    let line = "me:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
    fs::write(&passwords, line).unwrap();
    let auth = format!(
        "auth: {{ htpasswd: {{ realm: test, path: {} }} }}\n",
        passwords.display()
    );
    let registry = Registry::start_in(data.path(), &keys.tls(), &auth).unwrap();
    let (address, authority) = (registry.address(), keys.path("ca.pem"));

    let got = pull(address, Some(&authority), Some("secret")).unwrap();
    assert!(got.names.contains(&format!("{address}/tool:1")), "{got:?}");
    let refused = |authority: &Path, password: Option<&str>, words: &str| {
        let error = pull(address, Some(authority), password)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("wrong-secret"), "{error}");
    };
    refused(&authority, Some("wrong-secret"), "wants to know who asks");
    refused(&authority, None, "wants to know who asks");
    // Signed by somebody else, or by nobody that is named.
    let Some(others) = Keys::make() else {
        return;
    };
    refused(&others.path("ca.pem"), Some("secret"), "cannot be reached");
    refused(&keys.path("server.key"), None, "no certificate in it");
    refused(&keys.path("nowhere.pem"), None, "cannot read");
    // Without an authority, a registry on this machine is spoken to in the clear, which this one does not understand.
    assert!(pull(address, None, Some("secret")).is_err());
}

/// Gives out tokens for the password, signed as the registry wants them: `X.509`, RS256.
const TOKENS: &str = r#"
import base64, http.server, json, ssl, subprocess, sys, time, urllib.parse
keys = sys.argv[1]
def b64(data): return base64.urlsafe_b64encode(data).rstrip(b'=')
der = base64.b64encode(ssl.PEM_cert_to_DER_cert(open(keys + '/server.pem').read())).decode()
class Tokens(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        who = self.headers.get('authorization')
        if who != 'Basic ' + base64.b64encode(b'me:secret').decode() or asked.get('service') != ['test-registry']:
            self.send_response(401); self.send_header('content-length', '0'); self.end_headers(); return
        kind, name, actions = asked['scope'][0].split(':')
        now = int(time.time())
        claims = {'iss': 'test-issuer', 'sub': 'me', 'aud': 'test-registry', 'exp': now + 300, 'nbf': now - 60, 'iat': now, 'jti': 'x',
                  'access': [{'type': kind, 'name': name, 'actions': actions.split(',')}]}
        head = b64(json.dumps({'typ': 'JWT', 'alg': 'RS256', 'x5c': [der]}).encode())
        text = head + b'.' + b64(json.dumps(claims).encode())
        signed = subprocess.run(['openssl', 'dgst', '-sha256', '-sign', keys + '/server.key'], input=text, stdout=subprocess.PIPE, check=True).stdout
        body = json.dumps({'token': (text + b'.' + b64(signed)).decode()}).encode()
        self.send_response(200); self.send_header('content-length', str(len(body))); self.end_headers(); self.wfile.write(body)
server = http.server.HTTPServer(('127.0.0.1', 0), Tokens)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(keys + '/server.pem', keys + '/server.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

struct Tokens {
    process: Child,
    port: u16,
}

impl Tokens {
    fn start(keys: &Keys) -> Self {
        let mut process = Command::new("python3")
            .args(["-c", TOKENS])
            .arg(keys.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut told = BufReader::new(process.stdout.take().unwrap());
        told.read_line(&mut line).unwrap();
        Self {
            process,
            port: line.trim().parse().unwrap(),
        }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_registry_that_wants_a_signed_token_gets_one_for_the_password() {
    let Some(keys) = Keys::make() else {
        return;
    };
    if which("docker-registry").is_none() {
        return skip::<()>("docker-registry").unwrap_or_default();
    }
    let data = tempfile::tempdir().unwrap();
    stock(data.path());
    let tokens = Tokens::start(&keys);
    let auth = format!(
        "auth: {{ token: {{ realm: \"https://127.0.0.1:{}/token\", service: test-registry, issuer: test-issuer, rootcertbundle: {} }} }}\n",
        tokens.port,
        keys.path("ca.pem").display()
    );
    let registry = Registry::start_in(data.path(), &keys.tls(), &auth).unwrap();
    let (address, authority) = (registry.address(), keys.path("ca.pem"));
    let got = pull(address, Some(&authority), Some("secret")).unwrap();
    assert!(got.names.contains(&format!("{address}/tool:1")), "{got:?}");
    for password in [Some("wrong-secret"), None] {
        let error = pull(address, Some(&authority), password).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("wants to know who asks"), "{text}");
        assert!(!text.contains("wrong-secret"), "{text}");
    }
}
