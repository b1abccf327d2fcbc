//! GPUs that are not there.

use cofferdam_testkit::desk;
use cofferdam_testkit::desk::{code, told};

#[test]
fn a_gpu_that_is_not_there_refuses_the_run() {
    let desk = desk!();
    let done = desk.line("run --gpu 63 -- echo ran");
    assert_eq!(code(&done), 125, "{}", told(&done));
    assert!(
        told(&done).contains("there is no GPU 63"),
        "{}",
        told(&done)
    );
    assert!(
        told(&done).contains("[backend.unavailable]"),
        "{}",
        told(&done)
    );
    assert!(!told(&done).contains("ran\n"));
    for (flags, said) in [
        (
            "--backend host --gpu 0",
            "GPUs are shown by the native and docker backends",
        ),
        ("--gpu first", "names no GPU"),
    ] {
        let done = desk.line(&format!("run {flags} -- true"));
        assert_eq!(code(&done), 125, "{}", told(&done));
        assert!(told(&done).contains(said), "{}", told(&done));
    }
}
