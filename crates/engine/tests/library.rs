//! The example for users of the library, as they start it.

use std::process::Command;

#[test]
fn the_example_of_the_library_tells_how_three_programs_ended() {
    // Where cargo puts examples: beside the directory of the tests.
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(|deps| deps.parent()).unwrap();
    let example = built.join("examples/library");
    assert!(
        example.exists(),
        "{}: build it with `cargo build -p cofferdam-engine --example library`",
        example.display()
    );
    let done = Command::new(example).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    let expected = "adder: answered 5\nspinner: took too long\nglutton: wanted more than 64 MiB\n";
    assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
}
