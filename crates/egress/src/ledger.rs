//! What went out and what was turned away, written down as it happens. Bounded: a flood is counted, not kept.

use std::collections::BTreeMap;
use std::time::Instant;

use cofferdam_contract::network_record::{NetworkEvent, NetworkOutcome, NetworkRecord, NetworkWay};
use cofferdam_contract::record::{Denial, DenialKind};

use crate::bounds;

#[derive(Debug)]
pub(crate) struct Ledger {
    since: Instant,
    record: NetworkRecord,
    /// What was denied, and how often.
    denied: BTreeMap<String, u64>,
    denied_beyond: u64,
    /// Answers about names are told once each.
    told: BTreeMap<String, NetworkOutcome>,
}

/// One connection that is written down; `None` when there are too many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry(Option<usize>);

/// Who is spoken to, as a person reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            record: NetworkRecord::default(),
            denied: BTreeMap::new(),
            denied_beyond: 0,
            told: BTreeMap::new(),
        }
    }

    /// A name was asked for. The same answer again is no news, but a denial is counted each time.
    pub(crate) fn name(&mut self, name: &str, refused: Option<&str>) {
        let outcome = match refused {
            None => NetworkOutcome::Allowed,
            Some(_) => {
                self.deny(format!("the name {name}"));
                NetworkOutcome::Denied
            }
        };
        if self.told.get(name) == Some(&outcome) {
            return;
        }
        if self.told.len() < bounds::NAMES {
            self.told.insert(name.to_owned(), outcome);
        }
        self.add(NetworkEvent {
            why: refused.map(str::to_owned),
            ..self.event(outcome, NetworkWay::Name, name.to_owned(), None)
        });
    }

    pub(crate) fn denied(&mut self, way: NetworkWay, peer: &Peer, why: &str) {
        self.deny(format!("{}:{}", peer.host, peer.port));
        self.add(NetworkEvent {
            why: Some(why.to_owned()),
            ..self.event(
                NetworkOutcome::Denied,
                way,
                peer.host.clone(),
                Some(peer.port),
            )
        });
    }

    pub(crate) fn failed(&mut self, way: NetworkWay, peer: &Peer, why: &str) {
        self.add(NetworkEvent {
            why: Some(why.to_owned()),
            ..self.event(
                NetworkOutcome::Failed,
                way,
                peer.host.clone(),
                Some(peer.port),
            )
        });
    }

    /// A connection stands. It is written down at once, so that one which lasts until the end is there too.
    pub(crate) fn connected(&mut self, way: NetworkWay, peer: &Peer, address: String) -> Entry {
        let index = self.record.events.len();
        let kept = self.add(NetworkEvent {
            address: Some(address),
            ..self.event(
                NetworkOutcome::Allowed,
                way,
                peer.host.clone(),
                Some(peer.port),
            )
        });
        Entry(kept.then_some(index))
    }

    /// What it carried, as it goes.
    pub(crate) fn carried(&mut self, entry: Entry, sent: u64, received: u64) {
        self.record.sent_bytes += sent;
        self.record.received_bytes += received;
        if let Some(event) = entry.0.and_then(|index| self.record.events.get_mut(index)) {
            event.sent_bytes += sent;
            event.received_bytes += received;
        }
    }

    /// A connection that stood turned out to be for somebody else.
    pub(crate) fn turned_down(&mut self, entry: Entry, peer: &Peer, why: &str) {
        self.deny(format!("{}:{}, since {why}", peer.host, peer.port));
        if let Some(event) = entry.0.and_then(|index| self.record.events.get_mut(index)) {
            event.outcome = NetworkOutcome::Denied;
            event.why = Some(why.to_owned());
        }
    }

    pub(crate) fn into_parts(self) -> (NetworkRecord, Vec<Denial>) {
        let denial = |(what, count)| Denial {
            kind: DenialKind::Network,
            what,
            count,
        };
        let beyond =
            (self.denied_beyond > 0).then(|| ("other hosts".to_owned(), self.denied_beyond));
        let denials = self.denied.into_iter().chain(beyond).map(denial).collect();
        (self.record, denials)
    }

    fn deny(&mut self, what: String) {
        let has_room = self.denied.len() < bounds::DENIALS;
        match self.denied.get_mut(&what) {
            Some(count) => *count += 1,
            None if has_room => {
                self.denied.insert(what, 1);
            }
            None => self.denied_beyond += 1,
        }
    }

    fn event(
        &self,
        outcome: NetworkOutcome,
        way: NetworkWay,
        host: String,
        port: Option<u16>,
    ) -> NetworkEvent {
        NetworkEvent {
            at_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            outcome,
            way,
            host,
            port,
            address: None,
            sent_bytes: 0,
            received_bytes: 0,
            why: None,
        }
    }

    fn add(&mut self, event: NetworkEvent) -> bool {
        let has_room = self.record.events.len() < bounds::EVENTS;
        match has_room {
            true => self.record.events.push(event),
            false => self.record.left_out += 1,
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_kept() {
        let mut ledger = Ledger::new();
        for n in 0..10_000 {
            ledger.name(&format!("{n}.evil.example"), Some("it is not on the list"));
        }
        let (record, denials) = ledger.into_parts();
        assert_eq!(record.events.len(), bounds::EVENTS);
        assert_eq!(record.left_out, 10_000 - bounds::EVENTS as u64);
        assert_eq!(denials.len(), bounds::DENIALS + 1);
        assert_eq!(
            denials.iter().map(|denial| denial.count).sum::<u64>(),
            10_000
        );
    }

    #[test]
    fn a_name_is_told_once_and_a_connection_with_what_it_carried() {
        let mut ledger = Ledger::new();
        let peer = Peer {
            host: "a.example".to_owned(),
            port: 443,
        };
        ledger.name("a.example", None);
        ledger.name("a.example", None);
        let entry = ledger.connected(NetworkWay::Direct, &peer, "192.0.2.7:443".to_owned());
        ledger.carried(entry, 10, 100);
        ledger.carried(entry, 1, 2);
        let (record, denials) = ledger.into_parts();
        assert_eq!(record.events.len(), 2);
        assert_eq!((record.sent_bytes, record.received_bytes), (11, 102));
        assert_eq!(
            (record.events[1].sent_bytes, record.events[1].received_bytes),
            (11, 102)
        );
        assert!(denials.is_empty());
    }
}
