//! What is found in trees of all kinds, and what is not.

use std::fs;

use super::*;
use crate::action::{Action, Options, Places};
use crate::model::{Ecosystem, Framework, PackageManager, ProjectKind};

pub(super) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

pub(super) fn found(files: &[(&str, &str)]) -> Detection {
    detect(tree(files).path(), &Bounds::default()).unwrap()
}

fn manifests(detection: &Detection) -> Vec<&str> {
    detection
        .projects
        .iter()
        .map(|project| project.manifest.as_str())
        .collect()
}

fn argv(action: Action, detection: &Detection, at: usize) -> Vec<Vec<String>> {
    let places = Places {
        root: "/work".to_owned(),
        caches: "/cache".to_owned(),
        reports: "/reports".to_owned(),
    };
    let steps = ecosystem::steps(
        action,
        &detection.projects[at],
        detection,
        &Options::default(),
        &places,
    );
    steps.unwrap().into_iter().map(|step| step.argv).collect()
}

#[test]
fn a_node_workspace_has_members_and_a_manager_by_its_lock_file() {
    let detection = found(&[
        (
            "package.json",
            r#"{"name": "top", "workspaces": ["packages/*", "!packages/old"], "engines": {"node": ">=18"}}"#,
        ),
        ("pnpm-lock.yaml", ""),
        (
            "packages/a/package.json",
            r#"{"name": "a", "scripts": {"test": "jest", "build": "tsc"}, "dependencies": {"b": "1"}, "devDependencies": {"jest": "*"}}"#,
        ),
        ("packages/b/package.json", r#"{"name": "b"}"#),
        ("packages/old/package.json", r#"{"name": "old"}"#),
        ("node_modules/x/package.json", "{}"),
    ]);
    assert_eq!(
        manifests(&detection),
        [
            "package.json",
            "packages/a/package.json",
            "packages/b/package.json",
            "packages/old/package.json"
        ]
    );
    let top = &detection.projects[0];
    assert_eq!(
        (top.kind, top.package_manager),
        (ProjectKind::Workspace, Some(PackageManager::Pnpm))
    );
    assert_eq!(
        top.members,
        ["packages/a/package.json", "packages/b/package.json"]
    );
    assert_eq!(top.wants.as_ref().unwrap().version, ">=18");
    let a = &detection.projects[1];
    assert_eq!(
        (a.kind, &a.frameworks[..], &a.references[..]),
        (
            ProjectKind::Member,
            &[Framework::Jest][..],
            &["packages/b/package.json".to_owned()][..]
        )
    );
    assert_eq!(
        detection.tops().count(),
        2,
        "the workspace and the one that it leaves out"
    );
    let tested = argv(Action::Test, &detection, 0);
    assert_eq!(tested[0][..4], ["pnpm", "run", "test", "--ci"]);
    assert!(
        tested[0].contains(&"--outputFile=/reports/jest.json".to_owned()),
        "{tested:?}"
    );
}

#[test]
fn restoring_without_network_never_waits_for_one() {
    let with = |lock: &[(&str, &str)]| {
        let mut files = vec![("package.json", r#"{"dependencies": {"x": "1"}}"#)];
        files.extend(lock);
        argv(Action::Restore, &found(&files), 0).remove(0)
    };
    assert_eq!(
        with(&[("package-lock.json", "{}")]),
        ["npm", "ci", "--offline", "--fetch-retries=0"]
    );
    assert_eq!(
        with(&[]),
        ["npm", "install", "--offline", "--fetch-retries=0"]
    );
    assert_eq!(
        with(&[("yarn.lock", "")]),
        [
            "yarn",
            "install",
            "--non-interactive",
            "--frozen-lockfile",
            "--offline"
        ]
    );
}

#[test]
fn a_solution_comes_before_its_projects_and_tests_are_known_by_name_package_or_word() {
    let detection = found(&[
        (
            "all.sln",
            "Project(\"{FAE}\") = \"calc\", \"calc\\calc.csproj\", \"{1}\"\nEndProject\nProject(\"{FAE}\") = \"t\", \"calc.Tests\\calc.Tests.csproj\", \"{2}\"\n",
        ),
        (
            "calc/calc.csproj",
            "<Project Sdk=\"Microsoft.NET.Sdk\"><PropertyGroup><TargetFramework>netcoreapp3.1</TargetFramework></PropertyGroup></Project>",
        ),
        (
            "calc.Tests/calc.Tests.csproj",
            "<Project><ItemGroup><ProjectReference Include=\"..\\calc\\calc.csproj\"/></ItemGroup></Project>",
        ),
        (
            "lone/lone.fsproj",
            "<Project><ItemGroup><PackageReference Include=\"xunit\"/></ItemGroup></Project>",
        ),
        ("global.json", r#"{"sdk": {"version": "3.1.102"}}"#),
        ("calc/bin/x.csproj", "<Project/>"),
    ]);
    assert_eq!(
        manifests(&detection),
        [
            "all.sln",
            "calc/calc.csproj",
            "calc.Tests/calc.Tests.csproj",
            "lone/lone.fsproj"
        ]
    );
    let of = |at: usize| &detection.projects[at];
    assert_eq!(
        (of(0).kind, of(0).members.len(), of(1).kind),
        (ProjectKind::Solution, 2, ProjectKind::Member)
    );
    assert_eq!(of(1).wants.as_ref().unwrap().version, "3.1.102");
    assert_eq!(
        (of(1).is_test, of(2).is_test, of(3).is_test),
        (false, true, true)
    );
    assert_eq!(of(2).references, ["calc/calc.csproj"]);
    let built = argv(Action::Build, &detection, 0).remove(0);
    assert!(
        built.contains(&"-p:UseSharedCompilation=false".to_owned()),
        "{built:?}"
    );
    let slnx = found(&[
        (
            "a.slnx",
            "<Solution><Project Path=\"x/x.csproj\"/></Solution>",
        ),
        ("x/x.csproj", "<Project/>"),
    ]);
    assert_eq!(slnx.projects[0].members, ["x/x.csproj"]);
}

#[test]
fn python_rust_go_and_java_are_known_by_their_manifests() {
    let detection = found(&[
        (
            "py/pyproject.toml",
            "[project]\nname = \"p\"\nrequires-python = \">=3.9\"\n[tool.pytest.ini_options]\n",
        ),
        ("py/tests/requirements.txt", "x"),
        ("un/setup.py", ""),
        ("un/test_a.py", ""),
        ("rs/Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n"),
        (
            "rs/crates/a/Cargo.toml",
            "[package]\nname = \"a\"\n[dependencies]\nb = { path = \"../b\" }\n",
        ),
        ("rs/crates/b/Cargo.toml", "[package]\nname = \"b\"\n"),
        ("go/go.mod", "module example.com/m\n\ngo 1.19\n"),
        ("go/a_test.go", ""),
        (
            "java/pom.xml",
            "<project><artifactId>top</artifactId><modules><module>m</module></modules></project>",
        ),
        (
            "java/m/pom.xml",
            "<project><artifactId>m</artifactId><dependencies><dependency><artifactId>junit</artifactId></dependency></dependencies></project>",
        ),
    ]);
    let kinds: Vec<(&str, Ecosystem, ProjectKind)> = detection
        .projects
        .iter()
        .map(|p| (p.path.as_str(), p.ecosystem, p.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("go", Ecosystem::Go, ProjectKind::Single),
            ("java", Ecosystem::Java, ProjectKind::Workspace),
            ("py", Ecosystem::Python, ProjectKind::Single),
            ("rs", Ecosystem::Rust, ProjectKind::Workspace),
            ("un", Ecosystem::Python, ProjectKind::Single),
            ("java/m", Ecosystem::Java, ProjectKind::Member),
            ("rs/crates/a", Ecosystem::Rust, ProjectKind::Member),
            ("rs/crates/b", Ecosystem::Rust, ProjectKind::Member),
        ]
    );
    let by = |path: &str| {
        detection
            .projects
            .iter()
            .find(|project| project.path == path)
            .unwrap()
    };
    assert_eq!(by("py").frameworks, [Framework::Pytest]);
    assert_eq!(by("un").frameworks, [Framework::Unittest]);
    assert_eq!(by("rs/crates/a").references, ["rs/crates/b/Cargo.toml"]);
    assert_eq!(
        (
            by("go").name.as_deref(),
            by("go").wants.as_ref().unwrap().version.as_str()
        ),
        (Some("example.com/m"), "1.19")
    );
}

#[test]
fn what_is_ignored_deep_or_a_link_is_not_searched() {
    let dir = tree(&[
        (".gitignore", "/out\n"),
        ("out/package.json", "{}"),
        ("a/b/c/package.json", "{}"),
        ("ok/go.mod", "module m\n"),
    ]);
    let outside = tree(&[("package.json", r#"{"name": "outside"}"#)]);
    std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
    fs::create_dir(dir.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(
        outside.path().join("package.json"),
        dir.path().join("linked/package.json"),
    )
    .unwrap();
    let shallow = Bounds {
        depth: 3,
        ..Bounds::default()
    };
    let detection = detect(dir.path(), &shallow).unwrap();
    assert_eq!(manifests(&detection), ["ok/go.mod"], "{detection:#?}");
    let deep = detect(dir.path(), &Bounds::default()).unwrap();
    assert_eq!(manifests(&deep), ["ok/go.mod", "a/b/c/package.json"]);
}

#[test]
fn manifests_that_cannot_be_read_are_notes_and_not_failures() {
    let detection = found(&[
        ("a/package.json", "{ not json"),
        ("b/Cargo.toml", "= ="),
        ("c/pom.xml", "<!DOCTYPE x [<!ENTITY a 'b'>]><project/>"),
        ("d/x.csproj", ""),
        ("e/package.json", "[1]"),
    ]);
    assert_eq!(manifests(&detection), ["e/package.json"]);
    assert_eq!(detection.notes.len(), 4, "{:#?}", detection.notes);
    assert!(detect(std::path::Path::new("/no/such/dir"), &Bounds::default()).is_err());
}

#[test]
fn what_a_runner_cannot_do_is_refused_and_not_left_out() {
    let detection = found(&[("package.json", r#"{"scripts": {"test": "node --test"}}"#)]);
    let places = Places {
        root: "/work".to_owned(),
        caches: "/c".to_owned(),
        reports: "/r".to_owned(),
    };
    let ask = |options: Options| {
        ecosystem::steps(
            Action::Test,
            &detection.projects[0],
            &detection,
            &options,
            &places,
        )
    };
    let fail_fast = Options {
        fail_fast: crate::action::FailFast::Yes,
        ..Options::default()
    };
    assert!(
        ask(fail_fast)
            .unwrap_err()
            .to_string()
            .contains("--fail-fast")
    );
    let coverage = Options {
        coverage: crate::action::Coverage::Yes,
        ..Options::default()
    };
    let refused = ask(coverage).unwrap_err();
    assert_eq!(refused.kind, crate::action::Lack::NotSo);
    assert!(refused.to_string().contains("--coverage"));
    let filtered = Options {
        filter: Some("a \"b\" c".to_owned()),
        ..Options::default()
    };
    let step = ask(filtered).unwrap().remove(0);
    let options = &step
        .env
        .iter()
        .find(|(name, _)| name == "NODE_OPTIONS")
        .unwrap()
        .1;
    assert!(
        options.ends_with(r#"--test-name-pattern="a \"b\" c""#),
        "{options}"
    );
}

#[test]
fn more_than_is_looked_at_is_said() {
    let names: Vec<String> = (0..9).map(|n| format!("p{n}/package.json")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "{}")).collect();
    let few = Bounds {
        manifests: 3,
        ..Bounds::default()
    };
    let detection = detect(tree(&files).path(), &few).unwrap();
    assert_eq!(detection.projects.len(), 3);
    assert_eq!(detection.notes.len(), 1, "{:?}", detection.notes);
    let few = Bounds {
        entries: 4,
        ..Bounds::default()
    };
    let detection = detect(tree(&files).path(), &few).unwrap();
    assert_eq!((detection.entries, detection.notes.len()), (4, 1));
}

#[test]
fn a_list_of_what_is_ignored_that_is_no_short_file_is_not_read() {
    let pipe = |at: &std::path::Path| {
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    let large = |at: &std::path::Path| {
        fs::File::create(at).unwrap().set_len(2 << 30).unwrap();
    };
    let link = |at: &std::path::Path| std::os::unix::fs::symlink("/dev/zero", at).unwrap();
    let plants: [&dyn Fn(&std::path::Path); 3] = [&pipe, &large, &link];
    for plant in plants {
        for name in [".gitignore", ".ignore", "sub/.gitignore"] {
            let dir = tree(&[("sub/go.mod", "module m\n")]);
            plant(&dir.path().join(name));
            let detection = detect(dir.path(), &Bounds::default()).unwrap();
            assert_eq!(manifests(&detection), ["sub/go.mod"], "{detection:#?}");
            // What is not obeyed is told; `.ignore` is no file of git's.
            let told = usize::from(name != ".ignore");
            assert_eq!(detection.notes.len(), told, "{name}: {detection:#?}");
        }
    }
}

#[test]
fn the_inner_of_two_lists_decides_and_there_is_an_end_to_lists() {
    let dir = tree(&[
        (".gitignore", "/a/x\nkeep\n*.d/\n"),
        ("a/.gitignore", "!keep\n/b\n"),
        ("a/x/go.mod", ""),
        ("a/keep/go.mod", ""),
        ("a/b/go.mod", ""),
        ("b/go.mod", ""),
        ("keep/go.mod", ""),
        ("deep/x.d/go.mod", ""),
    ]);
    let detection = detect(dir.path(), &Bounds::default()).unwrap();
    assert_eq!(manifests(&detection), ["b/go.mod", "a/keep/go.mod"]);
    let hostile = "{a,b}*{c,d}*{e,f}*?[a-z]\n".repeat(2_600);
    let names: Vec<String> = (0..100).map(|n| format!("d{n}/.gitignore")).collect();
    let mut files: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), &*hostile))
        .collect();
    files.push(("go.mod", ""));
    let dir = tree(&files);
    let detection = detect(dir.path(), &Bounds::default()).unwrap();
    assert_eq!(manifests(&detection), ["go.mod"]);
    assert!(detection.notes[0].contains("only its first lines"));
}

#[test]
fn a_search_ends_when_it_is_over_and_says_so() {
    let names: Vec<String> = (0..2_000).map(|n| format!("f{n}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let dir = tree(&files);
    let detection = crate::detect_until(dir.path(), &Bounds::default(), &|| true).unwrap();
    assert!(detection.entries < 300, "{detection:#?}");
    assert!(detection.notes[0].contains("over"), "{detection:#?}");
}

#[test]
fn on_the_host_python_only_fetches_and_not_from_within_the_project() {
    let hostile = "[project]\nname = \"p\"\ndependencies = [\"a>1\", \"b @ file:///x\"]\n[build-system]\nrequires = []\nbuild-backend = \"evil\"\nbackend-path = [\".\"]\n";
    let listed = "--no-binary :all:\n-e .\n./c\nd\n";
    let detection = found(&[("pyproject.toml", hostile), ("requirements.txt", listed)]);
    let places = Places {
        root: "/home/p".to_owned(),
        caches: "/home/c".to_owned(),
        reports: "/home/r".to_owned(),
    };
    let options = Options {
        reach: crate::action::Reach::Host,
        ..Options::default()
    };
    let project = &detection.projects[0];
    let steps = ecosystem::steps(Action::Restore, project, &detection, &options, &places).unwrap();
    let told: Vec<(&str, String)> = steps
        .iter()
        .map(|step| (step.cwd.as_str(), step.argv.join(" ")))
        .collect();
    let fetch = "python3 -I -m pip download --quiet --only-binary :all: --dest /home/c/pip/wheels setuptools wheel d a>1";
    assert_eq!(told, [("/home/c", fetch.to_owned())]);
}

#[test]
fn patterns_of_members_are_bounded_for_the_whole_tree() {
    let dir = tempfile::tempdir().unwrap();
    let patterns: Vec<String> = (0..150).map(|n| format!("\"a{n}*/b*/c*{n}\"")).collect();
    let package = format!("{{\"workspaces\": [{}, \"sub\"]}}", patterns.join(","));
    for n in 0..300 {
        let at = dir.path().join(format!("p{n}"));
        std::fs::create_dir_all(at.join("sub")).unwrap();
        std::fs::write(at.join("package.json"), &package).unwrap();
        std::fs::write(at.join("sub/package.json"), "{}").unwrap();
    }
    let found = detect(dir.path(), &Bounds::default()).unwrap();
    assert_eq!(found.projects.len(), 600);
    let workspaces = found
        .projects
        .iter()
        .filter(|project| !project.members.is_empty());
    assert_eq!(workspaces.count(), 2_000 / 151);
    assert!(
        found.notes.iter().any(|note| note.contains("patterns")),
        "{:?}",
        found.notes
    );
}

#[test]
fn whoever_has_no_time_any_more_reads_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("package.json"), "{}").unwrap();
    let found = detect_until(dir.path(), &Bounds::default(), &|| true).unwrap();
    assert!(found.projects.is_empty(), "{found:?}");
    assert!(!found.notes.is_empty());
}
