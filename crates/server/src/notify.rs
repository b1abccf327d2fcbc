//! Tells systemd how it stands with us, where it wants to know (`NOTIFY_SOCKET`). One datagram, no reply.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// `READY=1`, `STOPPING=1`. Trouble here must not stop the daemon.
pub(crate) fn tell_best_effort(state: &str) {
    let Some(name) = std::env::var("NOTIFY_SOCKET")
        .ok()
        .filter(|name| !name.is_empty())
    else {
        return;
    };
    if let Err(error) = send(&name, state) {
        tracing::warn!(%error, "systemd could not be told");
    }
}

fn send(name: &str, state: &str) -> std::io::Result<()> {
    let to = match name.strip_prefix('@') {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        send(path.to_str().unwrap(), "READY=1").unwrap();
        let mut buffer = [0; 32];
        let got = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..got], b"READY=1");

        let name = format!("cofferdam-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        send(&format!("@{name}"), "STOPPING=1").unwrap();
        let got = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..got], b"STOPPING=1");
    }
}
