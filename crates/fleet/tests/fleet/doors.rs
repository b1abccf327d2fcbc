//! Servers that ask who comes: by password, token, key, credentials and certificate. Whoever is right gets in and works; whoever is wrong is told what is wrong, and his secret is not.

use std::path::PathBuf;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_fleet::{Address, Fleet};
use cofferdam_testkit::nats::Nats;
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa};
use serde_json::{Value, json};

use crate::world::runtime;

const SECRET: &str = "s3cr3t-Word";

fn at(url: String) -> Address {
    Address {
        url,
        ..Address::default()
    }
}

/// Gets in and does something.
fn gets_in(address: &Address) {
    runtime().block_on(async {
        let fleet = Fleet::connect(address, None).await.unwrap();
        assert_eq!(fleet.status().await.unwrap().jobs_open, 0);
    });
}

/// Does not, and is told why.
fn is_refused(address: &Address, word: &str) {
    let error = runtime().block_on(async { Fleet::connect(address, None).await.unwrap_err() });
    let told = error.to_string();
    assert!(told.contains(word), "{word}: {told}");
    assert!(!told.contains(SECRET), "{told}");
    assert!(
        matches!(
            error.code(),
            ErrorCode::ServerRefused | ErrorCode::InputInvalid
        ),
        "{error:?}"
    );
}

#[test]
fn a_server_that_asks_for_a_password_or_a_token_is_given_what_the_address_says() {
    let users = format!("authorization {{ user: \"me@home\", password: \"{SECRET}\" }}");
    let Some(nats) = Nats::start_with(&users) else {
        return;
    };
    gets_in(&at(nats.url_as(&format!("me%40home:{SECRET}"))));
    is_refused(
        &at(nats.url_as(&format!("me:{SECRET}"))),
        "does not let us in",
    );
    is_refused(&at(nats.url()), "does not let us in");
    let token = format!("authorization {{ token: \"{SECRET}\" }}");
    let Some(nats) = Nats::start_with(&token) else {
        return;
    };
    gets_in(&at(nats.url_as(SECRET)));
    is_refused(&at(nats.url_as("other")), "does not let us in");
}

#[test]
fn a_server_that_asks_for_a_key_gets_a_signature() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (KeyPair::new_user(), KeyPair::new_user());
    let write = |name: &str, text: String| -> PathBuf {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let users = format!(
        "authorization {{ users: [ {{ nkey: {} }} ] }}",
        own.public_key()
    );
    let Some(nats) = Nats::start_with(&users) else {
        return;
    };
    let with = |nkey: PathBuf| Address {
        nkey: Some(nkey),
        ..at(nats.url())
    };
    gets_in(&with(write("own", format!("{}\n", own.seed().unwrap()))));
    let wrong = write("other", other.seed().unwrap());
    is_refused(&with(wrong), "does not let us in");
    is_refused(&with(write("none", SECRET.to_owned())), "holds no seed");
    is_refused(
        &with(dir.path().join("missing")),
        "--nats-nkey: cannot read",
    );
}

/// A token as NATS has them, signed by one for another.
fn jwt(issuer: &KeyPair, subject: &KeyPair, name: &str, about: Value) -> String {
    let part = |value: Value| data_encoding::BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let now = jiff::Timestamp::now().as_second();
    let head = part(json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let claims = part(json!({
        "jti": name, "iat": now, "iss": issuer.public_key(), "name": name, "sub": subject.public_key(), "nats": about,
    }));
    let text = format!("{head}.{claims}");
    let signature = issuer.sign(text.as_bytes()).unwrap();
    format!(
        "{text}.{}",
        data_encoding::BASE64URL_NOPAD.encode(&signature)
    )
}

#[test]
fn a_server_with_accounts_is_shown_a_file_of_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let operator = KeyPair::new_operator();
    let [system, account, stranger] = [(); 3].map(|()| KeyPair::new_account());
    let limits = json!({
        "subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1, "wildcards": true,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of_account = json!({"type": "account", "version": 2, "limits": limits});
    let system_is =
        json!({"type": "operator", "version": 2, "system_account": system.public_key()});
    let accounts = [
        (
            &system,
            "SYS",
            json!({"type": "account", "version": 2, "limits": {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1, "wildcards": true}}),
        ),
        (&account, "A", of_account),
    ];
    let preload: Vec<String> = accounts
        .into_iter()
        .map(|(key, name, about)| {
            format!(
                "{}: \"{}\"",
                key.public_key(),
                jwt(&operator, key, name, about)
            )
        })
        .collect();
    let config = format!(
        "operator: \"{}\"\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}\n}}\n",
        jwt(&operator, &operator, "O", system_is),
        system.public_key(),
        preload.join("\n")
    );
    let Some(nats) = Nats::start_with(&config) else {
        return;
    };
    let credentials = |issuer: &KeyPair, name: &str| {
        let user = KeyPair::new_user();
        let about = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            jwt(issuer, &user, name, about),
            user.seed().unwrap()
        );
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        Address {
            credentials: Some(file),
            ..at(nats.url())
        }
    };
    gets_in(&credentials(&account, "worker"));
    is_refused(&credentials(&stranger, "stranger"), "does not let us in");
    let none = Address {
        credentials: Some(dir.path().join("missing")),
        ..at(nats.url())
    };
    is_refused(&none, "--nats-creds: cannot read");
}

#[test]
fn a_server_with_certificates_is_believed_by_its_authority_and_is_shown_our_own() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let authority = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
    };
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let signed = |issuer: &CertifiedIssuer<'static, rcgen::KeyPair>, name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let made = params.signed_by(&key, issuer).unwrap();
        (
            write(&format!("{name}.pem"), made.pem()),
            write(&format!("{name}.key"), key.serialize_pem()),
        )
    };
    let ca = write("ca.pem", ours.pem());
    let other_ca = write("other.pem", theirs.pem());
    let (certificate, key) = signed(&ours, "server");
    let config = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        certificate.display(),
        key.display(),
        ca.display()
    );
    let Some(nats) = Nats::start_with(&config) else {
        return;
    };
    let with = |ca: Option<&PathBuf>, client: Option<(PathBuf, PathBuf)>| Address {
        ca: ca.cloned(),
        client,
        ..at(nats.url())
    };
    let own = signed(&ours, "own");
    gets_in(&with(Some(&ca), Some(own.clone())));
    let stranger = signed(&theirs, "stranger");
    for (address, why) in [
        (with(Some(&ca), None), "no certificate of our own"),
        (with(Some(&ca), Some(stranger)), "one of another authority"),
        (
            with(Some(&other_ca), Some(own.clone())),
            "we do not believe the server",
        ),
        (with(None, Some(own.clone())), "no authority named"),
    ] {
        eprintln!("{why}");
        is_refused(&address, "no secure connection");
    }
    // One who shows a certificate says nothing to a server that wants none.
    let Some(plain) = Nats::start() else { return };
    let stripped = Address {
        client: Some(own.clone()),
        ..at(plain.url())
    };
    is_refused(&stripped, "no secure connection");
    let missing = (dir.path().join("missing"), own.1);
    is_refused(&with(Some(&ca), Some(missing)), "--nats-cert: cannot read");
    let away = dir.path().join("away");
    is_refused(&with(Some(&away), None), "--nats-ca: cannot read");
}
