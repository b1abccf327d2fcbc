//! Tests of planning: what a job is made of, and that nothing hostile becomes one.

use super::*;
use crate::catalogue::Catalogue;
use proptest::prelude::*;
use serde_json::json;

fn planned(language: &str, source: &Source) -> Result<Job, Vec<String>> {
    let catalogue = Catalogue::builtin().unwrap();
    let language = catalogue.find(language).unwrap();
    plan(language, &language.toolchains[0], source)
        .map_err(|problems| problems.iter().map(|p| p.field.clone()).collect())
}

fn file(path: &str) -> InlineFile {
    InlineFile {
        path: path.to_owned(),
        bytes: b"x".to_vec(),
    }
}

fn paths_of(job: &Job) -> Vec<&str> {
    job.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn a_script_is_its_file_and_a_command() {
    let source = Source {
        args: vec!["{file}".to_owned(), "--x".to_owned()],
        stdin: b"in".to_vec(),
        ..Source::script("print(1)")
    };
    let job = planned("py", &source).unwrap();
    assert_eq!(paths_of(&job), ["main.py"]);
    assert_eq!(job.files[0].bytes, b"print(1)");
    assert_eq!(job.run.argv, ["python3", "main.py", "{file}", "--x"]);
    assert_eq!((job.compile, job.result), (None, ResultChannel::None));
    assert_eq!(job.stdin, b"in");
    assert!(
        job.run
            .env
            .contains(&("PYTHONUTF8".to_owned(), "1".to_owned()))
    );
}

#[test]
fn a_handler_comes_with_its_shim_and_its_event() {
    let source = Source {
        mode: Mode::Handler {
            event: json!({"q": "\"'ü"}),
        },
        file_name: Some("src/app.js".to_owned()),
        ..Source::script("exports.handler = e => e")
    };
    let job = planned("node", &source).unwrap();
    assert_eq!(
        paths_of(&job),
        [".cofferdam/shim.cjs", ".cofferdam/event.json", "src/app.js"]
    );
    assert_eq!(job.files[1].bytes, "{\"q\":\"\\\"'ü\"}".as_bytes());
    assert!(
        job.files[2]
            .bytes
            .starts_with(b"exports.handler = e => e\n;")
    );
    assert_eq!(
        job.run.argv[2..],
        ["/work/.cofferdam/shim.cjs", "handler", "src/app.js"]
    );
    assert_eq!(job.result, ResultChannel::MustAnswer);
}

#[test]
fn auto_is_a_script_where_there_are_no_handlers() {
    let auto = |event| Source {
        mode: Mode::Auto { event },
        ..Source::script("x")
    };
    assert_eq!(
        planned("lua", &auto(None)).unwrap().result,
        ResultChannel::None
    );
    assert_eq!(
        planned("lua", &auto(Some(json!(1)))),
        Err(vec!["event".to_owned()])
    );
    let python = planned("python", &auto(None)).unwrap();
    assert_eq!(python.result, ResultChannel::MayAnswer);
    assert_eq!(python.files[1].bytes, b"null");
    assert_eq!(python.run.argv[2], "auto");
}

#[test]
fn what_is_compiled_once_runs_with_many_inputs() {
    let source = Source {
        files: vec![file("lib/a.c"), file("a.h"), file("noext")],
        args: vec!["first".to_owned()],
        ..Source::script("int main(){}")
    };
    let job = planned("c", &source).unwrap();
    let compile = job.compile.as_ref().unwrap();
    assert!(
        compile
            .argv
            .windows(2)
            .any(|two| two == ["main.c", "lib/a.c"]),
        "{compile:?}"
    );
    assert!(!compile.argv.contains(&"a.h".to_owned()));
    assert_eq!(job.run.argv, ["/work/.cofferdam/out/program", "first"]);
    assert!(paths_of(&job).contains(&".cofferdam/out/.keep"));
    let next = job
        .for_input(&["second".to_owned()], b"2".to_vec())
        .unwrap();
    assert_eq!(next.run.argv, ["/work/.cofferdam/out/program", "second"]);
    assert_eq!(
        (next.stdin.as_slice(), &next.compile),
        (b"2".as_slice(), &job.compile)
    );
    assert!(job.for_input(&["\0".to_owned()], Vec::new()).is_err());
}

#[test]
fn each_input_of_a_handler_has_its_own_event_and_a_script_has_none() {
    let source = Source {
        mode: Mode::Handler { event: json!(1) },
        ..Source::script("def handler(e): return e")
    };
    let job = planned("python", &source).unwrap();
    let next = job.event_file(&json!({"n": 2})).unwrap().unwrap();
    assert_eq!(next.bytes, b"{\"n\":2}");
    assert!(paths_of(&job).contains(&next.path.as_str()));
    let huge = json!("x".repeat(MAX_EVENT_BYTES));
    assert!(job.event_file(&huge).is_err());
    let script = planned("python", &Source::script("print(1)")).unwrap();
    assert_eq!(script.event_file(&json!(1)), Ok(None));
}

#[test]
fn everything_wrong_is_named_at_once() {
    let source = Source {
        code: String::new(),
        file_name: Some("../main.py".to_owned()),
        files: vec![
            file("/etc/passwd"),
            file("ok"),
            file("ok"),
            file("a\0"),
            file(".cofferdam/shim.py"),
            file("ok/below"),
        ],
        mode: Mode::Handler { event: json!(1) },
        args: vec!["fine".to_owned(), "n\0".to_owned()],
        dir: "work".to_owned(),
        ..Source::script("")
    };
    let expected = [
        "code",
        "dir",
        "file_name",
        "files[0].path",
        "files[3].path",
        "files[4].path",
        "files[2].path",
        "files[5].path",
        "args[1]",
        "event",
    ];
    assert_eq!(
        planned("ruby", &source),
        Err(expected.map(str::to_owned).to_vec())
    );
}

#[test]
fn there_is_a_bound_on_everything() {
    let long = Source::script("x".repeat(MAX_CODE_BYTES + 1));
    assert_eq!(planned("python", &long), Err(vec!["code".to_owned()]));
    let many = Source {
        files: (0..=MAX_FILES).map(|i| file(&i.to_string())).collect(),
        ..Source::script("x")
    };
    assert_eq!(planned("python", &many), Err(vec!["files".to_owned()]));
    let event = Source {
        mode: Mode::Handler {
            event: json!("x".repeat(MAX_EVENT_BYTES)),
        },
        ..Source::script("x")
    };
    assert_eq!(planned("python", &event), Err(vec!["event".to_owned()]));
    let main_again = Source {
        files: vec![file("main.py")],
        ..Source::script("x")
    };
    assert_eq!(
        planned("python", &main_again),
        Err(vec!["files[0].path".to_owned()])
    );
}

#[test]
fn the_callers_variables_win_and_no_name_is_there_twice() {
    let job = planned("python", &Source::script("x")).unwrap();
    let callers = [("PYTHONUTF8".to_owned(), "0".to_owned())];
    let env = job.run.env_with(&callers);
    assert_eq!(env.len(), job.run.env.len());
    assert_eq!(env.last(), Some(&callers[0]));
}

proptest! {
    #[test]
    fn every_file_of_a_job_stays_below_the_workspace(
        name in "[a.\\-/\u{0}]{0,6}",
        others in prop::collection::vec("[ab.\\-/\u{0}]{0,6}", 0..4),
    ) {
        let source = Source {
            file_name: Some(name),
            files: others.iter().map(|path| file(path)).collect(),
            mode: Mode::Auto { event: None },
            ..Source::script("x")
        };
        for language in ["python", "c"] {
            let Ok(job) = planned(language, &source) else { continue };
            let mut seen = std::collections::BTreeSet::new();
            for placed in &job.files {
                let plain = std::path::Path::new(&placed.path)
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(plain && seen.insert(&placed.path), "{:?}", placed.path);
            }
        }
    }
}
