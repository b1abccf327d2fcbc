//! Which backend runs a request: the one place that the command line and the daemon ask.

use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Grant};
use cofferdam_contract::seal::Sealed;
#[cfg(feature = "wasm")]
use cofferdam_contract::task::Task;
use cofferdam_contract::units::Bytes;
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Quarters, Streams};
use cofferdam_store::DataDir;
use cofferdam_workshop::Carrier;

/// The verb of our own binary that compiles WebAssembly.
pub const COMPILE_VERB: &str = "wasm-compile";

/// Everything that can run something. Nothing is made before it is used.
#[derive(Debug)]
pub struct Backends {
    #[cfg(feature = "wasm")]
    wasm: Result<cofferdam_wasm::Wasm, String>,
    #[cfg(feature = "docker")]
    docker: cofferdam_docker::Settings,
}

/// What a request does not say.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The program, where it is brought along and not named.
    pub code: Option<Vec<u8>>,
    /// Where randomness begins in a run that must give the same each time; `None` for one that need not.
    pub seed: Option<u64>,
    /// The image of a container, where it is not the configured one.
    pub image: Option<String>,
}

impl Backends {
    /// For a process that runs one program.
    #[cfg_attr(
        not(feature = "wasm"),
        allow(unused_variables, reason = "nothing that is left needs them")
    )]
    pub fn of_process(dir: Option<&DataDir>) -> Self {
        Self {
            #[cfg(feature = "wasm")]
            wasm: wasm(dir, cofferdam_wasm::Instances::OnDemand),
            #[cfg(feature = "docker")]
            docker: cofferdam_docker::Settings::default(),
        }
    }

    /// For one that runs many, at most so many at a time.
    #[cfg_attr(
        not(feature = "wasm"),
        allow(unused_variables, reason = "nothing that is left needs them")
    )]
    pub fn of_daemon(dir: &DataDir, at_once: u32) -> Self {
        Self {
            #[cfg(feature = "wasm")]
            wasm: wasm(Some(dir), cofferdam_wasm::Instances::Pooled(at_once)),
            #[cfg(feature = "docker")]
            docker: cofferdam_docker::Settings::default(),
        }
    }

    /// With containers as somebody wants them.
    #[cfg(feature = "docker")]
    pub fn with_docker(mut self, docker: cofferdam_docker::Settings) -> Self {
        self.docker = docker;
        self
    }

    /// Runs a granted request to its end, in a sandbox that stands already where there is one.
    pub fn run(
        &self,
        quarters: Quarters,
        asked: &Asked,
        grant: Grant,
        streams: Streams<'_>,
        host: &Host,
    ) -> Result<RunRecord, EngineError> {
        let grant = match asked.seed {
            Some(seed) => grant.deterministic(seed)?,
            None => grant,
        };
        match grant.request().backend {
            BackendName::Native
            | BackendName::Bubblewrap
            | BackendName::Gvisor
            | BackendName::Host => pipeline::run_in(quarters, grant, streams, host),
            BackendName::Wasm => self.run_wasm(asked, grant, streams, host),
            BackendName::Docker => self.run_docker(asked, grant, streams, host),
        }
    }

    #[cfg(feature = "docker")]
    fn run_docker(
        &self,
        asked: &Asked,
        grant: Grant,
        streams: Streams<'_>,
        host: &Host,
    ) -> Result<RunRecord, EngineError> {
        let Some(image) = &asked.image else {
            return cofferdam_docker::run(grant, streams, host, &self.docker);
        };
        let settings = cofferdam_docker::Settings {
            image: Some(image.clone()),
            ..self.docker.clone()
        };
        cofferdam_docker::run(grant, streams, host, &settings)
    }

    #[cfg(not(feature = "docker"))]
    fn run_docker(
        &self,
        _: &Asked,
        _: Grant,
        _: Streams<'_>,
        _: &Host,
    ) -> Result<RunRecord, EngineError> {
        let why = "this binary was built without it".to_owned();
        Err(unavailable(BackendName::Docker, why))
    }

    #[cfg(feature = "wasm")]
    fn run_wasm(
        &self,
        asked: &Asked,
        grant: Grant,
        streams: Streams<'_>,
        host: &Host,
    ) -> Result<RunRecord, EngineError> {
        use cofferdam_wasm::{Code, Determinism};
        let wasm = self
            .wasm
            .as_ref()
            .map_err(|why| unavailable(BackendName::Wasm, why.clone()))?;
        let code = match (&asked.code, grant.request().argv.first()) {
            (Some(code), _) => Code::Bytes(code.as_slice().into()),
            (None, Some(path)) => Code::File(path.into()),
            (None, None) => {
                let why = "no program was named".to_owned();
                return Err(unavailable(BackendName::Wasm, why));
            }
        };
        let determinism = match asked.seed {
            Some(seed) => Determinism::Exact { seed },
            None => Determinism::Off,
        };
        wasm.run(&code, determinism, grant, streams, host)
    }

    #[cfg(not(feature = "wasm"))]
    fn run_wasm(
        &self,
        _: &Asked,
        _: Grant,
        _: Streams<'_>,
        _: &Host,
    ) -> Result<RunRecord, EngineError> {
        let why = "this binary was built without it".to_owned();
        Err(unavailable(BackendName::Wasm, why))
    }
}

/// What making a program of this payload may take before it runs, unless it was made before.
#[cfg(feature = "wasm")]
pub(crate) fn memory_to_compile(sealed: &Sealed) -> Bytes {
    match &sealed.payload().task {
        Task::Wasm(task) => {
            // Of base64, which is longer by a third.
            cofferdam_wasm::CompileBounds::default().memory_for(task.module_base64.len() / 4 * 3)
        }
        Task::Command(_) | Task::Source(_) | Task::Project(_) => Bytes::new(0),
    }
}

#[cfg(not(feature = "wasm"))]
pub(crate) fn memory_to_compile(_: &Sealed) -> Bytes {
    Bytes::new(0)
}

/// For the steps of a project.
impl Carrier for Backends {
    fn run(
        &self,
        grant: Grant,
        streams: Streams<'_>,
        host: &Host,
    ) -> Result<RunRecord, EngineError> {
        Self::run(
            self,
            Quarters::default(),
            &Asked::default(),
            grant,
            streams,
            host,
        )
    }
}

fn unavailable(backend: BackendName, why: String) -> EngineError {
    EngineError::Unavailable {
        backend: backend.as_str(),
        why,
        fix: "use --backend native".to_owned(),
    }
}

/// Code is compiled by this very binary, inside the sandbox.
#[cfg(feature = "wasm")]
fn wasm(
    dir: Option<&DataDir>,
    instances: cofferdam_wasm::Instances,
) -> Result<cofferdam_wasm::Wasm, String> {
    use cofferdam_wasm::{Compiler, Settings, Wasm};
    let program = std::env::current_exe()
        .map_err(|error| format!("our own binary, which compiles, cannot be found: {error}"))?;
    let compiler = Compiler {
        program,
        args: vec![COMPILE_VERB.into()],
    };
    let cache = dir.map(|dir| dir.path().join("wasm"));
    Ok(Wasm::new(Settings {
        instances,
        ..Settings::new(compiler, cache)
    }))
}
