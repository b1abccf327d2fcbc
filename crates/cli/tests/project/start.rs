//! Programs of projects: which one is started, what it is given and what it gives back.

use cofferdam_testkit::{Finished, Host, Need, Way, host, maven};

use crate::fixture::{PATIENCE, act, act_with, project};

/// Prints its arguments and its input, and ends with 7.
const PYTHON: &[(&str, &str)] = &[
    (
        "pyproject.toml",
        "[project]\nname = \"py-demo\"\nversion = \"1\"\n[project.scripts]\ndemo = \"py_demo.cli:Main.run\"\n",
    ),
    ("src/py_demo/__init__.py", ""),
    (
        "src/py_demo/cli.py",
        "import sys\nclass Main:\n    @staticmethod\n    def run():\n        print('python', sys.argv[1:], sys.stdin.read())\n        return 7\n",
    ),
];
const NODE: &[(&str, &str)] = &[
    (
        "package.json",
        r#"{"name": "demo", "scripts": {"start": "node tell.js"}}"#,
    ),
    (
        "tell.js",
        "const input = require('fs').readFileSync(0, 'utf8');\nconsole.log('node', JSON.stringify(process.argv.slice(2)), input);\nprocess.exit(7);\n",
    ),
];
const RUST: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    ),
    (
        "src/main.rs",
        "fn main() {\n    let input = std::io::read_to_string(std::io::stdin()).unwrap();\n    println!(\"rust {:?} {input}\", std::env::args().skip(1).collect::<Vec<_>>());\n    std::process::exit(7);\n}\n",
    ),
];
const GO: &[(&str, &str)] = &[
    ("go.mod", "module example.com/tell\n\ngo 1.19\n"),
    (
        "cmd/tell/main.go",
        "package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"os\"\n)\n\nfunc main() {\n\tinput, _ := io.ReadAll(os.Stdin)\n\tfmt.Println(\"go\", os.Args[1:], string(input))\n}\n",
    ),
];

#[test]
fn a_program_is_started_with_its_arguments_and_its_input_and_its_answer_is_its_own() {
    let host = host!(Need::Python, Need::Gcc, Need::Installed("/usr/bin/node"));
    let cases = [
        (PYTHON, "python ['a', 'b c'] typed\n"),
        (NODE, "node [\"a\",\"b c\"] typed\n"),
        (RUST, "rust [\"a\", \"b c\"] typed\n"),
    ];
    for (files, printed) in cases {
        let dir = project(&host, Way::Root, files);
        let done = start(&host, dir.to_str().unwrap(), &["--", "a", "b c"]);
        // Nothing of ours, and nothing of the tools, stands between what the program prints.
        assert_eq!(
            (done.code(), done.out().as_str()),
            (7, printed),
            "{done:#?}"
        );
    }
}

#[test]
fn a_program_of_go_is_found_where_it_lies_by_custom() {
    let host = host!(Need::Installed("/usr/bin/go"));
    let dir = project(&host, Way::Root, GO);
    let done = start(&host, dir.to_str().unwrap(), &["--", "a"]);
    assert_eq!(
        (done.code(), done.out().as_str()),
        (0, "go [a] typed\n"),
        "{done:#?}"
    );
}

#[test]
fn a_program_of_maven_is_compiled_from_the_cache_alone_and_started() {
    let host = host!(maven::NEEDS[0], maven::NEEDS[1], maven::NEEDS[2]);
    let dir = project(&host, Way::Root, maven::PROGRAM);
    let cache = host.workspace(Way::Root);
    let built = act_with(&host, Way::Root, "build", &dir, &cache, &["--json"]);
    assert_eq!(built.code(), 0, "{built:#?}");
    // From here on the repository is nowhere: what was fetched must do.
    std::fs::write(dir.join(maven::SETTINGS), maven::NOWHERE).unwrap();
    std::fs::remove_dir_all(dir.join("target")).unwrap();
    let (dir, cache) = (dir.to_str().unwrap(), cache.to_str().unwrap());
    let args = ["start", dir, "--cache-dir", cache, "--", "a", "b c"];
    let launch = host.launch(args).way(Way::Root).stdin("typed");
    let done = launch.start().finish_within(PATIENCE);
    assert_eq!(
        (done.code(), done.out().as_str()),
        (7, "java a|b c typed\n"),
        "{done:#?}"
    );
}

#[test]
fn what_cannot_be_started_says_why_and_what_the_project_names_itself_comes_first() {
    let host = host!(Need::Python);
    let two = project(
        &host,
        Way::Root,
        &[
            ("one/setup.py", ""),
            ("one/main.py", "print('one')\n"),
            ("two/setup.py", ""),
            ("two/main.py", "print('two')\n"),
            ("none/setup.py", ""),
        ],
    );
    let place = two.to_str().unwrap();
    let both = start(&host, place, &[]);
    assert!(both.err().contains("one/setup.py, two/setup.py"));
    assert_eq!((both.code(), both.out().as_str()), (125, ""), "{both:#?}");
    let second = start(&host, place, &["--only", "two"]);
    assert_eq!(
        (second.code(), second.out().as_str()),
        (0, "two\n"),
        "{second:#?}"
    );
    let none = start(&host, place, &["--only", "none"]);
    assert!(none.err().contains("there is no program here"));
    assert_eq!(none.code(), 125, "{none:#?}");
    let own = project(
        &host,
        Way::Root,
        &[
            (
                ".agent/config.yml",
                "commands:\n  run: echo own; cat; exit 9\n",
            ),
            ("setup.py", ""),
            ("main.py", "print('ours')\n"),
        ],
    );
    let own = own.to_str().unwrap();
    let done = start(&host, own, &["--json"]);
    assert_eq!(
        done.told()["projects"][0]["manifest"],
        ".agent/config.yml",
        "{done:#?}"
    );
    let done = start(&host, own, &[]);
    assert_eq!(
        (done.code(), done.out().as_str()),
        (9, "own\ntyped"),
        "{done:#?}"
    );
    let with_words = start(&host, own, &["--", "a"]);
    assert!(with_words.err().contains("takes no arguments"));
    assert_eq!(with_words.code(), 125);
}

#[test]
fn a_program_is_held_by_limits_and_what_cannot_be_built_is_told_as_such() {
    let host = host!(Need::Python, Need::Gcc);
    let hanging = project(
        &host,
        Way::Root,
        &[
            ("setup.py", ""),
            ("main.py", "import time\ntime.sleep(600)\n"),
        ],
    );
    let stopped = act(&host, Way::Root, "start", &hanging, &["--timeout", "1s"]);
    assert_eq!(stopped.code(), 124, "{stopped:#?}");
    let broken = project(
        &host,
        Way::Root,
        &[
            RUST[0],
            ("src/main.rs", "fn main() { let x: u8 = \"\"; }\n"),
        ],
    );
    let broken = act(&host, Way::Root, "start", &broken, &[]);
    assert!(broken.err().contains("src/main.rs:1:"), "{broken:#?}");
    assert_eq!(
        (broken.code(), broken.out().as_str()),
        (1, ""),
        "{broken:#?}"
    );
}

fn start(host: &Host, dir: &str, more: &[&str]) -> Finished {
    let cache = host.workspace(Way::Root);
    let mut args = vec!["start", dir, "--cache-dir", cache.to_str().unwrap()];
    args.extend(more);
    host.launch(args)
        .way(Way::Root)
        .stdin("typed")
        .start()
        .finish_within(PATIENCE)
}
