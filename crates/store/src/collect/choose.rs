//! Which names are looked at, by the name alone.

/// What is done with an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Look,
    /// Caches, tools' own data and whatever else is hidden: nobody's result.
    PassOver,
    /// Its name says that it holds secrets. That it is there may be told, never what is in it.
    Sensitive,
}

pub(super) fn file(name: &[u8]) -> Choice {
    if is_sensitive(name) {
        Choice::Sensitive
    } else if name.starts_with(b".") {
        Choice::PassOver
    } else {
        Choice::Look
    }
}

pub(super) fn directory(name: &[u8]) -> Choice {
    let passed_over = [&b"node_modules"[..], b"__pycache__"];
    if SENSITIVE_DIRECTORIES.contains(&name) {
        Choice::Sensitive
    } else if name.starts_with(b".") || passed_over.contains(&name) {
        Choice::PassOver
    } else {
        Choice::Look
    }
}

const SENSITIVE_DIRECTORIES: [&[u8]; 7] = [
    b".ssh", b".aws", b".gnupg", b".docker", b".kube", b".azure", b".gcloud",
];

const BEGINNINGS: [&[u8]; 8] = [
    b".env",
    b"id_rsa",
    b"id_ed25519",
    b"id_ecdsa",
    b"id_dsa",
    b"credentials",
    b"secrets.",
    b".vault-token",
];

const ENDINGS: [&[u8]; 12] = [
    b".env",
    b".pem",
    b".key",
    b".p12",
    b".pfx",
    b".keystore",
    b".jks",
    b".kdbx",
    b".ppk",
    b".keytab",
    b".ovpn",
    b".tfstate",
];

const WHOLE: [&[u8]; 14] = [
    b".netrc",
    b"_netrc",
    b".npmrc",
    b".yarnrc",
    b".pypirc",
    b".git-credentials",
    b".dockercfg",
    b".htpasswd",
    b".pgpass",
    b".my.cnf",
    b".s3cfg",
    b".boto",
    b"kubeconfig",
    b"service-account.json",
];

/// Whether a file of this name usually holds keys or passwords. Upper and lower case are the same: `SERVER.PEM` is no safer.
pub fn is_sensitive(name: &[u8]) -> bool {
    WHOLE.iter().any(|whole| name.eq_ignore_ascii_case(whole))
        || BEGINNINGS.iter().any(|with| begins(name, with))
        || ENDINGS.iter().any(|with| ends(name, with))
}

fn begins(name: &[u8], with: &[u8]) -> bool {
    name.get(..with.len())
        .is_some_and(|beginning| beginning.eq_ignore_ascii_case(with))
}

fn ends(name: &[u8], with: &[u8]) -> bool {
    name.len()
        .checked_sub(with.len())
        .and_then(|at| name.get(at..))
        .is_some_and(|ending| ending.eq_ignore_ascii_case(with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_tell() {
        for name in [
            ".env",
            ".env.local",
            ".envrc",
            "prod.env",
            "server.pem",
            "SERVER.PEM",
            "tls.key",
            "id_rsa",
            "id_rsa.pub",
            "id_ed25519",
            "a.p12",
            "a.pfx",
            "a.keystore",
            "a.jks",
            ".netrc",
            ".npmrc",
            ".pypirc",
            ".git-credentials",
            "credentials",
            "credentials.json",
            "pw.kdbx",
            "secrets.yaml",
        ] {
            assert_eq!(file(name.as_bytes()), Choice::Sensitive, "{name}");
        }
        for name in [
            "environment.txt",
            "key.txt",
            "pem",
            "secret",
            "monkey",
            "report.html",
        ] {
            assert_eq!(file(name.as_bytes()), Choice::Look, "{name}");
        }
        assert_eq!(file(b".hidden"), Choice::PassOver);
        assert_eq!(directory(b".ssh"), Choice::Sensitive);
        assert_eq!(directory(b".git"), Choice::PassOver);
        assert_eq!(directory(b"node_modules"), Choice::PassOver);
        assert_eq!(directory(b"credentials-service"), Choice::Look);
    }
}
