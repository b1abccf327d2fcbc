//! The shape of a policy entry, as the generated table holds it, and the variants a host may ask for.

/// A host's shortcoming that makes the policy stricter, or a promise that does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// No memory cgroup: memory nobody maps would go uncounted, and shared memory is counted when it is asked for.
    NoShm,
    /// No CPU cgroup: affinity alone holds the CPU limit.
    PinCpus,
    /// The run must give the same each time: what would differ is asked about.
    Fixed,
}

impl Variant {
    const fn bit(self) -> u8 {
        match self {
            Self::NoShm => 1,
            Self::PinCpus => 2,
            Self::Fixed => 4,
        }
    }
}

/// A set of variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variants(u8);

impl Variants {
    pub const NONE: Self = Self(0);

    #[must_use]
    pub const fn with(self, variant: Variant) -> Self {
        Self(self.0 | variant.bit())
    }

    #[must_use]
    pub const fn contains(self, variant: Variant) -> bool {
        self.0 & variant.bit() != 0
    }
}

/// One system call of the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) decision: Decision,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Decision {
    Allow,
    /// The arguments decide.
    Check(&'static Check, Refusal),
    Deny(Refusal),
}

/// How a refused call is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) errno: u16,
    pub(super) noise: Noise,
    pub(super) reason: &'static str,
}

/// Whether a refusal is worth a line in the run's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noise {
    Recorded,
    /// Ordinary programs try this call and do without it.
    Quiet,
}

/// Ordered rules: the first that matches decides, `otherwise` when none does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) rules: &'static [Rule],
    pub(super) otherwise: Verdict,
}

/// Matches when all its tests hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) when: &'static [Test],
    pub(super) then: Verdict,
}

/// Holds when the argument's low 32 bits, ANDed with `mask`, lie in one of the inclusive `ranges`, which ascend and do not touch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) argument: u8,
    pub(super) mask: u32,
    pub(super) ranges: &'static [(u32, u32)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Deny,
    /// Refused as `Noise::Quiet`, whatever the entry says.
    DenyQuietly,
}

/// Calls a variant refuses on top of the table: whatever their arguments, or as `check` says.
#[derive(Debug)]
pub(super) struct Restriction {
    pub(super) variant: Variant,
    pub(super) numbers: &'static [u32],
    pub(super) check: Option<&'static Check>,
    pub(super) refusal: Refusal,
}
