//! What of a program's output may be kept: secrets out, length bounded, binary data named as such. Pure code: nothing here reads or writes a file.

pub mod binary;
pub mod redact;
pub mod truncate;
