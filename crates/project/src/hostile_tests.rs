//! Trees that were made to cost much, to have a tool without walls write elsewhere, or to be taken for something else.

use std::fs;

use super::tests::{found, tree};
use super::*;
use crate::action::{Action, Guards, Options, Places, Reach, Step};
use crate::model::{Framework, PackageManager};

/// What fetches for a project on the host.
fn fetched(detection: &Detection, manifest: &str) -> Result<Vec<Step>, String> {
    let places = Places {
        root: "/home/p".to_owned(),
        caches: "/home/c".to_owned(),
        reports: "/home/r".to_owned(),
    };
    let options = Options {
        reach: Reach::Host,
        ..Options::default()
    };
    let mut projects = detection.projects.iter();
    let project = projects.find(|project| project.manifest == manifest);
    let steps = ecosystem::steps(
        Action::Restore,
        project.unwrap(),
        detection,
        &options,
        &places,
    );
    steps.map_err(|why| why.why)
}

fn fetches(detection: &Detection, manifest: &str) -> (String, Guards) {
    let step = fetched(detection, manifest).unwrap().remove(0);
    (step.argv.join(" "), step.guards)
}

#[test]
fn the_lock_file_that_cargo_writes_is_known_before_it_does() {
    let package = "[package]\nname = \"a\"\n";
    let detection = found(&[
        ("Cargo.toml", package),
        ("sub/a/Cargo.toml", package),
        ("w/Cargo.toml", "[workspace]\nmembers = [\"m\"]\n"),
        ("w/Cargo.lock", ""),
        ("w/m/Cargo.toml", package),
        (
            "x/Cargo.toml",
            "[package]\nname = \"x\"\nworkspace = \"../w\"\n",
        ),
        ("x/y/Cargo.toml", package),
        (
            "z/Cargo.toml",
            "[package]\nname = \"z\"\nworkspace = \"../w\"\n",
        ),
        ("z/Cargo.lock", ""),
    ]);
    let fetch = |dir: &str| format!("cargo fetch --manifest-path /home/p/{dir}Cargo.toml");
    assert_eq!(
        fetches(&detection, "Cargo.toml"),
        (
            fetch(""),
            Guards {
                written: vec!["Cargo.lock".to_owned()],
                absent_above: Some("Cargo.toml"),
                ..Guards::default()
            }
        )
    );
    // What lies between and was not looked into may say that the workspace is somewhere else.
    assert_eq!(
        fetches(&detection, "sub/a/Cargo.toml"),
        (
            fetch("sub/a/"),
            Guards {
                written: vec!["sub/a/Cargo.lock".to_owned(), "Cargo.lock".to_owned()],
                absent: vec!["sub/Cargo.toml".to_owned()],
                absent_above: Some("Cargo.toml"),
                careful: None,
            }
        )
    );
    // A workspace is its own root, and a member is fetched for with it.
    let of_workspace = (
        fetch("w/"),
        Guards {
            written: vec!["w/Cargo.lock".to_owned()],
            careful: Some("--locked"),
            ..Guards::default()
        },
    );
    assert_eq!(fetches(&detection, "w/Cargo.toml"), of_workspace);
    assert_eq!(fetches(&detection, "w/m/Cargo.toml"), of_workspace);
    for pointing in ["x/Cargo.toml", "x/y/Cargo.toml"] {
        let why = fetched(&detection, pointing).unwrap_err();
        assert!(
            why.contains("`package.workspace` in `x/Cargo.toml`"),
            "{why}"
        );
    }
    let (argv, _) = fetches(&detection, "z/Cargo.toml");
    assert_eq!(argv, format!("{} --locked", fetch("z/")));
}

#[test]
fn go_is_told_which_workspace_it_works_in() {
    let detection = found(&[
        ("go.work", "go 1.22\nuse (\n\t.\n\t./a\n\t./a\n)\n"),
        ("go.mod", "module m\n"),
        ("a/go.mod", "module a\n"),
        ("b/go.mod", "module b\n"),
    ]);
    let told = |manifest: &str| {
        let step = fetched(&detection, manifest).unwrap().remove(0);
        let work = step.env.into_iter().find(|(name, _)| name == "GOWORK");
        (work.unwrap().1, step.guards.written)
    };
    let (work, written) = told("a/go.mod");
    assert_eq!(work, "/home/p/go.work");
    assert!(written.contains(&"go.work.sum".to_owned()), "{written:?}");
    assert_eq!(told("go.work"), (work, written));
    let (work, written) = told("b/go.mod");
    assert_eq!(work, "off");
    assert!(written.contains(&"b/go.sum".to_owned()), "{written:?}");
    let top = detection.projects.iter();
    let mut top = top.filter(|project| project.manifest == "go.work");
    assert_eq!(top.next().unwrap().members, ["go.mod", "a/go.mod"]);
}

#[test]
fn members_and_references_have_room_for_the_whole_tree_together() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("\"n{n}\":\"1\"")).collect();
    for n in 0..400 {
        let at = dir.path().join(format!("p{n}"));
        fs::create_dir(&at).unwrap();
        let package = format!(
            "{{\"name\": \"n{}\", \"dependencies\": {{{}}}}}",
            n % 20,
            names.join(",")
        );
        fs::write(at.join("package.json"), package).unwrap();
    }
    let found = detect(dir.path(), &Bounds::default()).unwrap();
    assert_eq!(found.projects.len(), 400);
    let kept = found
        .projects
        .iter()
        .map(|project| project.references.len());
    // Each of them names all others.
    assert_eq!(kept.sum::<usize>(), MAX_TIES);
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.contains("there is more")),
        "{:?}",
        found.notes
    );
}

#[test]
fn what_is_passed_by_is_counted_against_the_bounds_too() {
    let names: Vec<String> = (0..1_000).map(|n| format!("f{n}")).collect();
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    files.push((".gitignore", "*\n"));
    let dir = tree(&files);
    let over = detect_until(dir.path(), &Bounds::default(), &|| true).unwrap();
    assert!(over.notes[0].contains("the time was over"), "{over:?}");
    let bounds = Bounds {
        entries: 500,
        ..Bounds::default()
    };
    let stopped = detect(dir.path(), &bounds).unwrap();
    assert!(stopped.notes[0].contains("after 500"), "{stopped:?}");
}

#[test]
fn a_flag_of_another_test_runner_does_not_mean_that_of_node() {
    let first = |script: &str| {
        let package = format!("{{\"scripts\": {{\"test\": \"{script}\"}}}}");
        let detection = found(&[("package.json", &package)]);
        detection.projects[0].frameworks.first().copied()
    };
    for (script, framework) in [
        ("jest --testTimeout=10000", Framework::Jest),
        ("vitest run --test-timeout 5000", Framework::Vitest),
        ("jest --testPathPattern a", Framework::Jest),
        ("node --test", Framework::NodeTest),
        ("node --test-reporter=tap --test a.js", Framework::NodeTest),
    ] {
        assert_eq!(first(script), Some(framework), "{script}");
    }
    assert_eq!(first("./own --testing"), None);
}

#[test]
fn the_nearest_lock_file_chooses_the_package_manager() {
    let detection = found(&[
        ("package.json", "{}"),
        ("pnpm-lock.yaml", ""),
        ("examples/a/package.json", "{}"),
        ("examples/a/package-lock.json", "{}"),
        ("examples/b/package.json", "{}"),
    ]);
    let told: Vec<(&str, Option<PackageManager>)> = detection
        .projects
        .iter()
        .map(|project| (project.path.as_str(), project.package_manager))
        .collect();
    assert_eq!(
        told,
        [
            (".", Some(PackageManager::Pnpm)),
            ("examples/a", Some(PackageManager::Npm)),
            ("examples/b", Some(PackageManager::Pnpm)),
        ]
    );
}

#[test]
fn python_tools_are_known_by_what_is_asked_for_and_not_by_any_word() {
    let read = |files: &[(&str, &str)]| {
        let detection = found(files);
        let project = &detection.projects[0];
        (project.uses.clone(), project.frameworks.clone())
    };
    let test = ("test_a.py", "");
    let described = "[project]\nname = \"p\"\ndescription = \"A blackjack game with truffle and pytest\"\n# ruff\n";
    let (uses, frameworks) = read(&[("pyproject.toml", described), test]);
    assert!(!uses.contains(&"black".to_owned()), "{uses:?}");
    assert!(!uses.contains(&"ruff".to_owned()), "{uses:?}");
    assert_eq!(frameworks, [Framework::Unittest]);
    let asked = "[project]\nname = \"p\"\n[dependency-groups]\ndev = [\"pytest-cov>=1\", \"black[d]==24\"]\n[tool.ruff]\n";
    let (uses, frameworks) = read(&[("pyproject.toml", asked), test]);
    assert!(uses.contains(&"black".to_owned()), "{uses:?}");
    assert!(uses.contains(&"ruff".to_owned()), "{uses:?}");
    assert_eq!(frameworks, [Framework::Pytest]);
    let listed = [
        ("setup.py", "setup(extras_require={'t': ['pytest>8']})"),
        ("requirements.txt", "ruff==1 # black\n"),
        test,
    ];
    let (uses, frameworks) = read(&listed);
    assert!(uses.contains(&"ruff".to_owned()) && !uses.contains(&"black".to_owned()));
    assert_eq!(frameworks, [Framework::Pytest]);
}
