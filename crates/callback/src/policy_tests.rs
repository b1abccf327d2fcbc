//! Attacks on the check of addresses, and their harmless twins.

use proptest::prelude::*;

use cofferdam_contract::address::place;

use super::*;

fn policy(allow: &[&str]) -> Policy {
    Policy {
        allow: allow.iter().map(|text| text.parse().unwrap()).collect(),
        ..Policy::default()
    }
}

#[test]
fn nothing_is_allowed_until_it_is_listed() {
    let nothing = Policy::default();
    assert!(matches!(
        nothing.check("https://example.com/"),
        Err(Refused::NotListed { .. })
    ));
    let one = policy(&["hooks.example.com"]);
    for url in [
        "https://hooks.example.com/a?b=c",
        "http://HOOKS.example.COM:8080/",
        "https://hooks.example.com./",
        "https://ｈooks.example.com/",
    ] {
        assert!(one.check(url).is_ok(), "{url}");
    }
    for url in [
        "https://example.com/",
        "https://evil-hooks.example.com/",
        "https://hooks.example.com.evil.net/",
        "https://hooks.example.com@evil.net/",
        "https://evil.net/?https://hooks.example.com",
        "https://evil.net\\@hooks.example.com/",
        "https://evil.net#@hooks.example.com/",
        "https://hooks.example.com:secret@hooks.example.com/",
        "ftp://hooks.example.com/",
        "file:///etc/passwd",
        "gopher://hooks.example.com/",
        "//hooks.example.com/",
        "hooks.example.com",
        "",
        "https://",
        "https://hooks.example.com:0/",
        "https://[::1",
        "javascript:alert(1)",
    ] {
        let refused = one.check(url);
        assert!(refused.is_err(), "{url}");
        assert!(
            !refused.unwrap_err().to_string().contains("secret"),
            "{url}"
        );
    }
}

#[test]
fn ports_and_subdomains_are_what_the_entry_says() {
    let both = policy(&["a.example.com:8443", "*.b.example.com"]);
    for url in [
        "https://a.example.com:8443/",
        "https://x.b.example.com/",
        "https://y.x.b.example.com:99/",
    ] {
        assert!(both.check(url).is_ok(), "{url}");
    }
    for url in [
        "https://a.example.com/",
        "https://b.example.com/",
        "https://xb.example.com/",
        "https://.b.example.com/",
    ] {
        assert!(both.check(url).is_err(), "{url}");
    }
    let default_port = policy(&["c.example.com:443"]);
    assert!(default_port.check("https://c.example.com/").is_ok());
    assert!(default_port.check("http://c.example.com/").is_err());
}

#[test]
fn odd_spellings_of_addresses_are_addresses() {
    let any = policy(&["*"]);
    for url in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.0.0.1./",
        "http://127。0。0。1/",
        "http://①②⑦.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://0/",
        "http://0.0.0.0/",
        "http://[::]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://10.0.0.1/",
        "http://192.168.0.1/",
        "http://172.16.5.4/",
        "http://100.64.0.1/",
        "http://[fd00::1]/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://168.63.129.16/",
    ] {
        assert!(
            matches!(any.check(url), Err(Refused::Address { .. })),
            "{url}: {:?}",
            any.check(url)
        );
    }
    assert!(any.check("http://1.1.1.1/").is_ok());
    assert!(any.check("http://0x01010101/").is_ok());
}

#[test]
fn permissions_open_what_they_name_and_nothing_else() {
    let loopback = Policy {
        allow_loopback: true,
        ..policy(&["*"])
    };
    assert!(loopback.check("http://127.0.0.1:8080/").is_ok());
    assert!(loopback.check("http://[::1]/").is_ok());
    assert!(loopback.check("http://10.0.0.1/").is_err());
    let private = Policy {
        allow_private: true,
        ..policy(&["*"])
    };
    assert!(private.check("http://10.0.0.1/").is_ok());
    assert!(private.check("http://127.0.0.1/").is_err());
    let everything = Policy {
        allow_loopback: true,
        allow_private: true,
        ..policy(&["*", "169.254.0.0/16", "0.0.0.0/0", "::/0"])
    };
    for url in [
        "http://169.254.169.254/",
        "http://[fe80::1]/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "http://100.100.100.200/",
        "http://[fd00:ec2::254]/",
    ] {
        assert!(everything.check(url).is_err(), "{url}");
    }
}

#[test]
fn a_listed_network_may_be_spoken_to_also_by_name() {
    let network = policy(&["10.1.0.0/16", "hooks.internal"]);
    assert!(network.check("http://10.1.2.3/").is_ok());
    assert!(network.check("http://[::ffff:10.1.2.3]/").is_ok());
    assert!(network.check("http://10.2.0.1/").is_err());
    let behind = |address: &str| network.check_address("hooks.internal", address.parse().unwrap());
    assert!(behind("10.1.9.9").is_ok());
    assert!(behind("10.2.9.9").is_err());
    assert!(behind("169.254.169.254").is_err());
    assert!(behind("127.0.0.1").is_err());
    assert!(behind("93.184.216.34").is_ok());
}

#[test]
fn entries_that_cannot_be_meant_are_refused() {
    for text in [
        "",
        "a b",
        "10.0.0.0/33",
        "::/129",
        "x/8",
        "host:0",
        "host:99999",
        "*.",
        "*.1.2.3.4",
        "a.*.b",
        "http://host/",
        "::ffff:10.0.0.0/104",
        "user@host",
    ] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
    for text in [
        "*",
        "*:443",
        "host",
        "host:1",
        "*.host",
        "10.0.0.0/8",
        "1.2.3.4",
        "1.2.3.4:80",
        "::1",
        "[::1]",
        "[::1]:80",
        "bücher.example",
        "::/0",
        "0.0.0.0/0",
    ] {
        assert!(text.parse::<Pattern>().is_ok(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_check_panic_or_lets_a_never_address_through(text in "(http|https)://[\\PC]{0,40}") {
        let everything = Policy { allow_loopback: true, allow_private: true, ..policy(&["*"]) };
        if let Ok(url) = everything.check(&text) {
            let address = match url.host() {
                Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
                Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
                _ => None,
            };
            if let Some(address) = address {
                prop_assert!(!matches!(place(address), Place::Never(_)));
            }
            // What is stored reads the same again.
            let again = everything.check(url.as_str());
            prop_assert_eq!(again.ok(), Some(url));
        }
    }

    #[test]
    fn every_spelling_of_an_ipv4_address_is_judged_alike(bits: u32) {
        let any = policy(&["*"]);
        let v4 = std::net::Ipv4Addr::from_bits(bits);
        let [a, b, c, d] = v4.octets();
        let plain = any.check(&format!("http://{v4}/")).is_ok();
        for url in [
            format!("http://{bits}/"), format!("http://0x{bits:x}/"), format!("http://0{bits:o}/"), format!("http://0{a:o}.0x{b:x}.{c}.{d}/"),
            format!("http://{a}.{b}.{}/", u16::from_be_bytes([c, d])), format!("http://[::ffff:{v4}]/"), format!("http://{v4}./"),
        ] {
            prop_assert_eq!(any.check(&url).is_ok(), plain, "{}", url);
        }
    }
}
