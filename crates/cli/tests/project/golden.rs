//! Golden cases: run, compared, blessed; and those of our own command line.

use std::path::Path;

use cofferdam_testkit::{Host, Way, host};

fn case(dir: &Path, name: &str, files: &[(&str, &str)]) {
    for (path, text) in files {
        let file = dir.join(name).join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
}

fn golden(host: &Host, verb: &str, dir: &Path, more: &[&str]) -> cofferdam_testkit::Finished {
    let mut args = vec!["golden", verb, dir.to_str().unwrap()];
    args.extend(more);
    host.run(args)
}

#[test]
fn a_case_is_blessed_then_holds_and_then_shows_what_differs() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    let command = "cat in.txt; echo err >&2; mkdir d; echo new > d/out.txt; rm gone.txt; ln -s /etc/passwd link; exit 3";
    case(
        &dir,
        "one",
        &[
            ("command", command),
            ("input/in.txt", "a\nb\n"),
            ("input/gone.txt", ""),
        ],
    );
    let first = golden(&host, "run", &dir, &[]);
    assert!(
        first.code() == 1 && first.out().contains("+++ stdout: is not expected"),
        "{first:#?}"
    );
    let blessed = golden(&host, "bless", &dir, &[]);
    assert!(
        blessed.code() == 0 && blessed.out().contains("blessed  one"),
        "{blessed:#?}"
    );
    let expected = dir.join("one/expected");
    let read = |path: &str| std::fs::read_to_string(expected.join(path)).unwrap();
    assert_eq!(
        (
            read("stdout"),
            read("stderr"),
            read("exit_code"),
            read("files/d/out.txt")
        ),
        (
            "a\nb\n".into(),
            "err\n".into(),
            "3\n".into(),
            "new\n".into()
        )
    );
    assert!(expected.join("removed/gone.txt").exists() && !expected.join("files/in.txt").exists());
    assert_eq!(
        std::fs::read_link(expected.join("files/link")).unwrap(),
        Path::new("/etc/passwd")
    );
    let again = golden(&host, "run", &dir, &[]);
    assert!(
        again.code() == 0
            && again
                .out()
                .ends_with("1 case: 1 as expected, 0 not as expected\n"),
        "{again:#?}"
    );
    std::fs::write(dir.join("one/input/in.txt"), "a\nc\n").unwrap();
    let differs = golden(&host, "run", &dir, &[]);
    assert!(
        differs.code() == 1 && differs.out().contains("\n a\n-b\n+c\n"),
        "{differs:#?}"
    );
    let told = golden(&host, "run", &dir, &["--json"]).told();
    assert_eq!(told["cases"][0]["differences"][0]["path"], "stdout");
}

#[test]
fn a_person_who_ends_a_blessing_changes_nothing_that_is_expected() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    for name in ["one", "two"] {
        let files = [
            ("command", "exec sleep 6007"),
            ("expected/stdout", "dear\n"),
            ("expected/exit_code", "0\n"),
        ];
        case(&dir, name, &files);
    }
    let started = host
        .launch(["golden", "bless", dir.to_str().unwrap()])
        .start();
    started.await_process(|process| process.command.contains("6007") && process.name == "sleep");
    started.signal(rustix::process::Signal::INT);
    let ended = started.finish();
    assert!(
        ended.code() == 130 && ended.err().contains("canceled"),
        "{ended:#?}"
    );
    for name in ["one", "two"] {
        let expected = dir.join(name).join("expected");
        let read = |file: &str| std::fs::read_to_string(expected.join(file)).unwrap();
        assert_eq!(
            (read("stdout"), read("exit_code")),
            ("dear\n".into(), "0\n".into()),
            "{ended:#?}"
        );
    }
}

#[test]
fn more_than_is_compared_differs_and_is_not_blessed() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    let command = "head -c 17000000 /dev/zero";
    case(
        &dir,
        "one",
        &[("command", command), ("expected/stdout", "dear")],
    );
    for verb in ["run", "bless"] {
        let ran = golden(&host, verb, &dir, &[]);
        assert!(
            ran.code() == 1 && ran.out().contains("stdout: is longer than the 16 MiB"),
            "{ran:#?}"
        );
    }
    let expected = std::fs::read_to_string(dir.join("one/expected/stdout")).unwrap();
    assert_eq!(expected, "dear");
}

#[test]
fn a_command_that_is_a_link_a_pipe_or_too_long_is_not_read() {
    let host = host!();
    let link = |at: &Path| std::os::unix::fs::symlink("/etc/passwd", at).unwrap();
    let pipe = |at: &Path| {
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    let large = |at: &Path| std::fs::File::create(at).unwrap().set_len(1 << 40).unwrap();
    type Plant<'a> = &'a dyn Fn(&Path);
    let plants: [(&str, Plant<'_>); 3] = [
        ("is a link", &link),
        ("is not a regular file", &pipe),
        ("too long", &large),
    ];
    for (told, plant) in plants {
        let dir = host.workspace(Way::Root);
        std::fs::create_dir(dir.join("one")).unwrap();
        plant(&dir.join("one/command"));
        let ran = golden(&host, "run", &dir, &[]);
        assert!(ran.code() == 125 && ran.err().contains(told), "{ran:#?}");
    }
}

#[test]
fn what_is_no_case_or_cannot_be_read_is_told() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    let none = golden(&host, "run", &dir, &[]);
    assert!(
        none.code() == 125 && none.err().contains("holds no case"),
        "{none:#?}"
    );
    case(&dir, "one", &[("command", "true")]);
    let unknown = golden(&host, "run", &dir, &["--case", "two"]);
    assert!(
        unknown
            .err()
            .contains("there is no such case; there are: one"),
        "{unknown:#?}"
    );
}

#[test]
fn our_own_command_line_does_what_its_golden_cases_say() {
    let host = host!();
    let cases = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden"));
    let binary = host.binary().parent().unwrap();
    let mount = format!("{}:/opt/own", binary.display());
    let ran = golden(
        &host,
        "run",
        cases,
        &[
            "--mount",
            &mount,
            "--env",
            "PATH=/opt/own:/usr/bin:/bin",
            "--memory",
            "1g",
        ],
    );
    assert_eq!(
        ran.code(),
        0,
        "bless them with `cofferdam golden bless tests/golden …` if this is meant: {ran:#?}"
    );
}
