//! .NET with a real SDK and no network: a solution with a library, its tests, and the small test host and adapter that take the place of packages which cannot be had.

use std::path::{Path, PathBuf};

use cofferdam_testkit::{Finished, Host, Need, Way, host};

use crate::fixture::{act_with, counts, failing};

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/dotnet/sdk");
const SSL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/dotnet/ssl");

#[test]
fn a_solution_is_restored_built_and_tested_and_leaves_no_compiler_behind() {
    let host = host!(Need::Installed(SDK), Need::Installed(SSL));
    let dir = solution(&host);
    let cache = host.workspace(Way::Root);
    let restored = dotnet(&host, "restore", &dir, &cache, &[]);
    assert_eq!(restored.code(), 0, "{restored:#?}");
    let built = dotnet(&host, "build", &dir, &cache, &[]);
    assert_eq!(built.code(), 0, "{built:#?}");
    let tested = dotnet(&host, "test", &dir, &cache, &[]);
    assert_eq!(
        (tested.code(), counts(&tested)),
        (1, [3, 1, 1, 1]),
        "{tested:#?}"
    );
    let bad = failing(&tested);
    assert_eq!(
        (&bad["name"], &bad["file"], &bad["line"]),
        (&"Sums.Breaks".into(), &"checks/Sums.cs".into(), &14.into())
    );
    let only = dotnet(
        &host,
        "test",
        &dir,
        &cache,
        &["--filter", "FullyQualifiedName=Sums.Holds"],
    );
    assert_eq!((only.code(), counts(&only)), (0, [1, 1, 0, 0]), "{only:#?}");
    // One that hangs: what others told before is there, and so is nothing that they did not.
    let hanging = dir.join("checks/Sums.cs");
    let text = std::fs::read_to_string(&hanging).unwrap();
    let hangs = "    [Check]\n    public void ZHangs()\n    {\n        System.Threading.Thread.Sleep(600000);\n    }\n}\n";
    std::fs::write(
        &hanging,
        text.trim_end().trim_end_matches('}').to_owned() + hangs,
    )
    .unwrap();
    let stopped = dotnet(&host, "test", &dir, &cache, &["--timeout", "60s"]);
    assert_eq!(
        (stopped.code(), counts(&stopped)),
        (124, [3, 1, 1, 1]),
        "{stopped:#?}"
    );
    std::fs::write(&hanging, text).unwrap();
    std::fs::write(
        dir.join("numbers/Sum.cs"),
        "public static class Sum { public static int Of(int left, int right) => left + }\n",
    )
    .unwrap();
    let broken = dotnet(&host, "build", &dir, &cache, &[]);
    let found = &broken.told()["projects"][0]["steps"][0]["diagnostics"][0];
    assert_eq!(
        (broken.code(), &found["file"], &found["line"]),
        (1, &"numbers/Sum.cs".into(), &1.into()),
        "{broken:#?}"
    );
}

#[test]
fn a_program_of_dotnet_is_built_with_what_it_references_and_started() {
    let host = host!(Need::Installed(SDK), Need::Installed(SSL));
    let dir = solution(&host);
    let cache = host.workspace(Way::Root);
    std::fs::create_dir(dir.join("app")).unwrap();
    let project = "<Project Sdk=\"Microsoft.NET.Sdk\">\n  <PropertyGroup><OutputType>Exe</OutputType></PropertyGroup>\n  <ItemGroup><ProjectReference Include=\"../numbers/numbers.csproj\" /></ItemGroup>\n</Project>\n";
    let program = "public static class App\n{\n    public static int Main(string[] words)\n    {\n        System.Console.WriteLine(Numbers.Sum.Of(int.Parse(words[0]), int.Parse(words[1])));\n        return 7;\n    }\n}\n";
    std::fs::write(dir.join("app/app.csproj"), project).unwrap();
    std::fs::write(dir.join("app/App.cs"), program).unwrap();
    let restored = dotnet(&host, "restore", &dir, &cache, &["--project", "app"]);
    assert_eq!(restored.code(), 0, "{restored:#?}");
    let words = ["--project", "app", "--", "20", "22"];
    let started = dotnet(&host, "start", &dir, &cache, &words);
    let step = &started.told()["projects"][0]["steps"][1];
    assert_eq!(
        (started.code(), &step["printed"]),
        (7, &"42\n".into()),
        "{started:#?}"
    );
}

fn dotnet(host: &Host, verb: &str, dir: &Path, cache: &Path, more: &[&str]) -> Finished {
    let place = |path: &str| {
        Path::new(path)
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    };
    let (sdk, ssl) = (
        format!("{}:/opt/dotnet", place(SDK)),
        format!("{}:/opt/ssl", place(SSL)),
    );
    let mut args = vec!["--json", "--mount", &sdk, "--mount", &ssl];
    for variable in [
        "PATH=/opt/dotnet:/usr/bin:/bin",
        "DOTNET_ROOT=/opt/dotnet",
        "LD_LIBRARY_PATH=/opt/ssl",
    ] {
        args.extend(["--env", variable]);
    }
    args.extend(more);
    act_with(host, Way::Root, verb, dir, cache, &args)
}

fn solution(host: &Host) -> PathBuf {
    let dir = host.workspace(Way::Root);
    let from = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/project/dotnet"));
    copy(from, &dir);
    dir
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}
