//! The most that one run may ask for of what the memory budget and the longest time do not hold: disk, processes, open files. What a client names itself is refused above it; what it
//! did not name is lowered, because nobody asked for it.

use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::Problem;
use cofferdam_contract::units::{Bytes, Cap};

/// What a run gets at most, whoever sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// Scratch space, and separately the growth of a writable workspace.
    pub disk: Bytes,
    /// Processes and threads alive at once.
    pub processes: u64,
    pub open_files: u64,
}

impl Default for Ceilings {
    fn default() -> Self {
        Self {
            disk: Bytes::new(4 << 30),
            processes: 1024,
            open_files: 16_384,
        }
    }
}

/// What a client named, in the words of one kind of request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) disk: (&'a str, Option<u64>),
    pub(crate) processes: (&'a str, Option<u64>),
    pub(crate) open_files: (&'a str, Option<u64>),
}

impl Ceilings {
    /// What is above, each with its field, its value and what to ask for.
    pub(crate) fn problems(&self, named: &Named<'_>) -> Vec<Problem> {
        let pairs = [
            (named.disk, self.disk.get()),
            (named.processes, self.processes),
            (named.open_files, self.open_files),
        ];
        let above = |((field, asked), most): ((&str, Option<u64>), u64)| {
            let asked = asked.filter(|asked| *asked > most)?;
            let fix = format!("is more than this daemon allows; ask for at most {most}");
            Some(Problem::new(field, asked, fix))
        };
        pairs.into_iter().filter_map(above).collect()
    }

    /// Lowers what is above.
    pub(crate) fn lower(&self, limits: &mut Limits) {
        limits.disk = lowered(limits.disk, self.disk);
        limits.processes = lowered(limits.processes, self.processes);
        limits.open_files = lowered(limits.open_files, self.open_files);
    }
}

/// A limit that is no higher than this one.
pub(crate) fn lowered<T: Copy + Ord>(limit: Cap<T>, most: T) -> Cap<T> {
    Cap::AtMost(limit.at_most().map_or(most, |limit| limit.min(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Ceilings = Ceilings {
        disk: Bytes::new(1 << 20),
        processes: 10,
        open_files: 20,
    };

    #[test]
    fn what_is_named_above_the_ceiling_is_a_problem_and_what_is_at_it_is_none() {
        let named = |disk, processes, open_files| Named {
            disk: ("disk", disk),
            processes: ("processes", processes),
            open_files: ("open_files", open_files),
        };
        assert_eq!(LOW.problems(&named(None, None, None)), []);
        assert_eq!(LOW.problems(&named(Some(1 << 20), Some(10), Some(20))), []);
        let found = LOW.problems(&named(Some((1 << 20) + 1), Some(11), Some(21)));
        let fields: Vec<_> = found.iter().map(|problem| &*problem.field).collect();
        assert_eq!(fields, ["disk", "processes", "open_files"]);
        assert!(found[1].to_string().contains("at most 10"));
    }

    #[test]
    fn what_nobody_named_is_lowered_and_never_raised() {
        let mut limits = Limits {
            open_files: Cap::AtMost(9),
            disk: Cap::Unlimited,
            ..Limits::DEFAULT
        };
        LOW.lower(&mut limits);
        assert_eq!(limits.disk, Cap::AtMost(Bytes::new(1 << 20)));
        assert_eq!(limits.processes, Cap::AtMost(10));
        assert_eq!(limits.open_files, Cap::AtMost(9));
    }
}
