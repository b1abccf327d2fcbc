//! Whose the caches are.

/// Decides whether anything may write to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shelf {
    /// The caller's own: written to where something is fetched or installed.
    Own,
    /// Of many who do not trust each other: never written to.
    Shared,
}
