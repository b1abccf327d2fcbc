//! Coverage in every format; the first byte says in which. No more lines are reached than there are, and the sum is that of the files.
#![no_main]

use cofferdam_project::coverage::{CoverageFormat, Covered, Room};
use libfuzzer_sys::fuzz_target;

const FORMATS: [CoverageFormat; 3] = [
    CoverageFormat::Cobertura,
    CoverageFormat::Lcov,
    CoverageFormat::GoProfile,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let format = FORMATS[usize::from(*first) % FORMATS.len()];
    if let Ok(read) = Covered::parse(format, rest, "/workspace", &mut Room::new(100)) {
        let total: usize = read.files.iter().map(|file| file.lines.total).sum();
        assert_eq!(read.lines.total, total);
        assert!(read.files.iter().all(|file| file.lines.covered <= file.lines.total));
    }
});
