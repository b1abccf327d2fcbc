//! The heap of a process that lives for months and has a new thread for each run.

/// Few arenas: with one for every thread, each keeps what it once needed, and a process grows by what is free in all of them.
pub fn use_few_arenas() {
    const FEW: libc::c_int = 2;
    // SAFETY: a number only; what cannot be set stays as it is.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, FEW) };
}

/// Gives free pages back to the kernel.
pub fn give_back() {
    // SAFETY: nothing that is in use is touched.
    unsafe { libc::malloc_trim(0) };
}
