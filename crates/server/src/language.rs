//! The seam to the toolchain: which languages there are, which of them work here, how source code becomes a command, and what came back over the result channel.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::ending::Ending;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::Problems;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Gpus, Grant, Network, Request, Root, Workspace};
use cofferdam_contract::units::Cap;
use cofferdam_engine::host::Host;
use cofferdam_engine::interpreter::{Interpreter, Way};
use cofferdam_engine::pipeline::{self, Evidence, Input, OnLimit, Sink, Streams};
use cofferdam_images::Rootfs;
use cofferdam_toolchain::{
    Answer as Told, BadManifests, Catalogue, InlineFile, Job, Language, Mode, RESERVED_DIR, Raised,
    ResultChannel, Source, Toolchain, WaitingWay,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::{Fault, Refusal};
use crate::work::{CommandTask, CompileStep};
use crate::workspace::{Executable, PlacedFile};

/// The languages, and what is known of those that were asked for.
#[derive(Debug)]
pub(crate) struct Languages {
    catalogue: Catalogue,
    known: Mutex<BTreeMap<String, Known>>,
    /// One probe at a time: they run beside the queue.
    probing: Mutex<()>,
}

/// What the probes of one language came to.
#[derive(Debug, Clone)]
enum Known {
    Works {
        /// Which of its toolchains.
        toolchain: usize,
        version: Option<String>,
    },
    Missing {
        why: String,
        since: Instant,
    },
}

/// What a client wants done with its code.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) code: String,
    pub(crate) mode: Mode,
    pub(crate) args: Vec<String>,
    pub(crate) files: Vec<PlacedFile>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stdin: Vec<u8>,
    /// Run once for each of them; empty for once with the arguments and the input above.
    pub(crate) inputs: Vec<InputWish>,
}

#[derive(Debug)]
pub(crate) struct InputWish {
    pub(crate) args: Vec<String>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) event: Option<Value>,
}

/// How one input is run.
#[derive(Debug)]
pub(crate) struct PlannedInput {
    pub(crate) argv: Vec<OsString>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) event: Option<PlacedFile>,
}

/// How that is run.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) task: CommandTask,
    pub(crate) files: Vec<PlacedFile>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) inputs: Vec<PlannedInput>,
    /// The defaults for this language.
    pub(crate) defaults: Limits,
}

/// One language, as a list shows it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LanguageView {
    pub(crate) name: String,
    /// As people write it.
    pub(crate) title: String,
    pub(crate) aliases: Vec<String>,
    /// Whether a `handler(event)` can be called.
    pub(crate) handlers: bool,
    /// Whether this machine has what it needs.
    pub(crate) available: bool,
    pub(crate) version: Option<String>,
    /// Why it is not available.
    pub(crate) why: Option<String>,
}

/// What a handler answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// There was no handler.
    None,
    Value(Value),
    Raised(Raised),
    /// There is no answer where there had to be one, or what came is none.
    Bad {
        why: String,
    },
}

impl Answer {
    /// About how many bytes it takes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Value(value) => weight(value),
            Self::Raised(raised) => {
                raised.kind.len() + raised.message.len() + raised.traceback.len()
            }
            Self::Bad { why } => why.len(),
        }
    }
}

/// Of a value in memory: small values take much more room than their text.
fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                size_of::<String>() + size_of::<usize>() + name.len() + weight(value)
            };
            fields.iter().map(field).sum()
        }
    };
    size_of::<Value>() + inside
}

/// What is not there may be installed meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
const PROBE_OUTPUT: usize = 8192;
const MOST_KNOWN: usize = 1024;

impl Languages {
    /// Later directories win over earlier ones, and all of them over what is built in.
    pub(crate) fn new(dirs: &[PathBuf]) -> Result<Self, BadManifests> {
        let builtin = Catalogue::builtin()?;
        let catalogue = dirs
            .iter()
            .try_fold(builtin, |catalogue, dir| catalogue.with_dir(dir))?;
        Ok(Self {
            catalogue,
            known: Mutex::new(BTreeMap::new()),
            probing: Mutex::new(()),
        })
    }

    /// Those that may be kept waiting, as the engine knows them.
    pub(crate) fn interpreters(&self) -> Vec<Interpreter> {
        let waiting = self.catalogue.all().filter_map(|language| {
            let waiting = language.waiting.as_ref()?;
            Some(Interpreter {
                name: waiting.program.clone(),
                way: match waiting.way {
                    WaitingWay::Copy => Way::Copy,
                    WaitingWay::Ahead => Way::Ahead,
                },
                env: os_pairs(language.env.clone()),
                preload: waiting.preload.clone(),
                scripts: scripts(language),
            })
        });
        let waiting: Vec<Interpreter> = waiting.collect();
        // Whoever names the program, and no language, has none of the language's variables.
        let copied = waiting.iter().filter(|it| it.way == Way::Copy);
        let plain = copied.map(|interpreter| Interpreter {
            env: Vec::new(),
            scripts: Vec::new(),
            ..interpreter.clone()
        });
        let plain: Vec<Interpreter> = plain.collect();
        [waiting, plain].concat()
    }

    /// Every language. Probes those that nobody has asked for yet, and blocks meanwhile.
    pub(crate) fn views(&self, host: &Host) -> Vec<LanguageView> {
        let views = self.catalogue.all().map(|language| {
            let (version, why) = match self.look(language, host, None) {
                Known::Works { version, .. } => (version, None),
                Known::Missing { why, .. } => (None, Some(why)),
            };
            LanguageView {
                name: language.name.clone(),
                title: language.title.clone(),
                aliases: language.aliases.clone(),
                handlers: language.has_handlers(),
                available: why.is_none(),
                version,
                why,
            }
        });
        views.collect()
    }

    /// Blocks where the language has not been probed yet.
    pub(crate) fn plan(
        &self,
        name: &str,
        wish: Wish,
        defaults: &Limits,
        host: &Host,
        image: Option<&Rootfs>,
    ) -> Result<Planned, Fault> {
        let language = self
            .catalogue
            .find(name)
            .map_err(|unknown| Fault::invalid("language", &unknown.name, &unknown.to_string()))?;
        let toolchain = match self.look(language, host, image) {
            Known::Works { toolchain, .. } => language.toolchains.get(toolchain),
            Known::Missing { why, .. } => {
                let detail = format!("language `{}`: {why}", language.name);
                return Err(Refusal::LanguageUnavailable.because(detail));
            }
        };
        let toolchain = toolchain.ok_or_else(|| Fault::internal("a toolchain was lost"))?;
        planned(language, toolchain, wish, defaults)
    }

    /// Of a language that was asked for already; empty where nobody knows.
    pub(crate) fn version(&self, name: &str) -> String {
        let language = self.catalogue.find(name).ok();
        match language.and_then(|language| self.remembered(&language.name)) {
            Some(Known::Works { toolchain, version }) => {
                format!("{toolchain} {}", version.unwrap_or_default())
            }
            Some(Known::Missing { .. }) | None => String::new(),
        }
    }

    /// Whether it is known what there is of a language, so that a plan blocks nobody.
    pub(crate) fn is_remembered(&self, name: &str) -> bool {
        let language = self.catalogue.find(name);
        language.is_ok_and(|language| self.remembered(&language.name).is_some())
    }

    /// With this machine's programs, or an image's.
    fn look(&self, language: &Language, host: &Host, image: Option<&Rootfs>) -> Known {
        let name = match image {
            None => language.name.clone(),
            Some(image) => format!("{} in {}", language.name, image.id()),
        };
        if let Some(known) = self.remembered(&name) {
            return known;
        }
        let _one = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.remembered(&name) {
            return known;
        }
        let found = probe(language, host, image);
        let mut known = self.known();
        // Images come and go; languages are few.
        if known.len() >= MOST_KNOWN {
            known.retain(|name, _| !name.contains(' '));
        }
        known.insert(name, found.clone());
        found
    }

    fn remembered(&self, name: &str) -> Option<Known> {
        let known = self.known().get(name).cloned()?;
        match &known {
            Known::Missing { since, .. } if since.elapsed() > LOOK_AGAIN => None,
            Known::Missing { .. } | Known::Works { .. } => Some(known),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn planned(
    language: &Language,
    toolchain: &Toolchain,
    wish: Wish,
    defaults: &Limits,
) -> Result<Planned, Fault> {
    let executables: Vec<String> = wish
        .files
        .iter()
        .filter(|file| file.executable == Executable::Yes)
        .map(|file| file.path.clone())
        .collect();
    let files = wish.files.into_iter().map(|file| InlineFile {
        path: file.path,
        bytes: file.content,
    });
    let source = Source {
        files: files.collect(),
        mode: wish.mode,
        args: wish.args,
        stdin: wish.stdin,
        ..Source::script(wish.code)
    };
    let mut job = cofferdam_toolchain::plan(language, toolchain, &source)?;
    let mut inputs = Vec::new();
    for (index, input) in wish.inputs.into_iter().enumerate() {
        inputs.push(planned_input(&job, input, index)?);
    }
    for file in &mut job.files {
        if executables.contains(&file.path) {
            file.mode |= 0o111;
        }
    }
    // Each input brings its own.
    for event in inputs.iter().filter_map(|input| input.event.as_ref()) {
        job.files.retain(|file| file.path != event.path);
    }
    let env = os_pairs(job.run.env_with(&wish.env));
    let compile = job.compile.map(|step| {
        Box::new(CompileStep {
            limits: step.needs.raise(defaults),
            env: os_pairs(step.env),
            argv: os(step.argv),
        })
    });
    Ok(Planned {
        files: job.files.into_iter().map(placed).collect(),
        stdin: job.stdin,
        inputs,
        defaults: job.run.needs.raise(defaults),
        task: CommandTask {
            argv: os(job.run.argv),
            env,
            cwd: None,
            compile,
            channel: job.result,
            inputs: None,
        },
    })
}

fn planned_input(job: &Job, input: InputWish, index: usize) -> Result<PlannedInput, Fault> {
    let of_input = |problems: Problems| {
        let mut fault = Fault::from(problems);
        fault.detail = format!("inputs[{index}].{}", fault.detail);
        fault
    };
    let own = job.for_input(&input.args, input.stdin).map_err(of_input)?;
    let event = input.event.map(|event| job.event_file(&event)).transpose();
    Ok(PlannedInput {
        argv: os(own.run.argv),
        stdin: own.stdin,
        event: event.map_err(of_input)?.flatten().map(placed),
    })
}

/// Its shim, as its programs find it: the same for every handler.
fn scripts(language: &Language) -> Vec<(String, String)> {
    let shim = language.handler.iter();
    shim.map(|shim| {
        let path = format!("{}/{RESERVED_DIR}/{}", Workspace::INSIDE, shim.file_name);
        (path, shim.text.clone())
    })
    .collect()
}

fn placed(file: cofferdam_toolchain::PlacedFile) -> PlacedFile {
    PlacedFile {
        path: file.path,
        content: file.bytes,
        executable: if file.mode & 0o100 == 0 {
            Executable::No
        } else {
            Executable::Yes
        },
    }
}

/// The first toolchain that works, tried in the sandbox that the work will run in.
fn probe(language: &Language, host: &Host, image: Option<&Rootfs>) -> Known {
    let mut reasons = Vec::new();
    for (index, toolchain) in language.toolchains.iter().enumerate() {
        match probe_one(toolchain, host, image) {
            Ok(version) => {
                return Known::Works {
                    toolchain: index,
                    version,
                };
            }
            Err(why) => reasons.push(why),
        }
    }
    Known::Missing {
        why: reasons.join("; "),
        since: Instant::now(),
    }
}

fn probe_one(
    toolchain: &Toolchain,
    host: &Host,
    image: Option<&Rootfs>,
) -> Result<Option<String>, String> {
    let mut request = Request {
        argv: os(toolchain.probe.clone()),
        env: Vec::new(),
        cwd: None,
        limits: Limits {
            wall_time: Cap::AtMost(Duration::from_secs(10)),
            ..Limits::DEFAULT
        },
        waived: Vec::new(),
        network: Network::Denied,
        root: Root::HostUsr,
        workspace: None,
        mounts: Vec::new(),
        backend: BackendName::Native,
        gpus: Gpus::None,
    };
    if let Some(image) = image {
        image.furnish(&mut request);
    }
    let keep = || Sink::Keep {
        at_most: PROBE_OUTPUT,
    };
    let streams = Streams {
        stdin: Input::Empty,
        stdout: keep(),
        stderr: keep(),
        result: None,
        on_output_limit: OnLimit::Stop,
        evidence: Evidence::Ending,
        cancel: None,
        recording: None,
        usage: None,
    };
    let grant = Grant::new(request).map_err(|problems| problems.to_string())?;
    let record = pipeline::run(grant, streams, host).map_err(|error| error.to_string())?;
    let program = toolchain.program();
    match &record.ending {
        Ending::Exited { code: 0 } => {}
        Ending::NeverStarted(failure) => return Err(format!("{program}: {}", failure.message)),
        other => return Err(format!("{program}: its probe ended with {}", other.kind())),
    }
    let mut output = record.stdout.bytes().unwrap_or_default();
    output.extend(record.stderr.bytes().unwrap_or_default());
    let version = toolchain
        .version_from(&output)
        .map_err(|error| error.to_string())?;
    Ok(version.map(|version| version.to_string()))
}

/// What came over the channel. One byte more than the longest answer is kept, so that an excess shows.
pub(crate) const KEEP_OF_CHANNEL: usize = cofferdam_toolchain::MAX_RESULT_BYTES + 1;

pub(crate) fn answer(channel: ResultChannel, record: &RunRecord) -> Answer {
    if !channel.is_open() {
        return Answer::None;
    }
    let bytes = record.result.as_ref().and_then(|result| result.bytes());
    match cofferdam_toolchain::answer(channel, &bytes.unwrap_or_default()) {
        Ok(Told::Returned(value)) => Answer::Value(value),
        Ok(Told::Raised(raised)) => Answer::Raised(raised),
        Ok(Told::Nothing) => Answer::None,
        Err(bad) => Answer::Bad {
            why: bad.to_string(),
        },
    }
}

fn os(arguments: Vec<String>) -> Vec<OsString> {
    arguments.into_iter().map(OsString::from).collect()
}

fn os_pairs(pairs: Vec<(String, String)>) -> Vec<(OsString, OsString)> {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}
