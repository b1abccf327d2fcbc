//! From source code to a [`Job`]: which files to write, what to compile, what to run. Decides everything and does nothing; a job can only
//! be made here, so that every path in it stays below the workspace.

use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::request::Workspace;
use cofferdam_contract::task::MAX_CODE_BYTES;
use serde_json::Value;

use crate::language::{Language, Toolchain};
use crate::needs::Needs;
use crate::paths::{self, MAX_FILES, MAX_FILES_BYTES, RESERVED_DIR};
use crate::template::Fill;

/// Source code with all that goes with it, as a caller got it. Not yet checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    pub code: String,
    /// Relative to the workspace; the language's own name for the main file when absent.
    pub file_name: Option<String>,
    pub files: Vec<InlineFile>,
    pub mode: Mode,
    pub args: Vec<String>,
    pub stdin: Vec<u8>,
    /// The workspace as the program will see it, absolute.
    pub dir: String,
}

/// A file that came with the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineFile {
    /// Relative to the workspace.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// What is to be done with the code.
#[derive(Debug, Clone, PartialEq)]
pub enum Mode {
    /// Run it. There is no answer but its output and its exit code.
    Script,
    /// Call its handler, which must be there.
    Handler { event: Value },
    /// Call its handler if it has one; otherwise having run it was all. A language without handlers runs it as a script.
    Auto { event: Option<Value> },
}

/// What the caller does: write the files, compile, run, read the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    pub files: Vec<PlacedFile>,
    /// Where the steps start: the workspace as they see it.
    pub dir: String,
    pub compile: Option<Step>,
    pub run: Step,
    /// For the run; compiling reads nothing.
    pub stdin: Vec<u8>,
    pub result: ResultChannel,
    /// How many arguments of the run are not the user's.
    own_arguments: usize,
}

/// A file to write. Missing directories are made; nothing of the path is a link, because the workspace is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedFile {
    /// Relative to the workspace, checked.
    pub path: String,
    pub bytes: Vec<u8>,
    pub mode: u32,
}

/// A command for the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub argv: Vec<String>,
    /// Added to the sandbox's clean environment; see [`Step::env_with`].
    pub env: Vec<(String, String)>,
    pub needs: Needs,
}

/// Whether the program gets the result descriptor, and what silence on it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultChannel {
    /// No descriptor.
    None,
    /// A descriptor; silence is [`crate::Answer::Nothing`].
    MayAnswer,
    /// A descriptor; silence is an error.
    MustAnswer,
}

const MAX_EVENT_BYTES: usize = 8 << 20;
/// What a shim takes for the event when there is no file: most programs have none.
const EMPTY_EVENT: &[u8] = b"{}";
const FILE_MODE: u32 = 0o644;

/// Checks the source as a whole and says what to do with it, or everything that is wrong.
pub fn plan(language: &Language, toolchain: &Toolchain, source: &Source) -> Result<Job, Problems> {
    let main = source.file_name.as_deref().unwrap_or(&language.file);
    let mut found = Vec::new();
    check_code(source, &mut found);
    check_files(source, main, &mut found);
    check_arguments(&source.args, &mut found);
    let call = check_mode(language, toolchain, &source.mode, &mut found);
    Problems::check(found)?;
    Ok(lay_out(language, toolchain, source, main, &call))
}

impl Source {
    /// A script in the native sandbox's workspace, with nothing beside it.
    pub fn script(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            file_name: None,
            files: Vec::new(),
            mode: Mode::Script,
            args: Vec::new(),
            stdin: Vec::new(),
            dir: Workspace::INSIDE.to_owned(),
        }
    }
}

impl Job {
    /// The same job for another input, so that what was compiled once runs many times.
    pub fn for_input(&self, args: &[String], stdin: Vec<u8>) -> Result<Self, Problems> {
        let mut found = Vec::new();
        check_arguments(args, &mut found);
        Problems::check(found)?;
        let mut job = self.clone();
        job.run.argv.truncate(self.own_arguments);
        job.run.argv.extend_from_slice(args);
        job.stdin = stdin;
        Ok(job)
    }

    /// The event of another input, in the place of the one before it; `None` for a job that calls no handler.
    pub fn event_file(&self, event: &Value) -> Result<Option<PlacedFile>, Problems> {
        if !self.result.is_open() {
            return Ok(None);
        }
        let mut found = Vec::new();
        let bytes = event_bytes(event, &mut found);
        Problems::check(found)?;
        Ok(Some(placed(event_path(), bytes)))
    }
}

impl Step {
    /// The environment with the caller's variables on top, each name once.
    pub fn env_with(&self, callers: &[(String, String)]) -> Vec<(String, String)> {
        let replaced = |name: &String| callers.iter().any(|(other, _)| other == name);
        let ours = self.env.iter().filter(|(name, _)| !replaced(name));
        ours.chain(callers).cloned().collect()
    }
}

impl ResultChannel {
    pub const fn is_open(self) -> bool {
        match self {
            Self::None => false,
            Self::MayAnswer | Self::MustAnswer => true,
        }
    }
}

/// How the handler is called, if it is.
struct Call {
    /// The shim's word for it, and the event as JSON.
    shimmed: Option<(&'static str, Vec<u8>)>,
    result: ResultChannel,
}

fn check_code(source: &Source, found: &mut Vec<Problem>) {
    if source.code.is_empty() {
        found.push(Problem::new("code", "", "is empty; write the source code"));
    } else if source.code.len() > MAX_CODE_BYTES {
        let fix = format!("is longer than {MAX_CODE_BYTES} bytes; move parts of it into files");
        found.push(Problem::new("code", &source.code, fix));
    }
    if !source.dir.starts_with('/') || source.dir.contains('\0') {
        let fix = "is not an absolute path; name the workspace as the program sees it";
        found.push(Problem::new("dir", &source.dir, fix));
    }
}

fn check_files(source: &Source, main: &str, found: &mut Vec<Problem>) {
    if let Some(fix) = paths::problem(main) {
        found.push(Problem::new("file_name", main, fix));
    }
    if source.files.len() > MAX_FILES {
        let fix = format!("are more than {MAX_FILES} files; pack them into one");
        found.push(Problem::new("files", source.files.len(), fix));
        return;
    }
    let bytes = source
        .files
        .iter()
        .fold(0_usize, |sum, file| sum.saturating_add(file.bytes.len()));
    if bytes > MAX_FILES_BYTES {
        let fix = format!("are more than {MAX_FILES_BYTES} bytes together; send less");
        found.push(Problem::new("files", bytes, fix));
    }
    let mut fine = Vec::new();
    for (i, file) in source.files.iter().enumerate() {
        let field = format!("files[{i}].path");
        match paths::problem(&file.path) {
            Some(fix) => found.push(Problem::new(field, &file.path, fix)),
            None => fine.push((field, file.path.as_str())),
        }
    }
    found.extend(paths::collisions(main, &fine));
}

fn check_arguments(args: &[String], found: &mut Vec<Problem>) {
    for (i, argument) in args.iter().enumerate() {
        if argument.contains('\0') {
            let fix = "has a NUL character, which no argument can; remove it";
            found.push(Problem::new(format!("args[{i}]"), argument, fix));
        }
    }
}

fn check_mode(
    language: &Language,
    toolchain: &Toolchain,
    mode: &Mode,
    found: &mut Vec<Problem>,
) -> Call {
    let script = Call {
        shimmed: None,
        result: ResultChannel::None,
    };
    let can = toolchain.has_handler() && language.handler.is_some();
    let cannot = |fix: &str| {
        let fix = format!("{} {fix}", language.title);
        Problem::new("event", &language.name, fix)
    };
    match mode {
        Mode::Script | Mode::Auto { event: None } if !can => script,
        Mode::Script => script,
        Mode::Handler { .. } | Mode::Auto { event: Some(_) } if !can => {
            let fix = format!(
                "has no handlers with `{}`; send the event as stdin and print the result",
                toolchain.program()
            );
            found.push(cannot(&fix));
            script
        }
        Mode::Handler { event } => Call {
            shimmed: Some(("handler", event_bytes(event, found))),
            result: ResultChannel::MustAnswer,
        },
        Mode::Auto { event } => Call {
            shimmed: Some((
                "auto",
                event_bytes(event.as_ref().unwrap_or(&Value::Null), found),
            )),
            result: ResultChannel::MayAnswer,
        },
    }
}

/// Where a shim reads the event. Nobody else's file is below there: see [`paths::problem`].
fn event_path() -> String {
    format!("{RESERVED_DIR}/event.json")
}

fn event_bytes(event: &Value, found: &mut Vec<Problem>) -> Vec<u8> {
    let bytes = event.to_string().into_bytes();
    if bytes.len() > MAX_EVENT_BYTES {
        let fix = format!("is more than {MAX_EVENT_BYTES} bytes of JSON; send it as a file");
        found.push(Problem::new("event", bytes.len(), fix));
    }
    bytes
}

/// Everything has been checked.
fn lay_out(
    language: &Language,
    toolchain: &Toolchain,
    source: &Source,
    main: &str,
    call: &Call,
) -> Job {
    let dir = source.dir.trim_end_matches('/');
    let below = |name: &str| format!("{RESERVED_DIR}/{name}");
    let sources = sources(main, source);
    let shim = language.handler.as_ref();
    let shim_path = shim.map_or(String::new(), |shim| below(&shim.file_name));
    let fill = Fill {
        file: main,
        stem: stem(main),
        dir: &source.dir,
        out: &format!("{dir}/{}", below("out")),
        shim: &format!("{dir}/{shim_path}"),
        mode: call.shimmed.as_ref().map_or("", |(mode, _)| mode),
        sources: &sources,
    };
    let mut code = source.code.clone();
    let mut files = Vec::new();
    if let (Some(shim), Some((_, event))) = (shim, &call.shimmed) {
        code.push_str(&shim.append);
        files.push(placed(shim_path.clone(), shim.text.clone().into_bytes()));
        if event != EMPTY_EVENT {
            files.push(placed(event_path(), event.clone()));
        }
    }
    files.push(placed(main.to_owned(), code.into_bytes()));
    files.extend(
        source
            .files
            .iter()
            .map(|file| placed(file.path.clone(), file.bytes.clone())),
    );
    let step = |argv, needs: &Needs| Step {
        argv,
        env: language.env.clone(),
        needs: needs.clone(),
    };
    let command = match (&toolchain.handler, &call.shimmed) {
        (Some(handler), Some(_)) => handler,
        _ => &toolchain.run,
    };
    let compile = toolchain.compile.as_ref();
    if compile.is_some() {
        // Compilers do not make the directory they are told to write to.
        files.push(placed(below("out/.keep"), Vec::new()));
    }
    let mut argv = command.fill(&fill);
    let own_arguments = argv.len();
    argv.extend_from_slice(&source.args);
    Job {
        files,
        dir: source.dir.clone(),
        compile: compile.map(|compile| step(compile.argv.fill(&fill), &compile.needs)),
        run: step(argv, &language.needs),
        stdin: source.stdin.clone(),
        result: call.result,
        own_arguments,
    }
}

fn placed(path: String, bytes: Vec<u8>) -> PlacedFile {
    PlacedFile {
        path,
        bytes,
        mode: FILE_MODE,
    }
}

fn stem(main: &str) -> &str {
    match main.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && !extension.contains('/') => stem,
        _ => main,
    }
}

/// The main file, and whatever has its extension.
fn sources(main: &str, source: &Source) -> Vec<String> {
    let extension = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.rsplit_once('.')
            .map(|(_, extension)| extension.to_owned())
    };
    let of_main = extension(main);
    let others = source
        .files
        .iter()
        .map(|file| &file.path)
        .filter(|path| of_main.is_some() && extension(path) == of_main);
    std::iter::once(main.to_owned())
        .chain(others.cloned())
        .collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
