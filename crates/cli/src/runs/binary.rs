//! What is not text is shown as its size and a beginning of it.

use cofferdam_store::sift::binary;

pub(crate) use binary::is_binary;

pub(crate) fn preview(bytes: &[u8]) -> String {
    let total = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    binary::preview(bytes, total)
}
