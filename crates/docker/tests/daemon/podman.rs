//! The same by way of a Podman socket.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use cofferdam_contract::ending::{Ending, SetupFailureKind, StopCause};
use cofferdam_contract::network::Network;
use cofferdam_contract::request::{Grant, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_docker::{Endpoint, Settings};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::Input;
use cofferdam_testkit::docker::IMAGE;
use cofferdam_testkit::podman::Podman;

use crate::support::{exited, mib, request, script, streams, try_run, with_workspace};

fn settings(podman: &Podman) -> Settings {
    Settings {
        endpoint: Endpoint::Unix(podman.socket()),
        image: Some(IMAGE.to_owned()),
        ..Settings::default()
    }
}

#[test]
fn a_podman_socket_does_the_same() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let settings = settings(&podman);
    let run = |request| try_run(request, &settings).unwrap();
    let look = "id -u; ls /sys/class/net; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; \
                (echo x >/file) 2>/dev/null; echo y >/tmp/file; echo err >&2; exit 3";
    let record = run(script(look));
    exited(&record, 3);
    let expected = "1000\nlo\nCapBnd:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n";
    assert_eq!(
        (&*record.stdout.data, &*record.stderr.data),
        (expected, "err\n")
    );

    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "x").unwrap();
    let change = script("cat old; rm old; echo new >new; mkdir sub; echo y >sub/file");
    let record = run(with_workspace(
        change,
        dir.path(),
        WorkspaceAccess::ReadWrite,
    ));
    exited(&record, 0);
    assert_eq!(record.stdout.data, "x");
    assert_eq!(fs::read_to_string(dir.path().join("new")).unwrap(), "new\n");
    assert_eq!(
        fs::read_to_string(dir.path().join("sub/file")).unwrap(),
        "y\n"
    );
    assert!(!dir.path().join("old").exists());

    let mut hog = script("head -c 200m /dev/zero | tail");
    hog.limits.memory = mib(32);
    let limit = Bytes::new(32 << 20);
    assert_eq!(
        run(hog).ending,
        Ending::Stopped(StopCause::Memory { limit })
    );
    let mut late = script("echo hello; sleep 1000");
    let limit = Duration::from_secs(5);
    late.limits.wall_time = Cap::AtMost(limit);
    let record = run(late);
    assert_eq!(
        record.ending,
        Ending::Stopped(StopCause::WallTime { limit })
    );
    assert_eq!(record.stdout.data, "hello\n");

    let absent = run(request(&["no-such-program"])).ending;
    let kind = SetupFailureKind::ProgramNotFound;
    assert!(
        matches!(&absent, Ending::NeverStarted(failure) if failure.kind == kind),
        "{absent:?}"
    );
    let grant = Grant::new(request(&["wc", "-c"])).unwrap();
    let given = streams(Input::Bytes(vec![b'x'; 100_000]));
    let record = cofferdam_docker::run(grant, given, &Host::detect(), &settings).unwrap();
    assert_eq!(record.stdout.data, "100000\n");
    podman.assert_clean();
}

#[test]
fn a_container_of_podmans_reaches_what_is_allowed_and_nothing_else() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let settings = settings(&podman);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n");
        }
    });
    let mut fetch = script(&format!(
        "wget -q -O - http://localhost:{port}/; wget -q -O - http://elsewhere.example/ 2>/dev/null || echo no; \
         unset http_proxy; wget -q -O - http://elsewhere.example:{port}/ 2>/dev/null || echo no; ls /sys/class/net"
    ));
    let mut network = Network::read(&format!("allow=localhost:{port}")).unwrap();
    if let Network::Allowed(allowance) = &mut network {
        allowance.nearby.loopback = true;
    }
    fetch.network = network;
    let record = try_run(fetch, &settings).unwrap();
    exited(&record, 0);
    assert_eq!(record.stdout.data, "hello\nno\nno\nlo\n", "{record:#?}");
    let events = record.network.unwrap().events;
    let hosts: Vec<&str> = events.iter().map(|event| event.host.as_str()).collect();
    assert_eq!(
        hosts,
        ["localhost", "elsewhere.example", "elsewhere.example"]
    );
    podman.assert_clean();
}
