//! Attacks on the ways out that need names which change, and clients that are slower or stranger than any program at hand. Everything is on this machine's loopback.

use std::net::Ipv4Addr;
use std::time::Instant;

use cofferdam_contract::address::Nearby;
use cofferdam_contract::network::Network;
use cofferdam_contract::network_record::NetworkOutcome;

use super::*;
use crate::dns::question;
use crate::resolver::TestTable;

/// Gives another address each time it is asked.
#[derive(Debug)]
struct Turning {
    addresses: RefCell<Vec<IpAddr>>,
    asked: RefCell<usize>,
}

impl TestTable for Turning {
    fn look_up(&self, _name: &str) -> Vec<IpAddr> {
        *self.asked.borrow_mut() += 1;
        let mut addresses = self.addresses.borrow_mut();
        let next = addresses.remove(0);
        addresses.push(next);
        vec![next]
    }
}

fn turning(addresses: &[&str]) -> Rc<Turning> {
    let addresses = addresses.iter().map(|text| text.parse().unwrap());
    Rc::new(Turning {
        addresses: RefCell::new(addresses.collect()),
        asked: RefCell::new(0),
    })
}

fn world(net: &str, nearby: Nearby, table: Rc<Turning>) -> Rc<World> {
    let Network::Allowed(mut allowance) = Network::read(net).unwrap() else {
        panic!("{net}");
    };
    allowance.nearby = nearby;
    Rc::new(World::new(allowance, Resolver::Table(table)))
}

fn here() -> Nearby {
    Nearby {
        loopback: true,
        private: false,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, future)
}

/// Opens a proxy on loopback and returns where.
async fn proxy_of(world: &Rc<World>) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    attend(world, Door::Proxy(listener.into())).unwrap();
    place
}

async fn ask(place: std::net::SocketAddr, said: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(place).await.unwrap();
    client.write_all(said).await.unwrap();
    let mut answer = Vec::new();
    let whole = timeout(Duration::from_secs(60), client.read_to_end(&mut answer));
    assert!(whole.await.is_ok(), "half an answer: {answer:?}");
    answer
}

#[test]
fn a_name_that_changes_its_address_is_looked_up_once_and_only_the_checked_address_is_connected_to()
{
    block_on(async {
        // Somebody listens where the second answer leads; nobody may get there by the first.
        let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        trap.set_nonblocking(true).unwrap();
        let port = trap.local_addr().unwrap().port();
        let table = turning(&["10.0.0.1", "127.0.0.1"]);
        let world = world(
            &format!("allow=turning.example:{port}"),
            Nearby::default(),
            Rc::clone(&table),
        );
        let place = proxy_of(&world).await;
        let connect = format!("CONNECT turning.example:{port} HTTP/1.1\r\n\r\n");
        for _ in 0..4 {
            let answer = ask(place, connect.as_bytes()).await;
            assert!(
                answer.starts_with(b"HTTP/1.1 403"),
                "{}",
                String::from_utf8_lossy(&answer)
            );
        }
        assert_eq!(*table.asked.borrow(), 4);
        assert!(trap.accept().is_err());
    });
}

#[test]
fn only_names_that_may_be_reached_have_an_address() {
    let world = world(
        "allow=*.example.org,example.net",
        here(),
        turning(&["127.0.0.1"]),
    );
    let address = |name: &str, kind| {
        let answer = answer(&world, &question(name, kind)).unwrap();
        let code = answer[3] & 0xf;
        let last: [u8; 4] = *answer.last_chunk().unwrap();
        (code, (answer[7] == 1).then(|| Ipv4Addr::from(last)))
    };
    let (code, first) = address("a.example.org", 1);
    assert_eq!(code, 0);
    assert_eq!(
        world.target_of(first.unwrap().into()),
        crate::world::Target::Name("a.example.org".to_owned())
    );
    assert_eq!(address("A.Example.Org", 1), (0, first));
    assert_ne!(address("example.net", 1).1, first);
    assert_eq!(address("a.example.org", 28), (0, None));
    assert_eq!(address("a.example.org", 16), (0, None));
    for name in [
        "example.org",
        "evil.example",
        "a.example.org.evil.example",
        "secret.example.net",
    ] {
        assert_eq!(address(name, 1), (3, None), "{name}");
        assert_eq!(address(name, 16), (3, None), "{name}");
    }
}

#[test]
fn whoever_says_nothing_keeps_nobody_out_for_long() {
    block_on(async {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let world = world(
            &format!("allow=a.example:{port}"),
            here(),
            turning(&["127.0.0.1"]),
        );
        let place = proxy_of(&world).await;
        // One less than there are seats, each a byte and then silence.
        let mut silent = Vec::new();
        for _ in 1..bounds::of_run() {
            let mut client = TcpStream::connect(place).await.unwrap();
            client.write_all(b"G").await.unwrap();
            silent.push(client);
        }
        let start = Instant::now();
        let answer = ask(place, b"GET / HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with(b"HTTP/1.1 400"));
        assert!(start.elapsed() < bounds::HEAD_TIME);
        // And those who waited are shown out.
        let first = silent.first_mut().unwrap();
        let mut said = Vec::new();
        let shown_out = timeout(bounds::HEAD_TIME * 6, first.read_to_end(&mut said)).await;
        assert!(shown_out.is_ok());
        assert!(said.starts_with(b"HTTP/1.1 400"));
    });
}

#[test]
fn a_server_that_speaks_first_is_heard_first() {
    block_on(async {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let (mut client, _) = server.accept().unwrap();
            client.write_all(b"220 ready\r\n").unwrap();
            let mut said = [0u8; 64];
            let count = client.read(&mut said).unwrap();
            client.write_all(&said[..count]).unwrap();
        });
        let world = world(
            &format!("allow=mail.example:{port}"),
            here(),
            turning(&["127.0.0.1"]),
        );
        let place = proxy_of(&world).await;
        let mut client = TcpStream::connect(place).await.unwrap();
        client
            .write_all(format!("CONNECT mail.example:{port} HTTP/1.1\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut heard = Vec::new();
        let mut buffer = [0u8; 256];
        while !heard.ends_with(b"220 ready\r\n") {
            let count = client.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0);
            heard.extend(&buffer[..count]);
        }
        client.write_all(b"EHLO me\r\n").await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"EHLO me\r\n");
        let ledger = world.ledger.replace(crate::ledger::Ledger::new());
        let (record, denials) = ledger.into_parts();
        assert_eq!(denials, []);
        let told: Vec<_> = record
            .events
            .iter()
            .map(|event| (event.outcome, event.host.as_str(), event.port))
            .collect();
        assert_eq!(
            told,
            [(NetworkOutcome::Allowed, "mail.example", Some(port))]
        );
    });
}

#[test]
fn socks_takes_names_and_refuses_what_is_not_a_connection() {
    block_on(async {
        let world = world("allow=a.example:80", here(), turning(&["10.0.0.1"]));
        let place = proxy_of(&world).await;
        let greeted = [5, 1, 0];
        let refused = |code: u8| [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0].to_vec();
        let wish = |command: u8, name: &[u8]| {
            let length = u8::try_from(name.len()).unwrap();
            [&greeted, &[5, command, 0, 3, length][..], name, &[0, 80]].concat()
        };
        assert_eq!(ask(place, &wish(1, b"evil.example")).await, refused(2));
        // It leads to a private address.
        assert_eq!(ask(place, &wish(1, b"a.example")).await, refused(2));
        assert_eq!(ask(place, &wish(3, b"a.example")).await, refused(7));
        assert_eq!(ask(place, &[5, 1, 2]).await, [5, 0xff]);
        assert_eq!(
            ask(place, &[4, 1, 0, 80, 1, 2, 3, 4, 0]).await.get(..12),
            Some(&b"HTTP/1.1 400"[..])
        );
    });
}
