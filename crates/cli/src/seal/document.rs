//! Reads the documents that people name on the command line, JSON and source code: bounded, whatever is behind the name. It does not look into them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::strict_json::MAX_BYTES;
use rustix::fs::OFlags;

use crate::failure::{Failure, visible};

/// What was read, and what to call it in messages.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// How long a named pipe may be without anybody who writes to it.
const WRITER_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Document {
    /// Reads a file, or standard input for `-`.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            let name = "standard input".to_owned();
            let bytes = bounded(std::io::stdin().lock(), &name)?;
            return Ok(Self { name, bytes });
        }
        // A name with control characters must not reach the terminal as they are.
        let name = format!("`{}`", visible(&path.to_string_lossy()));
        let bytes = read_path(path, &name)?;
        Ok(Self { name, bytes })
    }
}

fn read_path(path: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error| unreadable(name, &error);
    // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = File::options()
        .read(true)
        .custom_flags(nonblock)
        .open(path)
        .map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.is_dir() {
        return Err(Failure::new(
            ErrorCode::InputUnreadable,
            format!("{name}: is a directory; name a file"),
        ));
    }
    if found.is_file() && found.len() > bound() {
        return Err(too_large(name, &format!("is {} bytes long", found.len())));
    }
    let mut first = Vec::new();
    if found.file_type().is_fifo() {
        first = await_writer(&mut file, name)?;
    }
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(|errno| failed(errno.into()))?;
    bounded(first.as_slice().chain(file), name)
}

/// The first bytes of a pipe. It may be empty for as long as somebody has it open for writing, as `<(command)` does; without anybody there
/// is a bound.
fn await_writer(file: &mut File, name: &str) -> Result<Vec<u8>, Failure> {
    let until = Instant::now() + WRITER_WITHIN;
    let mut buffer = [0; 4096];
    loop {
        match file.read(&mut buffer) {
            Ok(0) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            Ok(0) => {
                let message = format!(
                    "{name}: is a pipe that nobody writes to; start the writer first, or name a file"
                );
                return Err(Failure::new(ErrorCode::InputUnreadable, message));
            }
            Ok(read) => return Ok(buffer.get(..read).unwrap_or_default().to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Vec::new()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(name, &error)),
        }
    }
}

/// Never more than the bound and one byte, however much there is.
fn bounded(source: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source
        .take(bound() + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, &error))?;
    if bytes.len() > MAX_BYTES {
        return Err(too_large(name, "goes on"));
    }
    Ok(bytes)
}

fn bound() -> u64 {
    u64::try_from(MAX_BYTES).unwrap_or(u64::MAX)
}

/// The same code as the reader of JSON gives to a text that is too large.
fn too_large(name: &str, how: &str) -> Failure {
    let message =
        format!("{name}: {how}; at most {MAX_BYTES} bytes are read, put large data into files");
    Failure::new(ErrorCode::InputMalformedJson, message)
}

fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::io(
        ErrorCode::InputUnreadable,
        &format!("cannot read {name}"),
        error,
    )
}
