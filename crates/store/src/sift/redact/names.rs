//! Which names say that their value is a secret. Judges names only, never values.

/// Words that make an environment name a sensitive one, wherever they stand in it.
const SENSITIVE_WORDS: [&str; 22] = [
    "KEY",
    "KEYS",
    "APIKEY",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASS",
    "PWD",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "COOKIE",
    "COOKIES",
    "PRIVATE",
    "JWT",
    "DSN",
];

/// A name that ends in one of these is about a secret and does not hold one: `SSH_AUTH_SOCK`, `KEY_FILE`, `TOKEN_URL`.
const DESCRIBING_WORDS: [&str; 34] = [
    "ALG",
    "ALGORITHM",
    "COUNT",
    "DIR",
    "DOMAIN",
    "ENABLED",
    "ENDPOINT",
    "EXPIRES",
    "EXPIRY",
    "FILE",
    "FORMAT",
    "HOST",
    "ID",
    "IDS",
    "INDEX",
    "ISSUER",
    "LEN",
    "LENGTH",
    "LIMIT",
    "METHOD",
    "MODE",
    "NAME",
    "NAMES",
    "PATH",
    "POLICY",
    "PORT",
    "PROVIDER",
    "SIZE",
    "SOCK",
    "TIMEOUT",
    "TTL",
    "TYPE",
    "URI",
    "URL",
];

/// A word before KEY that makes it a key of another sort.
const HARMLESS_KEYS: [&str; 26] = [
    "array",
    "cache",
    "composite",
    "dict",
    "foreign",
    "group",
    "hash",
    "host",
    "hot",
    "index",
    "lookup",
    "map",
    "object",
    "partition",
    "primary",
    "public",
    "row",
    "routing",
    "shift",
    "sort",
    "storage",
    "translation",
    "unique",
    "idempotency",
    "press",
    "arrow",
];

/// What is written together with `key`.
const KEY_COMPOUNDS: [&str; 12] = [
    "api",
    "access",
    "account",
    "auth",
    "client",
    "encryption",
    "license",
    "master",
    "private",
    "secret",
    "shared",
    "signing",
];

/// How the name of a value in a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A password: every value is one, also a short or numeric one.
    Password,
    /// A token, secret, credential or key.
    Issued,
    /// `_pass`, `_auth`: words with other meanings, believed only before `=` or a quoted value.
    Vague,
    /// The header `Authorization`.
    Authorization,
    /// `PWD` by itself: a password in a connection string, a directory in an environment.
    BarePwd,
}

/// Whether a variable of this name is taken to hold a secret.
///
/// The name is cut at `_`, `-` and `.`. It is sensitive when one of its words is KEY(S), APIKEY, SECRET(S), TOKEN, PASSWORD, PASSWD, PASSPHRASE, PASS, PWD,
/// CREDENTIAL(S), CREDS, AUTH, AUTHORIZATION, BEARER, COOKIE(S), PRIVATE, JWT or DSN, or ends in PASSWORD (`PGPASSWORD`), and its last word does not say that
/// it is only about one (FILE, PATH, URL, ID, NAME, SOCK, SIZE …). `PUBLIC_KEY` and `PWD` by themselves are not sensitive.
pub fn is_sensitive_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let words: Vec<&str> = upper
        .split(['_', '-', '.'])
        .filter(|word| !word.is_empty())
        .collect();
    let Some(last) = words.last() else {
        return false;
    };
    if upper == "PWD" || DESCRIBING_WORDS.contains(last) {
        return false;
    }
    if words.ends_with(&["PUBLIC", "KEY"]) {
        return false;
    }
    words
        .iter()
        .any(|word| SENSITIVE_WORDS.contains(word) || word.ends_with("PASSWORD"))
}

/// What a name in a text says of the value after it. Its last word decides, since `password_file` is no password.
pub(super) fn kind_of(name: &[u8]) -> Option<Kind> {
    let (before, last) = split_last_word(name);
    let ends = |with: &[u8]| {
        let stem = last.len().checked_sub(with.len());
        stem.and_then(|stem| last.get(stem..))
            .is_some_and(|end| end.eq_ignore_ascii_case(with))
    };
    let is = |word: &[u8]| last.eq_ignore_ascii_case(word);
    if ends(b"password") || ends(b"passwd") || ends(b"passphrase") {
        return Some(Kind::Password);
    }
    if is(b"pwd") {
        return Some(if before.is_empty() {
            Kind::BarePwd
        } else {
            Kind::Password
        });
    }
    if ends(b"token") || ends(b"secret") || is(b"credential") || is(b"credentials") {
        return Some(Kind::Issued);
    }
    if is(b"authorization") {
        return Some(Kind::Authorization);
    }
    if is(b"pass") || is(b"auth") {
        return (!before.is_empty() || name.starts_with(b"_")).then_some(Kind::Vague);
    }
    is_key(before, last).then_some(Kind::Issued)
}

/// A key is a secret if something says what it opens: `key=5` is anything.
fn is_key(before: &[u8], last: &[u8]) -> bool {
    if last.eq_ignore_ascii_case(b"key") {
        let (_, qualifier) = split_last_word(before);
        return !qualifier.is_empty() && !one_of(qualifier, &HARMLESS_KEYS);
    }
    let Some((stem, end)) = last.split_at_checked(last.len().saturating_sub(3)) else {
        return false;
    };
    end.eq_ignore_ascii_case(b"key") && one_of(stem, &KEY_COMPOUNDS)
}

fn one_of(word: &[u8], list: &[&str]) -> bool {
    list.iter()
        .any(|entry| word.eq_ignore_ascii_case(entry.as_bytes()))
}

/// Cuts before the last word: at `_`, `-`, `.`, or where an upper-case letter follows a lower-case one.
fn split_last_word(name: &[u8]) -> (&[u8], &[u8]) {
    let name = trim_joints(name);
    let mut start = name.len();
    for (at, byte) in name.iter().enumerate().rev() {
        if is_joint(*byte) {
            break;
        }
        start = at;
        let before = at.checked_sub(1).and_then(|index| name.get(index));
        if byte.is_ascii_uppercase() && before.is_some_and(u8::is_ascii_lowercase) {
            break;
        }
    }
    let (before, last) = name.split_at_checked(start).unwrap_or((name, &[]));
    (trim_joints(before), last)
}

fn trim_joints(mut name: &[u8]) -> &[u8] {
    while let Some((last, rest)) = name.split_last() {
        if !is_joint(*last) {
            break;
        }
        name = rest;
    }
    name
}

fn is_joint(byte: u8) -> bool {
    matches!(byte, b'_' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_names_are_judged_by_whole_words() {
        for name in [
            "API_KEY",
            "KEY",
            "GITHUB_TOKEN",
            "TOKEN_PROD",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "PGPASSWORD",
            "MYSQL_PWD",
            "npm_config__auth",
            "SESSION_COOKIE",
            "PRIVATE_KEY",
            "GOOGLE_CREDENTIALS",
            "my-secret",
            "CREDENTIAL_STORE",
            "API_KEY_2",
            "SENTRY_DSN",
        ] {
            assert!(is_sensitive_name(name), "{name}");
        }
        for name in [
            "PATH",
            "KEYBOARD",
            "MONKEY",
            "TOKENIZERS_PARALLELISM",
            "PWD",
            "OLDPWD",
            "SSH_AUTH_SOCK",
            "KEY_FILE",
            "TOKEN_URL",
            "AWS_ACCESS_KEY_ID",
            "PUBLIC_KEY",
            "HOME",
            "",
            "___",
            "AUTHOR",
            "COMPASS",
            "BYPASS",
            "PASSWORD_FILE",
        ] {
            assert!(!is_sensitive_name(name), "{name}");
        }
    }

    #[test]
    fn names_in_text_are_judged_by_their_last_word() {
        let kind = |name: &str| kind_of(name.as_bytes());
        for name in [
            "password",
            "DB_PASSWORD",
            "PGPASSWORD",
            "db.passwd",
            "userPassword",
            "MYSQL_PWD",
        ] {
            assert_eq!(kind(name), Some(Kind::Password), "{name}");
        }
        for name in [
            "token",
            "X_TOKEN",
            "apiKey",
            "apikey",
            "API_KEY",
            "X-Api-Key",
            "client_secret",
            "SecretAccessKey",
            "authToken",
            "credentials",
        ] {
            assert_eq!(kind(name), Some(Kind::Issued), "{name}");
        }
        for name in [
            "monkey",
            "key",
            "KEYBOARD",
            "tokens",
            "password-file",
            "primary_key",
            "publicKey",
            "pass",
            "auth",
            "turkey",
            "compass",
            "",
        ] {
            assert_eq!(kind(name), None, "{name}");
        }
        assert_eq!(kind("_key"), None);
        assert_eq!(kind("DB_PASS"), Some(Kind::Vague));
        assert_eq!(kind("PWD"), Some(Kind::BarePwd));
        assert_eq!(kind("Proxy-Authorization"), Some(Kind::Authorization));
    }
}
