//! Programs whose results are compared: the reference solutions of HumanEval where its file is there, in COFFERDAM_HUMANEVAL or beside the repository, and a few of our own otherwise. Each prints
//! the result of every call that its tests make.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What there is without the file.
pub(crate) const LEAST: usize = 12;

/// Where they are from, and their names and texts.
pub(crate) fn all() -> (&'static str, Vec<(String, String)>) {
    match humaneval() {
        Some(programs) => ("HumanEval", programs),
        None => {
            eprintln!("no HumanEval.jsonl.gz: {LEAST} exercises of our own");
            ("our own", own())
        }
    }
}

fn humaneval() -> Option<Vec<(String, String)>> {
    let beside =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/HumanEval.jsonl.gz");
    let named = std::env::var_os("COFFERDAM_HUMANEVAL").map(PathBuf::from);
    let path = named.unwrap_or(beside);
    let lines = Command::new("gzip").arg("-dc").arg(path).output().ok()?;
    if !lines.status.success() {
        return None;
    }
    let tasks = lines.stdout.split(|byte| *byte == b'\n');
    let tasks = tasks.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let programs = tasks.map(|task| {
        let part = |name: &str| task[name].as_str().unwrap().to_owned();
        let name = format!("{}.py", part("task_id").replace('/', "-").to_lowercase());
        let solution = format!(
            "{}{}\n{}",
            part("prompt"),
            part("canonical_solution"),
            part("test")
        );
        (
            name,
            format!("{solution}\n{SPY}\ncheck(spy({}))\n", part("entry_point")),
        )
    });
    Some(programs.collect())
}

/// Prints what every call returns, and what would differ if anything did.
const SPY: &str = "
import random as _random, time as _time
def spy(function):
    def called(*args, **kwargs):
        result = function(*args, **kwargs)
        print(function.__name__, repr(result), _random.random(), _time.time())
        return result
    return called
print(set(map(str, range(20))), hex(id(spy)))
";

fn own() -> Vec<(String, String)> {
    let parts = OWN
        .split("\n\n")
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let programs = parts.zip(0..).map(|(part, at)| {
        let call = part.lines().last().unwrap();
        let rest = part.strip_suffix(call).unwrap();
        (format!("own-{at}.py"), format!("{rest}\n{SPY}\n{call}\n"))
    });
    let programs: Vec<(String, String)> = programs.collect();
    assert_eq!(programs.len(), LEAST);
    programs
}

/// With an empty line between each two; the last line of each makes the calls.
const OWN: &str = r#"
def words(text): return {word: text.split().count(word) for word in set(text.split())}
for text in ["a b a", "the cat the dog the end", ""]: spy(words)(text)

def primes(n): return [p for p in range(2, n) if all(p % q for q in range(2, p))]
for n in range(0, 60, 7): spy(primes)(n)

def shuffled(n): import random; items = list(range(n)); random.shuffle(items); return items
for n in range(10): spy(shuffled)(n)

def sample(n): import random; return random.sample(range(1000), n)
for n in range(10): spy(sample)(n)

def digest(text): import hashlib; return hashlib.sha256(text.encode()).hexdigest()
for text in "abc": spy(digest)(text)

def permutations(text): import itertools; return sorted({"".join(p) for p in itertools.permutations(text)})
for text in ["abc", "aab", ""]: spy(permutations)(text)

def unordered(text): return list(set(text))
for text in ["hello world", "deterministic"]: spy(unordered)(text)

def identifiers(n): import uuid; return [str(uuid.uuid4()) for _ in range(n)]
for n in range(4): spy(identifiers)(n)

def listing(path): import os; return list(os.scandir(path))[:50]
for path in ["/work/data", "/usr/lib", "/etc"]: spy(listing)(path)

def elapsed(n): import time; start = time.perf_counter(); sum(range(n)); return time.perf_counter() - start
for n in [10, 1000, 100000]: spy(elapsed)(n)

def temporary(n): import tempfile; return [tempfile.mkdtemp() for _ in range(n)]
for n in range(3): spy(temporary)(n)

def graph(n): import random; return {a: frozenset(random.choices(range(n), k=3)) for a in range(n)}
for n in [5, 20]: spy(graph)(n)
"#;
