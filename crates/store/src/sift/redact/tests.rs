//! What is found, what is not, and that neither depends on how the input is cut.

use proptest::prelude::*;

use super::*;

const JWT: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
const PEM: &str =
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabc+/=\n-----END RSA PRIVATE KEY-----";
const GITHUB: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
const GOOGLE: &str = "AIzaSyA-0123456789_abcdefghijABCDEFGHIJ";

fn text(input: &str) -> String {
    redact_text(&Rules::builtin(), input).0
}

fn in_pieces(rules: &Rules, input: &[u8], sizes: &[usize]) -> (Vec<u8>, u64, usize) {
    let mut redactor = Redactor::new(rules);
    let mut out = Vec::new();
    let mut most = 0;
    let mut rest = input;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(1).clamp(1, rest.len());
        let (piece, after) = rest.split_at(size);
        redactor.push(piece, &mut out);
        most = most.max(redactor.held());
        rest = after;
    }
    redactor.finish(&mut out);
    (out, redactor.count(), most)
}

fn whole(rules: &Rules, input: &[u8]) -> (Vec<u8>, u64) {
    let (out, count, _) = in_pieces(rules, input, &[usize::MAX]);
    (out, count)
}

/// Each `‹…›` in the example is a secret.
fn assert_hidden(example: &str) {
    let input = example.replace(['‹', '›'], "");
    let mut expected = String::new();
    let mut rest = example;
    while let Some((before, after)) = rest.split_once('‹') {
        let (_, behind) = after.split_once('›').unwrap_or((after, ""));
        expected += before;
        expected += PLACEHOLDER;
        rest = behind;
    }
    expected += rest;
    let secrets = u64::try_from(example.matches('‹').count()).unwrap_or(0);
    assert_eq!(
        redact_text(&Rules::builtin(), &input),
        (expected.clone(), secrets),
        "{input}"
    );
    assert_eq!(
        redact_text(&Rules::builtin(), &expected),
        (expected.clone(), 0),
        "twice: {input}"
    );
}

#[test]
fn names_with_values() {
    for example in [
        "API_KEY=‹abc123›",
        "export X_TOKEN=‹abc›",
        "export GITHUB_TOKEN=‹a;b&c,d› rest",
        "db_password=‹x› next",
        "PASSWORD='‹two words›'",
        "AWS_SECRET_ACCESS_KEY=‹wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY›",
        "aws_secret_access_key = ‹wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY›",
        r#"{"api_key": "‹abc›", "password":"‹p\"q›","n":1}"#,
        r#"{'token' : '‹abc›'}"#,
        r#""apiKey":"‹abc›""#,
        r#"log: "{\"password\":\"‹hun\\\"ter2›\",\"a\":1}""#,
        "token: ‹abc123def456›",
        "  password: ‹correcthorse›\n  user: joe",
        "password: ‹hunter2›",
        "secret_key: \"‹s›\"",
        "  - client_secret: ‹0a1b2c3d4e›\n",
        "X-Api-Key: ‹abcdef›",
        "x-auth-token: ‹q›\r\n",
        "curl -H 'X-Api-Key: ‹abc›' http://h/",
        "GET /v1?api_key=‹abc123›&page=2 HTTP/1.1",
        "GET /?x=1&access_token=‹abc›",
        "u=http%3A%2F%2Fh%3Fapi_key%3D‹abc123›&b=2",
        "redirect?token%3A‹abc›&x",
        "Server=db;User Id=sa;Password=‹p@ss word!›;Encrypt=true",
        "Data Source=x;pwd=‹abc›;",
        "postgres: host=h password=‹s3cret› dbname=d",
        "'secret' => '‹abc›'",
        "token := \"‹abc›\"",
        "DB_PASS=‹x›",
        "_auth=‹am9lOnB3›",
        "//registry.example.org/:_authToken=‹npm_abc›",
        "PGPASSWORD=‹pg› psql",
        "[\"API_KEY=‹abc›\"]",
        "a=1&PASSWORD=‹b›&c=2",
        "credentials=‹abc›",
        "MYSQL_PWD=‹abc›",
        "--password=‹hunter2› --verbose",
        "password=‹123456›",
        "TOKEN=‹abc›\nSECRET=‹def›\n",
        "token=\"‹unterminated\\›\nnext",
        "env TOKEN=‹abc› make",
        "ApiKey: ‹0123456789abcdef0123›",
        "MY_PRIVATE_KEY=‹abc›",
    ] {
        assert_hidden(example);
    }
}

#[test]
fn headers_and_tokens() {
    for example in [
        "Authorization: Bearer ‹abcdef›",
        "authorization: Basic ‹dXNlcjpwYXNz›\r\nHost: h",
        "\"Authorization\": \"Bearer ‹abc›\"",
        "Proxy-Authorization: ‹abc123def›",
        "-H 'Authorization: token ‹abc›' -v",
        "sent Bearer ‹abc123def›, then",
        "auth=Bearer%20‹abc123def456›&x",
        "Authorization: Digest ‹username=\"a\", response=\"b\"›\n",
        &format!("got ‹{JWT}› back"),
        &format!("Bearer ‹{JWT}›"),
        "id ‹AKIAIOSFODNN7EXAMPLE›.",
        "\"‹ASIAIOSFODNN7EXAMPLE›\"",
        "x%3D‹AKIAIOSFODNN7EXAMPLE›",
        r"line\n‹AKIAIOSFODNN7EXAMPLE›\n",
        &format!("push with ‹{GITHUB}›"),
        "‹github_pat_11ABCDEFG0123456789abcdef_xyz›",
        &format!("?key=‹{GOOGLE}›&x=1"),
        "‹sk-proj-abcdefghij0123456789ABCD›",
        "‹sk-ant-api03-AbCdEfGhIjKlMnOp0123-xy›",
        "‹sk_live_abcdefgh01234567›",
        "(‹sk-0123456789abcdefghij01›)",
        "‹xoxb-123456789012-abcdef›",
        "‹xoxp-0123456789›",
        "key:‹xoxs-abcdefghij›",
        "https://user:‹pass›@host/x",
        "postgres://joe:‹p@ss:w›@db:5432/x",
        "redis://:‹secret›@h:1",
        "git clone https://x-access-token:‹abc›@github.com/a/b",
    ] {
        assert_hidden(example);
    }
}

#[test]
fn private_keys_of_any_length() {
    assert_hidden(&format!("a\n‹{PEM}›\nb"));
    assert_hidden("‹-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----›");
    assert_hidden(&format!("KEY=‹{PEM}›\nb"));
    assert_hidden(&format!("tls_key: \"‹{}›\",\n", PEM.replace('\n', "\\n")));
    assert_hidden("x\n‹-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nno end\n›");
    assert_hidden("‹-----BEGIN PRIVATE KEY-----›");
    let long = format!(
        "‹-----BEGIN PRIVATE KEY-----\n{}-----END CERTIFICATE-----\n-----END PRIVATE KEY-----›\n",
        "QUJD\n".repeat(50_000)
    );
    assert_hidden(&long);
    let encrypted =
        "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF0123456789ABCDEF\n\n";
    assert_hidden(&format!(
        "‹-----BEGIN RSA PRIVATE KEY-----\n{encrypted}{}›",
        "x".repeat(10_000)
    ));
    let public = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n";
    assert_eq!(text(public), public);
    let code = "if line == \"-----BEGIN PRIVATE KEY-----\" { go() }\n";
    assert_eq!(text(code), code);
}

#[test]
fn a_mention_of_a_private_key_does_not_take_all_that_follows() {
    let header = "/// -----BEGIN PRIVATE KEY-----\n";
    let prose = "/// and so on, in words\n".repeat(100);
    let (redacted, count) = redact_text(&Rules::builtin(), &format!("{header}{prose}"));
    assert_eq!(count, 1);
    assert_eq!(
        redacted,
        format!("/// [REDACTED]\n{}", "/// and so on, in words\n".repeat(92))
    );
}

#[test]
fn what_is_no_secret_survives() {
    for harmless in [
        "monkey=5",
        "KEYBOARD=us",
        "tokens=12",
        "max_tokens: 4096",
        "--password-file /run/pw",
        "task-force-0123456789abcdefghijk",
        "password_file=/run/x",
        "550e8400-e29b-41d4-a716-446655440000",
        "commit d4e57b0a1b2c3d4e5f60718293a4b5c6d7e8f901",
        "SGVsbG8gV29ybGQhIFRoaXMgaXMgYSBiYXNlNjQgYmxvYi4=",
        "key=5",
        "\"key\": \"value\"",
        "primary_key=user_id",
        "public_key: ssh-rsa-abc123",
        "PWD=/home/x",
        "OLDPWD=/home/joe",
        "TOKEN=$TOKEN",
        "TOKEN=${CI_TOKEN}",
        "password=<password>",
        "password=***",
        "\"password\": null",
        "password: true",
        "\"token\":\"\"",
        "token=",
        "password = ",
        "let token = lexer.next();",
        "password: String,",
        "fn login(password: &str, token: Token)",
        "if token == expected_token_1 {",
        "std::token::Tree",
        "Token::Ident",
        "token=5",
        "expected token: found `x`",
        "PASS: test_one",
        "FAIL: test_two",
        "test auth: ok",
        "12:34:56 token 17",
        "https://example.com:8080/a@b",
        "ssh://git@github.com:22/x",
        "http://[::1]:80/",
        "mailto:joe@example.com",
        "see http://a.b/c:d@e",
        "bearer of bad news",
        "Bearer authentication failed",
        "AKIAIOSFODNN7EXAMPLEX",
        "XAKIAIOSFODNN7EXAMPLE",
        "AKIA",
        "ghp_short",
        "sk-circle-fade-dot",
        "disk-0123456789abcdefghijklm",
        "xoxo-hugs-and-kisses",
        "eyJhbGciOiJIUzI1NiJ9",
        "{{ password }}",
        "password={{ pw }}",
        "authorization: required",
        "token: string",
        "-----BEGIN PRIVATE",
        "secret://name/x",
        "password=password",
        "https://user:${PASS}@host/",
        "https://user:***@host/",
        "[REDACTED]",
        "API_KEY=[REDACTED]",
        "author=joe",
        "compass=north",
        "bypass=yes",
        "turkey=1",
        "hockey: 12ab34cd",
        "donkey=\"x\"",
        "cache_key=ab12cd34",
        "dot2_token: node.dot2_token,",
        "pub log_passwd: __u32,",
        "const VK: VIRTUAL_KEY = 255u16;",
        "pub Password: [u16; 256],",
        "token: crate::v2::Token,",
        "self.password = password\n",
        "password = args.password\n",
        "let token = self[0];",
        "const AUTHORIZATION: u32 = 61u32;",
    ] {
        assert_eq!(
            redact_text(&Rules::builtin(), harmless),
            (harmless.to_owned(), 0)
        );
    }
}

#[test]
fn known_values_and_patterns_are_found_across_borders() {
    let rules = Rules::for_environment([
        ("MY_SECRET", "open sesame"),
        ("OTHER_TOKEN", "sesame street"),
        ("X_KEY", "[REDACTED]"),
        ("HOME", "/home/joe"),
    ]);
    let rules = rules
        .with_patterns([r"(?i)internal-\d+", r"cust_\w{4,}"])
        .unwrap();
    let input =
        "say open sesame street to INTERNAL-42 and cust_abcd1\n/home/joe open sesameopen sesame";
    let expected = "say [REDACTED] to [REDACTED] and [REDACTED]\n/home/joe [REDACTED][REDACTED]";
    for size in 1..input.len() {
        let (out, count, _) = in_pieces(&rules, input.as_bytes(), &[size]);
        assert_eq!(
            (String::from_utf8_lossy(&out).as_ref(), count),
            (expected, 5),
            "pieces of {size}"
        );
    }
    assert_eq!(
        whole(&rules, expected.as_bytes()),
        (expected.as_bytes().to_vec(), 0)
    );
}

#[test]
fn a_match_in_a_line_without_end_is_found_and_the_hold_is_bounded() {
    let rules = Rules::builtin()
        .with_patterns(["needle-[a-z]{4000}"])
        .unwrap();
    let secret = format!("needle-{}", "q".repeat(4000));
    for before in [0, 10, 4090, 4096, 8191, 20_000] {
        let input = format!("{}{secret}{}", ".".repeat(before), ".".repeat(9000));
        let (out, count, held) = in_pieces(&rules, input.as_bytes(), &[1000]);
        assert_eq!((out.len(), count), (before + 10 + 9000, 1), "{before}");
        assert!(held <= MOST_HELD);
    }
}

#[test]
fn construction_is_nearly_free() {
    // A regular expression takes some 50 µs to compile in a release build; this must not come near even in a slow one. The best of many rounds: others use the machine too.
    let round = |_| {
        let begin = std::time::Instant::now();
        for _ in 0..50 {
            let redactor = Redactor::new(&Rules::builtin());
            assert_eq!(redactor.count(), 0);
        }
        begin.elapsed()
    };
    let best = (0..40).map(round).min();
    assert!(
        best < Some(std::time::Duration::from_millis(10)),
        "{best:?}"
    );
}

/// Texts made of what the matchers look for, so that borders and overlaps are hit.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        prop::sample::select(vec![
            "token",
            "API_KEY",
            "password",
            "Password",
            "pwd",
            "x-api-key",
            "_pass",
            "_auth",
            "authorization",
            "Bearer ",
            "Basic ",
            "=",
            ": ",
            ":",
            "%3D",
            "\"",
            "'",
            "\\\"",
            "\\",
            " ",
            "\n",
            "\r\n",
            ";",
            "&",
            ",",
            "@",
            "://",
            "/",
            "http",
            "user",
            "abc",
            "12",
            "1",
            "a",
            "[REDACTED]",
            "[RED",
            "ACTED]",
            "<",
            ">",
            "$",
            "${X}",
            "***",
            "AKIAIOSFODNN7EXAMPLE",
            "AKIA",
            "sk-",
            "sk-abcdefghijklmnop0123456789",
            "xoxb-0123456789",
            "export ",
            "{",
            "}",
            "(",
            "open sesame",
            "sesame street",
            "open ses",
            "internal-1",
            "=>",
            ":=",
            "true",
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "-----END ",
            "-----",
            "%20",
            "+",
            ".",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        Just(JWT.as_bytes().to_vec()),
        Just(GITHUB.as_bytes().to_vec()),
        Just(GOOGLE.as_bytes().to_vec()),
        Just(PEM.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
        (
            prop::sample::select(vec![b'a', b'=', b' ', b'1', b'.', b'A']),
            0..1200_usize
        )
            .prop_map(|(byte, length)| vec![byte; length]),
    ];
    prop::collection::vec(fragment, 0..24).prop_map(|fragments| fragments.concat())
}

fn all_rules() -> Rules {
    let values: [&[u8]; 2] = [b"open sesame", b"sesame street"];
    let rules = Rules::builtin().with_values(values);
    let with_patterns = rules.clone().with_patterns(["internal-[0-9]+"]);
    with_patterns.unwrap_or(rules)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_cut_gives_the_same_output_and_holds_little(input in fragments(), sizes in prop::collection::vec(1..200_usize, 1..6)) {
        for (rules, most) in [(Rules::builtin(), 2048), (all_rules(), MOST_HELD)] {
            let expected = whole(&rules, &input);
            let (out, count, held) = in_pieces(&rules, &input, &sizes);
            prop_assert_eq!((String::from_utf8_lossy(&out), count), (String::from_utf8_lossy(&expected.0), expected.1));
            prop_assert!(held <= most, "{} held", held);
            prop_assert_eq!(in_pieces(&rules, &input, &[1]).0, expected.0);
        }
    }

    #[test]
    fn redacting_twice_changes_nothing(input in fragments()) {
        for rules in [Rules::builtin(), all_rules()] {
            let (once, _) = whole(&rules, &input);
            let (twice, count) = whole(&rules, &once);
            prop_assert_eq!((String::from_utf8_lossy(&twice), count), (String::from_utf8_lossy(&once), 0));
        }
    }

    #[test]
    fn any_bytes_pass(input in prop::collection::vec(any::<u8>(), 0..3000), sizes in prop::collection::vec(1..100_usize, 1..4)) {
        let rules = all_rules();
        let (out, count, _) = in_pieces(&rules, &input, &sizes);
        if count == 0 {
            prop_assert_eq!(out, input);
        }
    }
}

/// Whoever follows a run sees its lines as they come.
#[test]
fn a_line_that_has_ended_is_handed_on() {
    let rules = Rules::default().with_values([b"correct-horse".as_slice()]);
    let mut redactor = Redactor::new(&rules);
    for line in ["hi\n", "token: ghp_\n", "the next one\n", "\n"] {
        let mut out = Vec::new();
        redactor.push(line.as_bytes(), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), line);
    }
}
