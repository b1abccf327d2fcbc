//! Two worlds in which the same program is run: the files of its directory were made in another order, the caller has other settings, another user starts it with other help of the kernel's, and time
//! has passed. What it prints is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_testkit::{Finished, Host, Way};
use serde::Serialize;

use crate::noisy::{Noisy, Promise};

/// The same name as in xtask/src/determinism.rs.
const FINDINGS: &str = "COFFERDAM_DETERMINISM_FINDINGS";
/// Names in the directory that programs list.
const ENTRIES: usize = 40;

pub(crate) struct Worlds<'h> {
    host: &'h Host,
    ways: Vec<Way>,
    /// For each way, in the order of `ways`.
    places: Vec<PathBuf>,
}

/// What was found out about one program.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) program: String,
    pub(crate) language: String,
    pub(crate) prints: String,
    /// Why it need not be the same; empty where it must.
    pub(crate) excuse: String,
    pub(crate) is_same: bool,
    /// Whether it prints something else when nothing is fixed.
    pub(crate) differs_without: bool,
    /// The first lines in which two runs differ.
    pub(crate) difference: String,
}

impl Finding {
    pub(crate) fn is_broken(&self) -> bool {
        !self.is_same && self.excuse.is_empty()
    }
}

impl<'h> Worlds<'h> {
    /// C sources are compiled once; everything else is copied.
    pub(crate) fn make(host: &'h Host, files: &[(String, String)]) -> Self {
        let built = host.dir().join("built");
        fs::create_dir(&built).unwrap();
        for (name, text) in files {
            let path = built.join(name);
            fs::write(&path, text).unwrap();
            if let Some(program) = name.strip_suffix(".c") {
                compile(&path, &built.join(program), text.contains("LINK STATIC"));
            }
        }
        let ways = Way::all();
        let places = ways.iter().enumerate().map(|(at, way)| {
            let place = host.workspace(*way).join(format!("world-{at}"));
            fs::create_dir(&place).unwrap();
            copy(&built, &place);
            list(&place.join("data"), at);
            host.give(&place, *way);
            place
        });
        Self {
            host,
            places: places.collect(),
            ways,
        }
    }

    pub(crate) fn compare(&self, program: &Noisy) -> Finding {
        let fixed = self.outputs(&["--deterministic", "--seed", "7"], program.argv);
        let free = self.outputs(&[], program.argv);
        let (excuse, difference) = (
            match program.promise {
                Promise::Same => "",
                Promise::None(why) => why,
            },
            difference(&fixed),
        );
        Finding {
            program: program.name.to_owned(),
            language: program.language.to_owned(),
            prints: program.prints.to_owned(),
            excuse: excuse.to_owned(),
            is_same: difference.is_empty(),
            differs_without: !self::difference(&free).is_empty(),
            difference,
        }
    }

    pub(crate) fn compare_solution(&self, origin: &str, name: &str) -> Finding {
        let script = format!("/work/{name}");
        let argv = ["/usr/bin/python3", script.as_str()];
        let difference = difference(&self.outputs(&["--deterministic"], &argv));
        Finding {
            program: name.to_owned(),
            language: "Python".to_owned(),
            prints: origin.to_owned(),
            excuse: String::new(),
            is_same: difference.is_empty(),
            differs_without: false,
            difference,
        }
    }

    /// In two of the worlds, both of them another one for the next program: all three times two would take long.
    fn outputs(&self, flags: &[&str], argv: &[&str]) -> Vec<Vec<u8>> {
        let first = argv.concat().len() % self.ways.len();
        let second = (first + 1) % self.ways.len();
        [first, second]
            .into_iter()
            .enumerate()
            .map(|(turn, at)| {
                let place = format!("{}:ro", self.places[at].display());
                let mut args = vec!["run", "--timeout", "15s", "--workspace", &place];
                args.extend(flags);
                args.push("--");
                args.extend(argv);
                let launch = self.host.launch(&args).way(self.ways[at]);
                let launch = match turn {
                    0 => launch,
                    _ => launch
                        .env("TZ", "Asia/Tokyo")
                        .env("LC_ALL", "POSIX")
                        .from_shell("umask 077; ulimit -S -s 4096; exec \"$@\""),
                };
                let run = launch.finish();
                printed(&run, argv)
            })
            .collect()
    }
}

#[track_caller]
fn printed(run: &Finished, argv: &[&str]) -> Vec<u8> {
    assert_eq!(run.code(), 0, "{argv:?}: {run:#?}");
    let out = run.out();
    assert!(!out.is_empty(), "{argv:?} printed nothing");
    out.into_bytes()
}

/// The first line that is not the same in all; empty when all are.
fn difference(outputs: &[Vec<u8>]) -> String {
    let [one, other] = outputs else {
        panic!("{outputs:?}");
    };
    if one == other {
        return String::new();
    }
    let lines = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text);
        text.lines().map(str::to_owned).collect()
    };
    let (one, other) = (lines(one), lines(other));
    let at = one.iter().zip(&other).position(|(a, b)| a != b);
    let at = at.unwrap_or(one.len().min(other.len()));
    format!("{:?} and {:?}", one.get(at), other.get(at))
}

fn compile(source: &Path, to: &Path, is_static: bool) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-w", "-pthread"]);
    if is_static {
        gcc.arg("-static");
    }
    let done = gcc.arg("-o").arg(to).arg(source).status().unwrap();
    assert!(done.success(), "{}", source.display());
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A directory with the same names in every world, made in another order in each, after others that are gone again.
fn list(dir: &Path, world: usize) {
    fs::create_dir(dir).unwrap();
    for passing in 0..world * 7 {
        fs::write(dir.join(format!("passing-{passing}")), "").unwrap();
    }
    for passing in 0..world * 7 {
        fs::remove_file(dir.join(format!("passing-{passing}"))).unwrap();
    }
    for at in 0..ENTRIES {
        let at = match world % 3 {
            0 => at,
            1 => ENTRIES - 1 - at,
            _ => (at * 17 + 5) % ENTRIES,
        };
        fs::write(dir.join(format!("entry-{at}")), "").unwrap();
    }
}

/// For `cargo xtask determinism`.
pub(crate) fn keep(name: &str, findings: &[Finding]) {
    if let Some(dir) = std::env::var_os(FINDINGS) {
        let text = serde_json::to_vec(findings).unwrap();
        fs::write(Path::new(&dir).join(name), text).unwrap();
    }
}
