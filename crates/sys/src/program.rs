//! What `execve` needs, in the form that it needs: made by the supervisor before anything is cloned, and read where it lies, since whoever executes it
//! shares or has copied the supervisor's memory.

use std::ffi::{CStr, CString};

/// A program to execute.
#[derive(Debug)]
pub struct Program {
    cwd: CString,
    /// Paths to try in order: what PATH gave for a bare name.
    candidates: Vec<CString>,
    argv: Table,
    env: Table,
}

/// Strings and the null-terminated table of their addresses.
#[derive(Debug)]
struct Table {
    /// Owns what `addresses` points to; never changed.
    strings: Vec<CString>,
    addresses: Vec<*const libc::c_char>,
}

// SAFETY: the addresses lead to the heap memory of the strings beside them, which move and change with nothing.
unsafe impl Send for Table {}
// SAFETY: as above; nothing is ever written through them.
unsafe impl Sync for Table {}

impl Program {
    pub fn new(
        cwd: CString,
        candidates: Vec<CString>,
        argv: Vec<CString>,
        env: Vec<CString>,
    ) -> Self {
        Self {
            cwd,
            candidates,
            argv: Table::new(argv),
            env: Table::new(env),
        }
    }

    /// Directory, how many arguments, the arguments, the environment.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Vec<u8>> {
        let count = self.argv.strings.len().to_string().into_bytes();
        let tables = self.argv.strings.iter().chain(&self.env.strings);
        [self.cwd.to_bytes().to_vec(), count]
            .into_iter()
            .chain(tables.map(|text| text.to_bytes().to_vec()))
    }

    pub(crate) fn cwd(&self) -> &CStr {
        &self.cwd
    }

    pub(crate) fn candidates(&self) -> &[CString] {
        &self.candidates
    }

    pub(crate) fn argv(&self) -> *const *const libc::c_char {
        self.argv.addresses.as_ptr()
    }

    pub(crate) fn env(&self) -> *const *const libc::c_char {
        self.env.addresses.as_ptr()
    }
}

impl Table {
    fn new(strings: Vec<CString>) -> Self {
        let addresses = strings
            .iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        Self { strings, addresses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_every_string_and_end_with_null() {
        let table = Table::new(vec![c"one".to_owned(), c"".to_owned()]);
        let [one, empty, end] = table.addresses[..] else {
            panic!("{table:?}")
        };
        // SAFETY: the first two lead to strings that `table` owns.
        let texts = unsafe { [CStr::from_ptr(one), CStr::from_ptr(empty)] };
        assert_eq!((texts, end.is_null()), ([c"one", c""], true));
    }
}
