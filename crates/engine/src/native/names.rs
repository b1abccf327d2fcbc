//! Texts and paths in the form that the kernel wants, and why one could not be had.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use crate::error::EngineError;

pub(super) fn c_text(text: impl Into<Vec<u8>>) -> Result<CString, EngineError> {
    CString::new(text).map_err(|_| EngineError::System {
        doing: "describe the sandbox",
        errno: Errno::INVAL,
    })
}

pub(super) fn c_path(path: &Path) -> Result<CString, EngineError> {
    c_text(path.as_os_str().as_bytes())
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> EngineError {
    let errno = error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error);
    EngineError::Unreadable {
        what: "cannot open",
        path: path.display().to_string(),
        errno,
    }
}
