//! The settings of the daemon's network: what a run that asks for it gets at most.

use cofferdam_contract::address::Nearby;
use cofferdam_contract::network::{Allowance, Network};
use cofferdam_contract::problem::Problems;

use super::serve_key::ServeKey;

/// Reads one of them. What may be reached comes first; without it there is nothing that the others could be about.
pub(super) fn put(key: ServeKey, text: &str, network: &mut Network) -> Result<(), String> {
    let mut unused = Allowance::new(cofferdam_contract::network::Hosts::Any);
    let allowance = match network {
        Network::Allowed(allowance) => allowance,
        Network::Denied => &mut unused,
    };
    match key {
        ServeKey::NetPrivate => allowance.nearby = nearby(text)?,
        ServeKey::NetProxy => allowance.upstream = Some(text.parse()?),
        _ => *network = text.parse().map_err(|bad: Problems| bad.to_string())?,
    }
    Ok(())
}

/// Which addresses that are not public may be reached.
fn nearby(text: &str) -> Result<Nearby, String> {
    let (private, loopback) = match text {
        "refuse" => (false, false),
        "allow" => (true, false),
        "loopback" => (true, true),
        _ => return Err("is `refuse`, `allow`, or `loopback`".to_owned()),
    };
    Ok(Nearby { private, loopback })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_what_was_said_of_it() {
        let mut network = Network::Denied;
        put(ServeKey::NetPrivate, "loopback", &mut network).unwrap();
        assert_eq!(network, Network::Denied);
        put(ServeKey::Net, "allow=*.example.org", &mut network).unwrap();
        put(ServeKey::NetPrivate, "allow", &mut network).unwrap();
        put(
            ServeKey::NetProxy,
            "http://proxy.example.org:3128",
            &mut network,
        )
        .unwrap();
        let Network::Allowed(allowance) = &network else {
            panic!("{network:?}");
        };
        assert!(allowance.nearby.private && !allowance.nearby.loopback);
        assert_eq!(allowance.upstream.as_ref().unwrap().port, 3128);
        for (key, bad) in [
            (ServeKey::Net, "some"),
            (ServeKey::NetPrivate, "yes"),
            (ServeKey::NetProxy, "proxy"),
        ] {
            assert!(put(key, bad, &mut network).is_err(), "{bad}");
        }
    }
}
