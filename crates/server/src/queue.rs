//! Whose turn it is: round robin between tenants, and within a tenant by priority, then by arrival. Pure: holds what waits and decides the order, nothing else.

use std::collections::{BTreeMap, VecDeque};

/// What waits, at most `capacity` of it.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    capacity: usize,
    waiting: usize,
    arrivals: u64,
    /// Tenants with something waiting; the first is next.
    turns: VecDeque<String>,
    tenants: BTreeMap<String, BTreeMap<Place, T>>,
}

/// Smaller comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Negated, so that a high priority is small.
    rank: i16,
    arrival: u64,
}

/// What is to be done with the one whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Take,
    /// Its tenant has enough; the next tenant may go.
    PassOver,
    /// Everybody waits for it: what is large would otherwise wait for ever.
    Wait,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            waiting: 0,
            arrivals: 0,
            turns: VecDeque::new(),
            tenants: BTreeMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    pub(crate) fn waiting_for(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).map_or(0, BTreeMap::len)
    }

    /// Whether one more may wait beside those that have been promised a place.
    pub(crate) fn has_room(&self, promised: usize) -> bool {
        self.waiting + promised < self.capacity
    }

    /// For one that found room, or has had its place before.
    pub(crate) fn push(&mut self, tenant: &str, priority: i8, item: T) {
        self.waiting += 1;
        self.arrivals += 1;
        let place = Place {
            rank: -i16::from(priority),
            arrival: self.arrivals,
        };
        let of_tenant = self.tenants.entry(tenant.to_owned()).or_default();
        if of_tenant.is_empty() {
            self.turns.push_back(tenant.to_owned());
        }
        of_tenant.insert(place, item);
    }

    /// The next one that may go; `judge` is asked about the first of each tenant in turn.
    pub(crate) fn pop(&mut self, mut judge: impl FnMut(&str, &T) -> Verdict) -> Option<T> {
        for turn in 0..self.turns.len() {
            let tenant = self.turns.get(turn)?.clone();
            let of_tenant = self.tenants.get_mut(&tenant)?;
            let first = of_tenant.first_entry()?;
            match judge(&tenant, first.get()) {
                Verdict::PassOver => {}
                Verdict::Wait => return None,
                Verdict::Take => {
                    let item = first.remove();
                    self.waiting -= 1;
                    self.turns.remove(turn);
                    if of_tenant.is_empty() {
                        self.tenants.remove(&tenant);
                    } else {
                        self.turns.push_back(tenant);
                    }
                    return Some(item);
                }
            }
        }
        None
    }

    /// Takes out everything that `wanted` says, wherever it stands.
    pub(crate) fn remove(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for of_tenant in self.tenants.values_mut() {
            let places: Vec<Place> = of_tenant
                .iter()
                .filter(|(_, item)| wanted(item))
                .map(|(place, _)| *place)
                .collect();
            removed.extend(places.iter().filter_map(|place| of_tenant.remove(place)));
        }
        self.waiting -= removed.len();
        self.tenants.retain(|_, of_tenant| !of_tenant.is_empty());
        let tenants = &self.tenants;
        self.turns.retain(|tenant| tenants.contains_key(tenant));
        removed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.tenants.values().flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut Queue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop(|_, _| Verdict::Take)).collect()
    }

    #[test]
    fn tenants_take_turns_whatever_one_of_them_sends() {
        let mut queue = Queue::new(10);
        for item in ["a1", "a2", "a3"] {
            queue.push("a", 0, item);
        }
        queue.push("b", 0, "b1");
        queue.push("c", 9, "c1");
        queue.push("b", 0, "b2");
        assert_eq!(queue.len(), 6);
        assert_eq!(drain(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn within_a_tenant_priority_and_then_arrival_decide() {
        let mut queue = Queue::new(10);
        queue.push("a", 0, "first");
        queue.push("a", -128, "last");
        queue.push("a", 5, "urgent");
        queue.push("a", 0, "second");
        assert_eq!(drain(&mut queue), ["urgent", "first", "second", "last"]);
    }

    #[test]
    fn no_more_than_the_capacity_waits() {
        let mut queue = Queue::new(2);
        queue.push("a", 0, "1");
        queue.push("b", 0, "2");
        assert!(!queue.has_room(0));
        assert_eq!(queue.remove(|item| *item == "1"), ["1"]);
        assert!(queue.has_room(0) && !queue.has_room(1));
        queue.push("c", 0, "3");
        assert_eq!(drain(&mut queue), ["2", "3"]);
    }

    #[test]
    fn a_tenant_with_enough_is_passed_over_and_a_large_one_is_waited_for() {
        let mut queue = Queue::new(10);
        queue.push("busy", 0, "b");
        queue.push("large", 0, "l");
        queue.push("small", 0, "s");
        let judge = |tenant: &str, _: &&str| match tenant {
            "busy" => Verdict::PassOver,
            "large" => Verdict::Wait,
            _ => Verdict::Take,
        };
        assert_eq!(queue.pop(judge), None);
        assert_eq!(queue.remove(|item| *item == "l"), ["l"]);
        assert_eq!(queue.pop(judge), Some("s"));
        assert_eq!(queue.pop(judge), None);
        assert_eq!(queue.waiting_for("busy"), 1);
    }
}
