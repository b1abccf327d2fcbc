//! What is allowed is what was written, and nothing beside it.

use super::*;

fn allow(text: &str) -> Allowance {
    match Network::read(text) {
        Ok(Network::Allowed(allowance)) => allowance,
        other => panic!("{text}: {other:?}"),
    }
}

fn host(text: &str) -> Host<String> {
    Host::parse(text).unwrap()
}

fn permits(allowance: &Allowance, name: &str, port: u16) -> bool {
    match host(name) {
        Host::Domain(name) => allowance.permits(&Host::Domain(&name), port),
        Host::Ipv4(v4) => allowance.permits(&Host::Ipv4(v4), port),
        Host::Ipv6(v6) => allowance.permits(&Host::Ipv6(v6), port),
    }
}

#[test]
fn an_entry_without_a_port_means_the_ports_of_the_web() {
    let list = allow("allow=pypi-like.example:8443, *.example.org ,192.0.2.7");
    assert!(permits(&list, "pypi-like.example", 8443));
    assert!(!permits(&list, "pypi-like.example", 443));
    assert!(permits(&list, "a.b.example.org", 80));
    assert!(permits(&list, "A.Example.ORG", 443));
    assert!(!permits(&list, "a.example.org", 22));
    assert!(!permits(&list, "example.org", 443));
    assert!(!permits(&list, "evilexample.org", 443));
    assert!(permits(&list, "192.0.2.7", 443));
    assert!(!permits(&list, "192.0.2.8", 443));
    assert_eq!(list.ports(), [80, 443, 8443]);
    assert!(list.permits_name("pypi-like.example") && !list.permits_name("example.com"));
}

#[test]
fn every_problem_of_a_list_is_told_at_once() {
    let problems = Network::read("allow=a b,x.example:0,dns.example:53,,ok.example").unwrap_err();
    let values: Vec<_> = problems.iter().map(|found| found.value.as_str()).collect();
    assert_eq!(values, ["a b", "x.example:0", "", "dns.example:53"]);
    for text in ["allow=", "allow", "some", "", "FULL"] {
        assert_eq!(Network::read(text).unwrap_err().len(), 1, "{text}");
    }
    let many: Vec<String> = (1..=300)
        .map(|n| format!("a.example:{}", 2000 + n))
        .collect();
    let problems = Network::listed(many.iter().map(String::as_str)).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn it_is_printed_as_it_is_read() {
    for text in ["none", "full", "allow=a.example:22,*.example.org,[::1]:80"] {
        assert_eq!(Network::read(text).unwrap().to_string(), text);
    }
    let proxy: Upstream = "proxy.example.org:3128".parse().unwrap();
    assert_eq!(proxy.to_string(), "http://proxy.example.org:3128");
    for bad in [
        "",
        "proxy",
        "https://p:1",
        "http://u:p@h:1",
        "h:0",
        "h:99999",
    ] {
        assert!(bad.parse::<Upstream>().is_err(), "{bad}");
    }
}

#[test]
fn only_public_addresses_are_connected_to_unless_others_are_named() {
    let full = allow("full");
    assert_eq!(full.check_address("1.1.1.1".parse().unwrap()), Ok(()));
    for address in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "::1",
        "::ffff:10.0.0.1",
        "fd00::1",
        "224.0.0.1",
        "0.0.0.0",
    ] {
        assert!(
            full.check_address(address.parse().unwrap()).is_err(),
            "{address}"
        );
    }
    let mut open = full;
    open.nearby = Nearby {
        loopback: true,
        private: true,
    };
    assert_eq!(open.check_address("10.0.0.1".parse().unwrap()), Ok(()));
    assert_eq!(open.check_address("127.0.0.1".parse().unwrap()), Ok(()));
    let never = open.check_address("169.254.169.254".parse().unwrap());
    assert_eq!(never, Err("a link-local address"));
    let named = allow("allow=10.1.0.0/16,127.0.0.1");
    assert_eq!(named.check_address("10.1.2.3".parse().unwrap()), Ok(()));
    assert!(named.check_address("10.2.0.1".parse().unwrap()).is_err());
    assert!(named.check_address("127.0.0.1".parse().unwrap()).is_err());
}

#[test]
fn nobody_gets_more_than_the_ceiling() {
    let of = |text: &str| Network::read(text).unwrap();
    let ceiling = of("allow=*.example.org,git.example.net:22");
    assert_eq!(of("none").within(&of("none")), Ok(Network::Denied));
    assert!(of("full").within(&Network::Denied).is_err());
    assert_eq!(of("full").within(&ceiling), Ok(ceiling.clone()));
    let part = of("allow=a.example.org:443,git.example.net:22");
    assert_eq!(part.within(&ceiling), Ok(part.clone()));
    assert_eq!(part.within(&of("full")), Ok(part.clone()));
    for beyond in [
        "allow=example.org",
        "allow=a.example.org:22",
        "allow=git.example.net",
        "allow=*",
    ] {
        assert!(of(beyond).within(&ceiling).is_err(), "{beyond}");
    }
    let mut careless = of("full");
    if let Network::Allowed(allowance) = &mut careless {
        allowance.nearby.loopback = true;
    }
    assert_eq!(careless.within(&of("full")), Ok(of("full")));
}
