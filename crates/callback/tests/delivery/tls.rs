//! https: only to whom a trusted certificate names.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use cofferdam_store::outbox::Kind;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::fixture::{Bench, why};

/// Answers 200 to whoever trusts its certificate, which names `name`. Gives its port and the certificate.
fn server(name: &str) -> Option<(u16, Vec<u8>)> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).ok()?;
    let der = made.cert.der().to_vec();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(der.clone())], key)
        .ok()?;
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    let port = listener.local_addr().ok()?.port();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let Ok(mut session) = ServerConnection::new(Arc::clone(&config)) else {
                continue;
            };
            let mut stream = Stream::new(&mut session, &mut socket);
            // A client that does not trust us goes away here.
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                session.send_close_notify();
                let _ = session.complete_io(&mut socket);
            }
        }
    });
    Some((port, der))
}

#[test]
fn a_certificate_must_be_trusted_and_name_the_host() {
    let cases = [
        ("localhost", "localhost", true, "delivered: 200"),
        ("localhost", "localhost", false, "retry: "),
        ("elsewhere.example", "localhost", true, "retry: "),
        ("127.0.0.1", "127.0.0.1", true, "delivered: 200"),
        ("localhost", "127.0.0.1", true, "retry: "),
    ];
    for (named, asked, trusted, expected) in cases {
        let (port, der) = server(named).unwrap();
        let mut bench = Bench::new().unwrap();
        if trusted {
            bench.settings.extra_roots = vec![der];
        }
        bench.bring(&format!("https://{asked}:{port}"), "r", Kind::Result, "r");
        let told = why(bench.carrier().deliver_one().unwrap());
        assert!(told.starts_with(expected), "{named} as {asked}: {told}");
    }
}
