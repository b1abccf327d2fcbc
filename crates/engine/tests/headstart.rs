//! A run whose network was made before anything else was known of it is like any other.

use std::error::Error;

use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Grant, Request};
use cofferdam_engine::headstart::Headstart;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Quarters, Streams};

/// The network's cookie, which the kernel never gives again; then what is in it, who may change it, and whether it leads anywhere.
const LOOK: &str = "import os, socket\nprint(int.from_bytes(socket.socket(socket.AF_UNIX).getsockopt(1, 71, 8), 'little'))\nprint(sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys/class/net') else socket.if_nameindex())\ns = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('talks to itself')\nprint(os.access('/proc/sys/net/ipv4/ip_forward', os.W_OK), socket.socket().connect_ex(('192.0.2.1', 80)))";

fn look(headstart: Option<Headstart>, host: &Host) -> Result<RunRecord, Box<dyn Error>> {
    let grant = Grant::new(Request::command(["python3", "-c", LOOK]))?;
    let quarters = Quarters::New(headstart);
    Ok(pipeline::run_in(
        quarters,
        grant,
        Streams::kept(4096),
        host,
    )?)
}

#[test]
fn a_network_that_was_made_ahead_is_as_one_that_the_sandbox_makes_and_each_run_has_its_own() {
    let host = Host::detect();
    let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let [plain, first, second] = [
        look(None, &host).unwrap(),
        look(Headstart::begin(), &host).unwrap(),
        look(Headstart::begin(), &host).unwrap(),
    ];
    let told = |record: &RunRecord| {
        assert_eq!(record.exit_code, Some(0), "{record:?}");
        let (cookie, rest) = record.stdout.data.split_once('\n').unwrap();
        (cookie.to_owned(), rest.to_owned())
    };
    let [plain, first, second] = [told(&plain), told(&first), told(&second)];
    assert_eq!(first.1, plain.1);
    assert_eq!(second.1, plain.1);
    assert!(first.0 != plain.0 && first.0 != second.0 && second.0 != plain.0);
    // Whoever made them has come back.
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), own);
}

#[test]
fn a_run_that_has_no_use_for_it_goes_without() {
    let host = Host::detect();
    let request = Request {
        backend: BackendName::Host,
        ..Request::command(["true"])
    };
    let quarters = Quarters::New(Headstart::begin());
    let grant = Grant::new(request).unwrap();
    let record = pipeline::run_in(quarters, grant, Streams::kept(4096), &host).unwrap();
    assert_eq!(record.exit_code, Some(0), "{record:?}");
    drop(Headstart::begin());
}
