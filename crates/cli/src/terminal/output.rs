//! Standard output, for what is longer than one text. A reader that has gone away ends the work quietly.

use std::io::{self, Write};

use cofferdam_contract::codes::ErrorCode;
use serde::Serialize;

use crate::failure::Failure;
use crate::seal::pretty;

/// Whether somebody still reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Writes and flushes.
pub(crate) fn write(out: &mut impl Write, bytes: &[u8]) -> Result<Reader, Failure> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::io(
            ErrorCode::OutputWriteFailed,
            "cannot write to standard output",
            &error,
        )),
    }
}

/// To standard output.
pub(crate) fn write_stdout(bytes: &[u8]) -> Result<Reader, Failure> {
    write(&mut io::stdout().lock(), bytes)
}

/// A remark for a person; never part of the result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// One JSON document with its schema first.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a, T> {
    pub(crate) schema: &'static str,
    #[serde(flatten)]
    pub(crate) content: &'a T,
}

/// The same, written out. What has no names of its own to stand beside the schema is given one by the caller.
pub(crate) fn document(schema: &'static str, content: &impl Serialize) -> Result<String, Failure> {
    pretty(&Document { schema, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full(io::ErrorKind);

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_is_gone_is_no_failure_and_a_full_disk_is() {
        let gone = write(&mut Full(io::ErrorKind::BrokenPipe), b"x");
        assert!(matches!(gone, Ok(Reader::Gone)));
        let full = write(&mut Full(io::ErrorKind::StorageFull), b"x");
        assert!(
            format!("{full:?}").contains("OutputWriteFailed"),
            "{full:?}"
        );
    }
}
