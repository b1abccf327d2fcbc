//! The shims and the manifests with the real interpreters and compilers of this machine: what a handler returns or throws arrives, and
//! nothing that its code does makes it arrive wrongly or never.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test program; a broken fixture ends it"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_toolchain::{
    Answer, BadAnswer, Catalogue, InlineFile, Job, Language, MAX_RESULT_BYTES, Mode, Raised,
    ResultChannel, Source, Toolchain, UNSERIALIZABLE, answer, plan,
};
use serde_json::{Value, json};

/// As in the sandbox: what lies elsewhere is not in view there.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Directories to look into before those, for trying other versions: `COFFERDAM_TRY_PATH=/opt/node-24/bin`.
const TRY_PATH: &str = "COFFERDAM_TRY_PATH";
/// Installed by `cargo xtask test`; the others are tried where they are.
const REQUIRED: [&str; 5] = ["c", "cpp", "javascript", "python", "shell"];

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    channel: ResultChannel,
    result: Vec<u8>,
    /// Files left in the workspace.
    left: Vec<String>,
}

impl Ran {
    fn answer(&self) -> Result<Answer, BadAnswer> {
        answer(self.channel, &self.result)
    }

    fn returned(&self) -> Value {
        match self.answer() {
            Ok(Answer::Returned(value)) => value,
            other => panic!("{other:?}\n{self:?}"),
        }
    }

    fn raised(&self) -> Raised {
        match self.answer() {
            Ok(Answer::Raised(raised)) => raised,
            other => panic!("{other:?}\n{self:?}"),
        }
    }
}

fn path() -> String {
    match std::env::var(TRY_PATH) {
        Ok(first) => format!("{first}:{PATH}"),
        Err(_) => PATH.to_owned(),
    }
}

/// Runs a command as the engine would: clean environment, workspace as directory, a pipe as descriptor 3. The outer `timeout` turns a
/// hang into a failure.
fn spawn(
    dir: &Path,
    argv: &[String],
    env: &[(String, String)],
    stdin: &[u8],
) -> (Option<i32>, Vec<u8>) {
    let outside = dir.parent().unwrap();
    fs::write(outside.join("stdin"), stdin).unwrap();
    let began = Instant::now();
    let script = "exec \"$@\" 3>&1 <../stdin >../stdout 2>../stderr";
    let output = Command::new("timeout")
        .args(["-k", "1", "60", "sh", "-c", script, "sh"])
        .args(argv)
        .env_clear()
        .env("PATH", path())
        .env("LANG", "C.UTF-8")
        .env("HOME", outside)
        .env("TMPDIR", outside.join("tmp"))
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("COFFERDAM_RESULT_FD", "3")
        .current_dir(dir)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    // 137 when it had to kill, which a program may also do to itself.
    assert!(began.elapsed() < Duration::from_secs(60), "{argv:?} hung");
    (output.status.code(), output.stdout)
}

fn run_job(job: &Job, dir: &Path) -> Ran {
    for file in &job.files {
        let path = dir.join(&file.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &file.bytes).unwrap();
    }
    let read = |name: &str| {
        String::from_utf8_lossy(&fs::read(dir.join("..").join(name)).unwrap()).into_owned()
    };
    if let Some(compile) = &job.compile {
        let (code, _) = spawn(dir, &compile.argv, &compile.env, b"");
        assert_eq!(
            code,
            Some(0),
            "{compile:?}\n{}{}",
            read("stdout"),
            read("stderr")
        );
    }
    let (code, result) = spawn(dir, &job.run.argv, &job.run.env, &job.stdin);
    let mut left: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .chain(fs::read_dir(dir.join(".cofferdam")).into_iter().flatten())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        fs::read_dir(dir.join("../tmp")).unwrap().count(),
        0,
        "a temporary file is left"
    );
    Ran {
        code,
        stdout: read("stdout"),
        stderr: read("stderr"),
        channel: job.result,
        result,
        left,
    }
}

/// The first toolchain whose probe works, with its version; says so when there is none.
fn usable(language: &Language) -> Option<&Toolchain> {
    let found = language.toolchains.iter().find(|toolchain| {
        let probe = Command::new("timeout")
            .args(["-k", "1", "20"])
            .args(&toolchain.probe)
            .env_clear()
            .env("PATH", path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = [probe.stdout, probe.stderr].concat();
        probe.status.success() && toolchain.version_from(&printed).is_ok()
    });
    if found.is_none() {
        let must = REQUIRED.contains(&language.name.as_str()) && std::env::var_os("CI").is_some();
        assert!(!must, "{} is needed, and CI must have it", language.title);
        eprintln!("SKIPPED: {} is not installed", language.title);
    }
    found
}

fn run_source(language: &str, change: impl FnOnce(&mut Source)) -> Option<Ran> {
    let catalogue = Catalogue::builtin().unwrap();
    let language = catalogue.find(language).unwrap();
    run_with(language, usable(language)?, change)
}

fn run_with(
    language: &Language,
    toolchain: &Toolchain,
    change: impl FnOnce(&mut Source),
) -> Option<Ran> {
    let outside = tempfile::tempdir().unwrap();
    let dir = outside.path().join("work");
    fs::create_dir(&dir).unwrap();
    fs::create_dir(outside.path().join("tmp")).unwrap();
    let mut source = Source::script("");
    source.dir = dir.to_str().unwrap().to_owned();
    change(&mut source);
    if source.mode != Mode::Script && !toolchain.has_handler() {
        eprintln!("SKIPPED: no handlers with {}", toolchain.program());
        return None;
    }
    let job = plan(language, toolchain, &source).unwrap();
    Some(run_job(&job, &dir))
}

fn handler(language: &str, code: &str, event: Value) -> Option<Ran> {
    run_source(language, |source| {
        source.code = code.to_owned();
        source.mode = Mode::Handler { event };
    })
}

fn auto(language: &str, code: &str) -> Option<Ran> {
    run_source(language, |source| {
        source.code = code.to_owned();
        source.mode = Mode::Auto { event: None };
    })
}

/// Runs the case in each language that has code for it.
fn each(cases: &[(&str, &str)], event: &Value, check: impl Fn(&str, Ran)) {
    for (language, code) in cases {
        if let Some(ran) = handler(language, code, event.clone()) {
            check(language, ran);
        }
    }
}

#[test]
fn the_event_without_anything_in_it_needs_no_file() {
    let cases = [
        ("python", "def handler(event):\n  return {'got': event}"),
        ("javascript", "exports.handler = (event) => ({got: event})"),
        (
            "shell",
            "handler() { printf '{\"got\":%s}' \"$1\" > \"$COFFERDAM_RESULT\"; }",
        ),
    ];
    each(&cases, &json!({}), |language, ran| {
        assert!(!ran.left.contains(&"event.json".to_owned()), "{ran:?}");
        assert_eq!(ran.returned(), json!({"got": {}}), "{language}: {ran:?}");
    });
}

#[test]
fn what_a_handler_returns_arrives_and_its_event_did() {
    let event = json!({"q": "\"quotes\" 'single' \\ $HOME `id` \n ü 文 😀 \u{0}", "n": [1, 2.5, null, true], "": {}});
    let cases = [
        ("python", "def handler(event):\n  return {'got': event}"),
        (
            "python",
            "async def handler(event):\n  import asyncio\n  await asyncio.sleep(0)\n  return {'got': event}",
        ),
        (
            "python",
            "def handler(event, context):\n  assert context == {}\n  return {'got': event}",
        ),
        (
            "python",
            "def handler(event, limit=3):\n  assert limit == 3\n  return {'got': event}",
        ),
        (
            "python",
            "class H:\n  def __call__(self, e): return {'got': e}\nhandler = H()",
        ),
        (
            "python",
            "import functools\ndef d(f):\n  @functools.wraps(f)\n  def w(*a): return f(*a)\n  return w\n@d\ndef handler(event, context): return {'got': event}",
        ),
        ("javascript", "exports.handler = (event) => ({got: event})"),
        (
            "javascript",
            "module.exports = {handler: async (event) => ({got: event})}",
        ),
        (
            "javascript",
            "function handler(event) { return {got: event} }",
        ),
        (
            "javascript",
            "const handler = async (event) => ({got: event}) // no newline",
        ),
        (
            "javascript",
            "globalThis.handler = (event) => ({got: event})",
        ),
        (
            "javascript",
            "export function handler(event) { return {got: event} }",
        ),
        (
            "javascript",
            "import fs from 'fs'\nconst handler = (event) => ({got: event})",
        ),
        (
            "javascript",
            "await null; export default { handler: (event) => ({got: event}) }",
        ),
        (
            "typescript",
            "function handler(event: any): object { return {got: event} }",
        ),
        (
            "typescript",
            "import fs from 'fs'\nexport async function handler(event: {q: string}) { return {got: event as any} }",
        ),
        (
            "shell",
            "handler() { printf '{\"got\":%s}' \"$1\" > \"$COFFERDAM_RESULT\"; }",
        ),
        (
            "shell",
            "handler() { { printf '{\"got\":'; cat; printf '}'; } > \"$COFFERDAM_RESULT\"; }",
        ),
    ];
    each(&cases, &event, |language, ran| {
        assert_eq!(ran.returned(), json!({ "got": event }), "{language}");
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
            (Some(0), "", ""),
            "{language}"
        );
        assert!(!ran.left.contains(&"event.json".to_owned()), "{ran:?}");
    });
}

#[test]
fn no_value_is_null() {
    let cases = [
        ("python", "def handler(event): pass"),
        ("javascript", "function handler() {}"),
        ("shell", "handler() { :; }"),
    ];
    each(&cases, &json!(null), |language, ran| {
        assert_eq!(
            (ran.returned(), ran.code),
            (Value::Null, Some(0)),
            "{language}"
        );
    });
}

#[test]
fn an_exception_arrives_with_its_own_frames_only() {
    let python = "import asyncio\n\ndef inner():\n    raise KeyError('gone')\n\nasync def handler(event):\n    try:\n        inner()\n    except KeyError as e:\n        raise ValueError('no \"good\" ü') from e\n";
    if let Some(ran) = handler("python", python, json!(1)) {
        let raised = ran.raised();
        assert_eq!(
            (raised.kind.as_str(), raised.message.as_str()),
            ("ValueError", "no \"good\" ü")
        );
        assert!(
            raised.traceback.contains("main.py\", line 10, in handler"),
            "{raised:?}"
        );
        assert!(raised.traceback.contains("line 4, in inner"), "{raised:?}");
        for ours in ["shim.py", "asyncio/"] {
            assert!(!raised.traceback.contains(ours), "{raised:?}");
        }
        assert_eq!((ran.code, ran.stderr), (Some(1), raised.traceback));
    }
    let javascript = "function inner() {\n  throw new TypeError('no \"good\" ü');\n}\nfunction handler() {\n  inner();\n}\n";
    for code in [
        javascript.to_owned(),
        javascript.replace("function handler", "export async function handler"),
    ] {
        let Some(ran) = handler("javascript", &code, json!(1)) else {
            continue;
        };
        let raised = ran.raised();
        assert_eq!(
            (raised.kind.as_str(), raised.message.as_str()),
            ("TypeError", "no \"good\" ü")
        );
        assert!(
            raised.traceback.contains("js:2:9") && raised.traceback.contains("js:5:3"),
            "{raised:?}"
        );
        assert!(
            !raised.traceback.contains("shim.cjs") && ran.stderr.contains("js:2:9"),
            "{ran:?}"
        );
        assert_eq!(ran.code, Some(1));
    }
    if let Some(ran) = handler("shell", "handler() { echo no >&2; return 7; }", json!(1)) {
        let raised = ran.raised();
        assert_eq!(
            (raised.kind.as_str(), raised.message.as_str()),
            ("HandlerFailed", "the handler ended with status 7")
        );
        assert_eq!(ran.code, Some(7));
    }
}

#[test]
fn errors_of_every_kind_become_one_answer() {
    let cases = [
        ("python", "def handler(e:\n", "SyntaxError"),
        ("python", "import nonsense_module", "ModuleNotFoundError"),
        (
            "python",
            "import sys, os\ndef handler(e):\n  sys.stdout.close(); sys.stderr.close(); os.closerange(0, 3); raise KeyError(1)",
            "KeyError",
        ),
        (
            "python",
            "import sys\ndef handler(e):\n  sys.stdout = sys.stderr = None; return {1}",
            "UnserializableResult",
        ),
        (
            "python",
            "class Odd(Exception):\n  def __str__(self): raise RuntimeError\ndef handler(e): raise Odd()",
            "Odd",
        ),
        (
            "python",
            "def handler(e): return handler(e)",
            "RecursionError",
        ),
        (
            "python",
            "def handler(e): raise Exception('x' * 10**7)",
            "Exception",
        ),
        (
            "python",
            "def handler(e): raise Exception('\\ud800')",
            "Exception",
        ),
        (
            "python",
            "import json\ndef handler(e): raise json.JSONDecodeError('a', 'b', 0)",
            "json.decoder.JSONDecodeError",
        ),
        ("javascript", "function handler( {", "SyntaxError"),
        ("javascript", "require('nonsense')", "Error"),
        ("javascript", "function handler() { throw 'text' }", "Error"),
        ("javascript", "function handler() { throw null }", "Error"),
        (
            "javascript",
            "function handler() { throw {get stack() { throw 1 }} }",
            "Error",
        ),
        (
            "javascript",
            "function handler() { throw new Error('\\ud800' + 'x'.repeat(1e7)) }",
            "Error",
        ),
        (
            "javascript",
            "function handler() { Promise.reject(new RangeError('lost')); return new Promise(() => setTimeout(() => {}, 1e6)) }",
            "RangeError",
        ),
        (
            "javascript",
            "function handler() { setTimeout(() => { throw new RangeError() }, 0); return new Promise(() => {}) }",
            "RangeError",
        ),
        (
            "javascript",
            "function handler() { return new Promise(() => {}) }",
            "Error",
        ),
        (
            "javascript",
            "function handler() { process.exit(0) }",
            "ProcessExit",
        ),
        ("shell", "handler() { exit 4; }", "HandlerFailed"),
        ("shell", "exit 4", "ScriptFailed"),
        ("shell", "handler() {", "ScriptFailed"),
        (
            "shell",
            "set -e\nhandler() { false; true; }",
            "HandlerFailed",
        ),
    ];
    for (language, code, kind) in cases {
        let Some(ran) = handler(language, code, json!({})) else {
            continue;
        };
        assert_eq!(ran.raised().kind, kind, "{code}: {ran:?}");
        assert!(ran.result.len() < 200_000, "{code}");
    }
}

#[test]
fn a_value_that_json_cannot_hold_is_a_clear_error() {
    let cases = [
        ("python", "def handler(e): return float('nan')"),
        ("python", "def handler(e): return {'a': [float('inf')]}"),
        ("python", "def handler(e): return {1, 2}"),
        ("python", "def handler(e): return {(1, 2): 3}"),
        ("python", "def handler(e): return b'x'"),
        ("python", "def handler(e): return '\\ud800'"),
        ("python", "def handler(e): return 2**64 + 1"),
        ("python", "def handler(e): return {1: 1, '1': 2}"),
        (
            "python",
            "def handler(e):\n  x = []\n  x.append(x)\n  return x",
        ),
        (
            "python",
            "def handler(e):\n  x = []\n  for _ in range(100): x = [x]\n  return x",
        ),
        (
            "python",
            "def handler(e):\n  x = []\n  for _ in range(10**5): x = [x]\n  return x",
        ),
        ("python", "def handler(e): return 'x' * (9 << 20)"),
        ("javascript", "function handler() { return NaN }"),
        (
            "javascript",
            "function handler() { return {a: [-Infinity]} }",
        ),
        ("javascript", "function handler() { return 1n }"),
        ("javascript", "function handler() { return {f() {}} }"),
        ("javascript", "function handler() { return Symbol('x') }"),
        (
            "javascript",
            "function handler() { return new Map([[1, 2]]) }",
        ),
        ("javascript", "function handler() { return '\\ud800' }"),
        ("javascript", "function handler() { return {'\\udc00': 1} }"),
        (
            "javascript",
            "function handler() { const x = {}; x.x = x; return x }",
        ),
        (
            "javascript",
            "function handler() { let x = []; for (let i = 0; i < 100; i++) x = [x]; return x }",
        ),
        (
            "javascript",
            "function handler() { let x = []; for (let i = 0; i < 1e5; i++) x = [x]; return x }",
        ),
        (
            "javascript",
            "function handler() { return 'x'.repeat(9 << 20) }",
        ),
        (
            "javascript",
            "function handler() { return {toJSON() { throw new Error('no') }} }",
        ),
        ("shell", "handler() { echo words > \"$COFFERDAM_RESULT\"; }"),
        ("shell", "handler() { echo NaN > \"$COFFERDAM_RESULT\"; }"),
        (
            "shell",
            "handler() { printf '1,\"ok\":false' > \"$COFFERDAM_RESULT\"; }",
        ),
        (
            "shell",
            "handler() { head -c 9437184 /dev/zero | tr '\\0' 1 > \"$COFFERDAM_RESULT\"; }",
        ),
        (
            "shell",
            "handler() { printf '1\\0' > \"$COFFERDAM_RESULT\"; }",
        ),
        (
            "shell",
            "handler() { rm \"$COFFERDAM_RESULT\"; mkdir \"$COFFERDAM_RESULT\"; }",
        ),
    ];
    for (language, code) in cases {
        let Some(ran) = handler(language, code, json!({})) else {
            continue;
        };
        let raised = ran.raised();
        assert_eq!(raised.kind, UNSERIALIZABLE, "{code}: {raised:?}");
        assert!(!raised.message.is_empty());
    }
}

#[test]
fn five_megabytes_fit() {
    let cases = [
        ("python", "def handler(e): return 'ü' * 2500000"),
        (
            "javascript",
            "function handler() { return 'ü'.repeat(2500000) }",
        ),
        (
            "shell",
            "handler() { { printf '\"'; head -c 5000000 /dev/zero | tr '\\0' x; printf '\"'; } > \"$COFFERDAM_RESULT\"; }",
        ),
    ];
    each(&cases, &json!(null), |language, ran| {
        assert_eq!(
            ran.returned().as_str().map(str::len),
            Some(5_000_000),
            "{language}"
        );
        assert!(ran.result.len() < MAX_RESULT_BYTES);
    });
}

#[test]
fn printing_a_result_forges_nothing() {
    let fake = r#"{"ok":true,"value":"forged"}"#;
    let python = format!(
        "import sys\nprint('{fake}')\ndef handler(e):\n  print('{fake}', flush=True)\n  print('{fake}', file=sys.stderr)\n  return 1"
    );
    let javascript = format!(
        "console.log('{fake}')\nfunction handler() {{ console.log('{fake}'); console.error('{fake}'); return 1 }}"
    );
    let shell = format!(
        "echo '{fake}'\nhandler() {{ echo '{fake}'; echo '{fake}' >&2; echo 1 > \"$COFFERDAM_RESULT\"; }}"
    );
    let cases = [
        ("python", python.as_str()),
        ("javascript", &javascript),
        ("shell", &shell),
    ];
    each(&cases, &json!(null), |language, ran| {
        assert_eq!(ran.returned(), json!(1), "{language}");
        assert_eq!(ran.stdout, format!("{fake}\n{fake}\n"), "{language}");
        assert_eq!(ran.stderr, format!("{fake}\n"), "{language}");
    });
}

#[test]
fn writing_to_the_descriptor_or_closing_it_is_an_error_and_never_a_hang() {
    let cases = [
        (
            "python",
            "import os\ndef handler(e):\n  os.closerange(3, 1000)\n  return 1",
        ),
        (
            "python",
            "import os\ndef handler(e):\n  os.write(3, b'garbage')\n  return 1",
        ),
        (
            "python",
            "import os\ndef handler(e):\n  for fd in range(3, 64):\n    try: os.write(fd, b'{\"ok\":true,\"value\":2}')\n    except OSError: pass\n  return 1",
        ),
        (
            "python",
            "import os\ndef handler(e):\n  os.closerange(3, 64)\n  keep.extend(open('f', 'w') for _ in range(30))\n  return 1\nkeep = []",
        ),
        ("python", "import os\ndef handler(e): os._exit(0)"),
        (
            "python",
            "import os\ndef handler(e): os.kill(os.getpid(), 9)",
        ),
        (
            "javascript",
            "function handler() { require('fs').closeSync(3); return 1 }",
        ),
        (
            "javascript",
            "function handler() { require('fs').writeSync(3, 'garbage'); return 1 }",
        ),
        (
            "javascript",
            "function handler() { require('fs').writeSync(3, '{\"ok\":true,\"value\":2}'); return 1 }",
        ),
        (
            "javascript",
            "const fs = require('fs'); function handler() { fs.closeSync(3); fs.openSync('f', 'w'); return 1 }",
        ),
        (
            "javascript",
            "function handler() { process.kill(process.pid, 'SIGKILL') }",
        ),
        ("javascript", "function handler() { process.reallyExit(0) }"),
        ("shell", "handler() { kill -9 $$; }"),
        ("shell", "handler() { rm -rf \"${COFFERDAM_RESULT%/*}\"; }"),
        ("shell", "handler() { echo garbage >&3; }"),
    ];
    for (language, code) in cases {
        let Some(ran) = handler(language, code, json!({})) else {
            continue;
        };
        let is_error = matches!(ran.answer(), Err(_) | Ok(Answer::Raised(_)));
        assert!(is_error, "{code}: {ran:?}");
    }
}

#[test]
fn children_do_not_get_the_descriptor_and_nobody_gets_the_variable() {
    // The machine may leave descriptors of its own open; ours is the pipe that is closed on exec.
    let python = r#"
import os, subprocess
def pipes(fds):
    return [os.readlink('/proc/self/fd/%s' % fd) for fd in fds if os.path.exists('/proc/self/fd/%s' % fd)]
def handler(event):
    fds = [int(fd) for fd in os.listdir('/proc/self/fd')]
    ours = [fd for fd in fds if os.path.exists('/proc/self/fd/%d' % fd) and not os.get_inheritable(fd)]
    list_all = 'cd /proc/self/fd; for f in *; do readlink $f; done; env'
    seen = subprocess.run(['sh', '-c', list_all], close_fds=False, stdout=open('../seen', 'w')) and open('../seen').read()
    return {'ours': [link for link in pipes(ours) if link.startswith('pipe:')], 'seen': seen, 'env': 'COFFERDAM_RESULT_FD' in os.environ}
"#;
    let javascript = r#"
const { spawnSync } = require('child_process');
const fs = require('fs');
function handler() {
  const listAll = 'cd /proc/self/fd; for f in *; do readlink $f; done; env';
  spawnSync('sh', ['-c', listAll], { stdio: ['inherit', fs.openSync('../seen', 'w'), 'ignore'] });
  const env = 'COFFERDAM_RESULT_FD' in process.env;
  return { ours: [fs.readlinkSync('/proc/self/fd/3')], seen: fs.readFileSync('../seen', 'utf8'), env };
}
"#;
    // Here the descriptor is where it was, in the shell that waits for this one.
    let shell = r#"
handler() {
    ours=$(readlink /proc/$PPID/fd/3)
    (cd /proc/self/fd; for f in *; do readlink $f; done; env) > ../seen
    grep -q COFFERDAM_RESULT_FD ../seen && env=true || env=false
    seen=$(tr '\n' ' ' < ../seen | tr -d '"\\')
    printf '{"ours":["%s"],"seen":"%s","env":%s}' "$ours" "$seen" $env > "$COFFERDAM_RESULT"
}
"#;
    let cases = [
        ("python", python),
        ("javascript", javascript),
        ("shell", shell),
    ];
    each(&cases, &json!(null), |language, ran| {
        let found = ran.returned();
        let ours: Vec<&str> = found["ours"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let seen = found["seen"].as_str().unwrap();
        assert_eq!(ours.len(), 1, "{language}: {found}");
        assert!(ours[0].starts_with("pipe:"), "{language}: {found}");
        assert!(
            seen.contains("/stdin") || language == "shell",
            "{language}: {found}"
        );
        assert!(!seen.contains(ours[0]), "{language}: {found}");
        assert!(
            !seen.contains("COFFERDAM_RESULT_FD") && found["env"] == json!(false),
            "{language}: {found}"
        );
    });
}

#[test]
fn what_a_handler_leaves_unfinished_is_not_waited_for() {
    let cases = [
        (
            "javascript",
            "function handler() { setInterval(() => {}, 1000); console.log('x'.repeat(100000)); return 1 }",
        ),
        (
            "javascript",
            "process.exitCode = 0; require('net').createServer().listen(0, '127.0.0.1'); function handler() { return 1 }",
        ),
        (
            "python",
            "import threading, time\ndef handler(e):\n  threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n  return 1",
        ),
        (
            "shell",
            "handler() { sleep 5 3>&- >/dev/null 2>&1 & echo 1 > \"$COFFERDAM_RESULT\"; }",
        ),
    ];
    let began = Instant::now();
    each(&cases, &json!(null), |language, ran| {
        assert_eq!(
            (ran.returned(), ran.code),
            (json!(1), Some(0)),
            "{language}"
        );
        assert!(
            [0, 100_001].contains(&ran.stdout.len()),
            "all of the output is there"
        );
    });
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_fork_that_comes_back_through_the_handler_answers_once() {
    let code = "import os\ndef handler(e):\n  pid = os.fork()\n  if pid: os.waitpid(pid, 0)\n  return 'parent' if pid else 'child'";
    if let Some(ran) = handler("python", code, json!(null)) {
        assert_eq!(ran.returned(), json!("parent"));
    }
}

#[test]
fn a_handler_that_must_be_there_and_is_not_is_named() {
    let cases = [
        ("python", "handler = 1"),
        ("javascript", "let handler = 1"),
        ("shell", "handler=1"),
    ];
    each(&cases, &json!(null), |language, ran| {
        assert_eq!(
            (ran.raised().kind.as_str(), ran.code),
            ("MissingHandler", Some(1)),
            "{language}"
        );
        assert!(ran.stderr.contains("handler"), "{ran:?}");
    });
}

#[test]
fn auto_runs_a_script_and_calls_a_handler_if_there_is_one() {
    let scripts = [
        (
            "python",
            "import sys\nprint(__name__, 'ü')\nsys.exit(3)",
            "__main__ ü\n",
        ),
        (
            "javascript",
            "console.log('ü', require.main === module); process.exitCode = 3",
            "ü true\n",
        ),
        ("shell", "echo ü\nexit 3", "ü\n"),
    ];
    for (language, code, stdout) in scripts {
        let Some(ran) = auto(language, code) else {
            continue;
        };
        assert_eq!(ran.answer(), Ok(Answer::Nothing), "{language}");
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
            (Some(3), stdout, ""),
            "{language}"
        );
    }
    let handlers = [
        ("python", "def handler(e): return e is None"),
        ("javascript", "export const handler = (e) => e === null"),
        (
            "shell",
            "handler() { [ \"$1\" = null ] && echo true > \"$COFFERDAM_RESULT\"; }",
        ),
    ];
    for (language, code) in handlers {
        let Some(ran) = auto(language, code) else {
            continue;
        };
        assert_eq!(ran.returned(), json!(true), "{language}");
    }
    for (language, code) in [("python", "1/0"), ("javascript", "throw new Error('x')")] {
        let Some(ran) = auto(language, code) else {
            continue;
        };
        assert_eq!(
            (ran.code, ran.raised().traceback.is_empty()),
            (Some(1), false),
            "{language}"
        );
    }
}

#[test]
fn an_exit_keeps_its_code() {
    for (code, status) in [
        ("import sys\ndef handler(e): sys.exit(3)", 3),
        ("raise SystemExit(5)", 5),
        ("def handler(e): exit()", 0),
    ] {
        let Some(ran) = handler("python", code, json!(null)) else {
            continue;
        };
        assert_eq!(
            (ran.raised().kind.as_str(), ran.code),
            ("SystemExit", Some(status)),
            "{code}"
        );
    }
    let Some(ran) = handler(
        "javascript",
        "function handler() { process.exit(3) }",
        json!(null),
    ) else {
        return;
    };
    assert_eq!(
        (ran.raised().kind.as_str(), ran.code),
        ("ProcessExit", Some(3))
    );
}

#[test]
fn files_beside_the_main_one_are_found_and_take_nobodys_place() {
    let file = |path: &str, text: &str| InlineFile {
        path: path.to_owned(),
        bytes: text.as_bytes().to_vec(),
    };
    let python = run_source("python", |source| {
        source.code = "import sys, helper, os\ndef handler(e):\n  return [helper.x, sys.argv[1:], sys.stdin.read(), os.path.basename(__file__), os.getcwd() == e]".to_owned();
        source.files = [
            "json.py",
            "fcntl.py",
            "traceback.py",
            "types.py",
            "sitecustomize.py",
        ]
        .map(|name| file(name, "raise SystemExit(9)"))
        .to_vec();
        source.files.push(file("helper.py", "x = 1"));
        source.args = vec!["a b".to_owned(), "--mode".to_owned()];
        source.stdin = b"in".to_vec();
        source.mode = Mode::Handler {
            event: json!(source.dir),
        };
    });
    if let Some(ran) = python {
        assert_eq!(
            ran.returned(),
            json!([1, ["a b", "--mode"], "in", "main.py", true])
        );
        assert!(!ran.left.contains(&"__pycache__".to_owned()), "{ran:?}");
    }
    let javascript = run_source("javascript", |source| {
        source.code = "import { x } from './lib/helper.mjs'; import fs from 'fs';\nexport const handler = () => [x, process.argv.slice(2), fs.readFileSync(0, 'utf8')]".to_owned();
        source.files = vec![
            file("lib/helper.mjs", "export const x = 1"),
            file("package.json", r#"{"type":"module"}"#),
        ];
        source.args = vec!["a b".to_owned(), "--mode".to_owned()];
        source.stdin = b"in".to_vec();
        source.mode = Mode::Handler { event: json!(null) };
    });
    if let Some(ran) = javascript {
        assert_eq!(ran.returned(), json!([1, ["a b", "--mode"], "in"]));
    }
    let shell = run_source("shell", |source| {
        source.code = ". ./lib/x.sh; read -r line; args=\"$#:$2\"\nhandler() { echo \"[\\\"$x\\\",\\\"$line\\\",\\\"$args\\\",\\\"$0\\\"]\" > \"$COFFERDAM_RESULT\"; }".to_owned();
        source.files = vec![file("lib/x.sh", "x=1")];
        source.args = vec!["a b".to_owned(), "--mode".to_owned()];
        source.stdin = b"in\n".to_vec();
        source.mode = Mode::Handler { event: json!(null) };
    });
    if let Some(ran) = shell {
        assert_eq!(ran.returned(), json!(["1", "in", "2:--mode", "main.sh"]));
    }
}

#[test]
fn the_shim_is_not_misled_by_modules_of_the_same_name() {
    let ran = run_source("python", |source| {
        source.code = "async def handler(event):\n  raise ValueError('x')".to_owned();
        source.files = ["traceback.py", "asyncio.py", "inspect.py", "linecache.py"]
            .map(|name| InlineFile {
                path: name.to_owned(),
                bytes: b"raise SystemExit(9)".to_vec(),
            })
            .to_vec();
        source.mode = Mode::Handler { event: json!(1) };
    });
    if let Some(ran) = ran {
        let raised = ran.raised();
        assert_eq!((raised.kind.as_str(), ran.code), ("ValueError", Some(1)));
        assert!(raised.traceback.contains("main.py\", line 2"), "{raised:?}");
    }
}

#[test]
fn a_posix_shell_does_as_well() {
    let catalogue = Catalogue::builtin().unwrap();
    let language = catalogue.find("shell").unwrap();
    let long = "x".repeat(300_000);
    let ran = run_with(language, &language.toolchains[1], |source| {
        source.code =
            "handler() { cat > \"$COFFERDAM_RESULT\"; [ \"${#1}\" -gt 300000 ]; }".to_owned();
        source.mode = Mode::Handler { event: json!(long) };
    });
    assert_eq!(ran.unwrap().returned(), json!(long));
}

#[test]
fn every_language_of_this_machine_runs_a_script() {
    let scripts = BTreeMap::from([
        (
            "c",
            "#include <stdio.h>\nint main(int n, char **a) { int c; printf(\"%s:\", a[1]); while ((c = getchar()) != EOF) putchar(c); return 3; }",
        ),
        (
            "cpp",
            "#include <iostream>\n#include <string>\nint main(int, char **a) { std::string s; std::getline(std::cin, s, '\\0'); std::cout << a[1] << ':' << s; return 3; }",
        ),
        (
            "go",
            "package main\nimport (\"fmt\"; \"io\"; \"os\")\nfunc main() { b, _ := io.ReadAll(os.Stdin); fmt.Printf(\"%s:%s\", os.Args[1], b); os.Exit(3) }",
        ),
        (
            "java",
            "public class Main { public static void main(String[] a) throws Exception { System.out.print(a[0] + \":\" + new String(System.in.readAllBytes(), \"UTF-8\")); System.exit(3); } }",
        ),
        (
            "javascript",
            "process.stdout.write(process.argv[2] + ':' + require('fs').readFileSync(0)); process.exitCode = 3",
        ),
        ("lua", "io.write(arg[1], ':', io.read('a')) os.exit(3)"),
        ("perl", "local $/; print $ARGV[0], ':', <STDIN>; exit 3"),
        (
            "php",
            "<?php echo $argv[1], ':', stream_get_contents(STDIN); exit(3);",
        ),
        (
            "python",
            "import sys; print(sys.argv[1], sys.stdin.read(), sep=':', end=''); sys.exit(3)",
        ),
        (
            "r",
            "cat(commandArgs(TRUE)[1], ':', readLines(file('stdin'), warn = FALSE), sep = ''); quit(status = 3)",
        ),
        ("ruby", "print ARGV[0], ':', STDIN.read; exit 3"),
        (
            "rust",
            "use std::io::Read;\nfn main() { let mut s = String::new(); std::io::stdin().read_to_string(&mut s).unwrap(); print!(\"{}:{s}\", std::env::args().nth(1).unwrap()); std::process::exit(3) }",
        ),
        ("shell", "printf '%s:' \"$1\"; cat; exit 3"),
        (
            "typescript",
            "import fs from 'fs';\nconst s: string = fs.readFileSync(0, 'utf8'); process.stdout.write(process.argv[2] + ':' + s); process.exitCode = 3",
        ),
    ]);
    let catalogue = Catalogue::builtin().unwrap();
    for language in catalogue.all() {
        let Some(toolchain) = usable(language) else {
            continue;
        };
        let ran = run_with(language, toolchain, |source| {
            source.code = scripts[language.name.as_str()].to_owned();
            source.args = vec!["ä b".to_owned()];
            source.stdin = "ü".into();
        });
        let ran = ran.unwrap();
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
            (Some(3), "ä b:ü", ""),
            "{}",
            language.name
        );
        let expected = if toolchain.compiles() {
            vec![".cofferdam", &language.file, "out"]
        } else {
            vec![language.file.as_str()]
        };
        assert_eq!(ran.left, expected, "{}", language.name);
    }
}
