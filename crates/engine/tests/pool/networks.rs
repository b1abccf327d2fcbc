//! Network namespaces of waiting sandboxes: one that nobody has used serves again, one that somebody has used never does, and no run can tell which it has by what is in it.

use std::collections::BTreeSet;
use std::error::Error;

use cofferdam_contract::limits::Limits;

use crate::copies::{copied, python};
use crate::place::{Place, ROOMY, place};

/// Its cookie, which the kernel gives to one network and never again, as the number of a namespace is given again.
const NAME: &str = "python3 -c 'import socket; print(int.from_bytes(socket.socket(socket.AF_UNIX).getsockopt(1, 71, 8), \"little\"))'";
const COPY_NAME: &str = "import os, socket\nprint(int.from_bytes(socket.socket(socket.AF_UNIX).getsockopt(1, 71, 8), 'little'))\n";
/// Runs, of which one must have the network of an earlier one. One comes back soon after its run has ended, which may be after others have begun.
const MANY: usize = 200;
/// Every figure in it that an earlier run could have left.
const FIGURES: &str = "grep lo: /proc/net/dev | tr -s ' '; grep -A1 ^Ip: /proc/net/snmp | cut -d' ' -f4-; head -1 /proc/net/sockstat";
const USES: [&str; 4] = [
    // A packet over loopback.
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', 9))",
    // An attempt to get out.
    "import socket; print(socket.socket().connect_ex(('192.0.2.1', 80)))",
    // A connection, one end of which stays behind for a minute.
    "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); s.accept()[0].close(); c.close()",
];

/// The name and the rest of what a run sees.
fn look(place: &Place) -> Result<(String, String), Box<dyn Error>> {
    let record = place.run_seated(&format!("{NAME}; {FIGURES}"), Limits::DEFAULT)?;
    let (name, rest) = record.stdout.data.split_once('\n').ok_or("no name")?;
    assert!(name.parse::<u64>().is_ok_and(|n| n > 0), "{record:?}");
    Ok((name.to_owned(), rest.to_owned()))
}

#[test]
fn a_network_that_nobody_used_serves_again_and_looks_new() {
    let place = place(ROOMY).unwrap();
    let mut seen = BTreeSet::new();
    let mut looks = BTreeSet::new();
    for _ in 0..MANY {
        let (name, rest) = look(&place).unwrap();
        looks.insert(rest);
        if !seen.insert(name) {
            break;
        }
    }
    assert!(seen.len() < MANY, "{seen:?}");
    let script = format!("{NAME}; {FIGURES}");
    let built = place.run(None, crate::place::request(&script, Limits::DEFAULT));
    let built = built.unwrap().stdout.data;
    let (own, fresh) = built.split_once('\n').unwrap();
    assert!(!seen.contains(own), "{own} in {seen:?}");
    assert_eq!(looks, BTreeSet::from([fresh.to_owned()]));
}

#[test]
fn a_network_that_was_used_never_serves_again() {
    let place = place(ROOMY).unwrap();
    let fresh = look(&place).unwrap().1;
    let mut used = BTreeSet::new();
    for code in USES {
        let script = format!("{NAME}; python3 -c \"{code}\"");
        let record = place.run_seated(&script, Limits::DEFAULT).unwrap();
        assert_eq!(record.exit_code, Some(0), "{record:?}");
        let name = record.stdout.data.lines().next().unwrap();
        assert!(used.insert(name.to_owned()), "{name} serves again");
        for _ in 0..6 {
            let (name, rest) = look(&place).unwrap();
            assert!(!used.contains(&name), "{name} serves again after {code}");
            assert_eq!(rest, fresh, "after {code}");
        }
    }
}

#[test]
fn copies_of_an_interpreter_have_the_same_kind_of_network() {
    let place = place(ROOMY).unwrap();
    let run = |rest: &str| {
        let script = format!("{COPY_NAME}{rest}");
        let record = copied(&place, &script, python(Limits::DEFAULT)).unwrap();
        let (name, rest) = record.stdout.data.split_once('\n').unwrap();
        (name.to_owned(), rest.to_owned())
    };
    let look = "print(os.readlink('/proc/self/ns/net'))\nprint([line.split() for line in open('/proc/net/dev')])\nprint(socket.if_nameindex())\n";
    let host = std::fs::read_link("/proc/self/ns/net").unwrap();
    let host = host.to_str().unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..MANY {
        let (name, rest) = run(look);
        assert!(!rest.starts_with(host), "{rest}");
        assert!(rest.ends_with("[(1, 'lo')]\n"), "{rest}");
        assert!(rest.contains("['lo:', '0', '0'"), "{rest}");
        if !seen.insert(name) {
            break;
        }
    }
    assert!(seen.len() < MANY, "{seen:?}");
    let (used, _) =
        run("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))\n");
    for _ in 0..8 {
        assert_ne!(run("").0, used);
    }
}
