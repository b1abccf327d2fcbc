//! The functions that the kernel puts into every program, by which it reads clocks without a call. Overwritten in a program's own copy, they make the call, and a call can be answered. The image
//! is the same in every process of a running kernel, so where they lie is read from our own.

use std::sync::OnceLock;

use rustix::io::Errno;

/// One function, replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stub {
    /// From the beginning of the image.
    pub offset: u64,
    pub code: [u8; STUB],
}

const STUB: usize = 8;

/// For each function of the image that tells what differs from run to run: code that asks the kernel.
///
/// # Errors
/// Where this process has no such image, or one that is not understood.
pub fn stubs() -> Result<&'static [Stub], Errno> {
    static STUBS: OnceLock<Result<Vec<Stub>, Errno>> = OnceLock::new();
    let found = STUBS.get_or_init(|| stubs_of(&own_image()?).ok_or(Errno::NOEXEC));
    found.as_ref().map(Vec::as_slice).map_err(|errno| *errno)
}

/// Read as a file: no pointer into it is ever made.
fn own_image() -> Result<Vec<u8>, Errno> {
    use std::os::unix::fs::FileExt as _;
    let failed = |_| Errno::NOENT;
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(failed)?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split(' ').next());
    let (from, to) = range
        .and_then(|range| range.split_once('-'))
        .ok_or(Errno::NOENT)?;
    let number = |hex| u64::from_str_radix(hex, 16).map_err(|_| Errno::NOENT);
    let (from, to) = (number(from)?, number(to)?);
    let size = usize::try_from(to.saturating_sub(from)).map_err(|_| Errno::NOENT)?;
    let mut image = vec![0; size.min(1 << 20)];
    let memory = std::fs::File::open("/proc/self/mem").map_err(failed)?;
    memory.read_exact_at(&mut image, from).map_err(failed)?;
    Ok(image)
}

/// The dynamic symbols of a 64-bit ELF image, as its table of sections has them.
fn stubs_of(image: &[u8]) -> Option<Vec<Stub>> {
    const DYNAMIC_SYMBOLS: u32 = 11;
    if image.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let sections = word(image, 0x28)?;
    let (size, count) = (half(image, 0x3a)?, half(image, 0x3c)?);
    let section = |index: u64| sections.checked_add(index.checked_mul(u64::from(size))?);
    let symbols = (0..u64::from(count))
        .filter_map(section)
        .find(|at| small(image, at + 4) == Some(DYNAMIC_SYMBOLS))?;
    let names = word(
        image,
        section(u64::from(small(image, symbols + 0x28)?))? + 0x18,
    )?;
    let (from, bytes) = (word(image, symbols + 0x18)?, word(image, symbols + 0x20)?);
    let mut stubs: Vec<Stub> = Vec::new();
    for at in (0..bytes / 24).map(|index| from.saturating_add(index * 24)) {
        let name = text(image, names.checked_add(u64::from(small(image, at)?))?)?;
        let Some(code) = code(name) else { continue };
        let (offset, length) = (word(image, at + 8)?, word(image, at + 16)?);
        if length < STUB as u64 || offset.checked_add(length)? > image.len() as u64 {
            return None;
        }
        stubs.push(Stub { offset, code });
    }
    // An image without the clock is none that we know.
    let has_clock = stubs
        .iter()
        .any(|stub| stub.code == call(libc::SYS_clock_gettime));
    has_clock.then_some(stubs)
}

fn code(name: &[u8]) -> Option<[u8; STUB]> {
    Some(match name {
        b"__vdso_clock_gettime" => call(libc::SYS_clock_gettime),
        b"__vdso_gettimeofday" => call(libc::SYS_gettimeofday),
        b"__vdso_time" => call(libc::SYS_time),
        b"__vdso_getcpu" => call(libc::SYS_getcpu),
        // It shares its state with the C library, which asks whether it may: no (mov $-ENOSYS,%rax; ret).
        b"__vdso_getrandom" => [0x48, 0xc7, 0xc0, 0xda, 0xff, 0xff, 0xff, 0xc3],
        _ => return None,
    })
}

/// mov $number,%eax; syscall; ret. The arguments are where the call wants them.
fn call(number: libc::c_long) -> [u8; STUB] {
    let [a, b, ..] = number.to_le_bytes();
    [0xb8, a, b, 0, 0, 0x0f, 0x05, 0xc3]
}

fn text(image: &[u8], at: u64) -> Option<&[u8]> {
    let rest = image.get(usize::try_from(at).ok()?..)?;
    rest.split(|byte| *byte == 0).next()
}

fn word(image: &[u8], at: u64) -> Option<u64> {
    field(image, at).map(u64::from_le_bytes)
}

fn small(image: &[u8], at: u64) -> Option<u32> {
    field(image, at).map(u32::from_le_bytes)
}

fn half(image: &[u8], at: u64) -> Option<u16> {
    field(image, at).map(u16::from_le_bytes)
}

fn field<const N: usize>(image: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    image.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_found_in_the_image_of_this_kernel_and_no_two_stubs_overlap() {
        let image = own_image().unwrap();
        let stubs = stubs_of(&image).unwrap();
        assert!(stubs.len() >= 4, "{stubs:?}");
        let mut offsets: Vec<u64> = stubs.iter().map(|stub| stub.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), stubs.len());
        assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] >= 8));
    }

    #[test]
    fn an_image_that_was_cut_short_or_is_something_else_is_refused() {
        let image = own_image().unwrap();
        for length in 0..image.len() {
            let found = stubs_of(&image[..length]);
            assert!(found.is_none_or(|stubs| stubs.len() >= 4), "{length}");
        }
        assert_eq!(stubs_of(&[0xff; 4096]), None);
    }
}
