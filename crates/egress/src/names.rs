//! Which address was given out for which name. The addresses are of a range that is for measurements between networks and never routed, so that one of them can only mean the name that it was given for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use crate::bounds;

/// Where the resolver is to be found inside.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The first address that is given to a name.
const FIRST: u32 = Ipv4Addr::new(198, 18, 1, 0).to_bits();

#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<String, Ipv4Addr>,
    by_place: Vec<String>,
}

impl Names {
    /// The address of a name, the same each time; `None` when too many have been asked for.
    pub(crate) fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_name.get(name) {
            return Some(*address);
        }
        if self.by_place.len() >= bounds::NAMES {
            return None;
        }
        let place = u32::try_from(self.by_place.len()).ok()?;
        let address = Ipv4Addr::from_bits(FIRST.checked_add(place)?);
        self.by_name.insert(name.to_owned(), address);
        self.by_place.push(name.to_owned());
        Some(address)
    }

    /// The name that an address was given for.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<&str> {
        let IpAddr::V4(v4) = address else {
            return None;
        };
        let place = v4.to_bits().checked_sub(FIRST)?;
        let place = usize::try_from(place).ok()?;
        self.by_place.get(place).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_means_the_name_that_it_was_given_for() {
        let mut names = Names::default();
        let a = names.address_of("a.example").unwrap();
        let b = names.address_of("b.example").unwrap();
        assert_ne!(a, b);
        assert_eq!(names.address_of("a.example"), Some(a));
        assert_eq!(names.name_of(a.into()), Some("a.example"));
        assert_eq!(names.name_of(b.into()), Some("b.example"));
        assert_eq!(names.name_of(RESOLVER.into()), None);
        assert_eq!(names.name_of("10.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn a_flood_of_names_ends() {
        let mut names = Names::default();
        for n in 0..bounds::NAMES {
            let address = names.address_of(&format!("{n}.example")).unwrap();
            let [a, b, ..] = address.octets();
            assert_eq!((a, b & 0xfe), (198, 18));
        }
        assert_eq!(names.address_of("one-more.example"), None);
        assert!(names.address_of("7.example").is_some());
    }
}
