//! Reports of tests, in every format; the first byte says in which. What is told of tests adds up.
#![no_main]

use cofferdam_project::report::{self, Format};
use libfuzzer_sys::fuzz_target;

const FORMATS: [Format; 11] = [
    Format::Trx,
    Format::Junit,
    Format::Jest,
    Format::Tap,
    Format::GoJson,
    Format::LibtestText,
    Format::LibtestJson,
    Format::PytestText,
    Format::UnittestText,
    Format::Events,
    Format::VstestText,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let format = FORMATS[usize::from(*first) % FORMATS.len()];
    if let Ok(report) = report::parse(format, rest) {
        let counts = report.counts();
        assert_eq!(counts.total, counts.passed + counts.failed + counts.skipped);
        assert!(report.tests.len() <= counts.total);
    }
});
