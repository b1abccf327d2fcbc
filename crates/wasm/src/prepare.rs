//! From code to something that can be started at once: looked for in memory, then on disk, then compiled; linked with what programs may call, once for all its runs.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cofferdam_contract::ending::{SetupFailure, SetupFailureKind};
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use wasmtime::component;
use wasmtime::{Engine, ExternType, InstancePre, Linker};
use wasmtime_wasi::p2::bindings::CommandPre;

use crate::cache::{Cache, Name};
use crate::calls;
use crate::component_files;
use crate::component_network;
use crate::engines::{self, Flavour};
use crate::guest::Guest;
use crate::load::{self, Genuine, Loaded};
use crate::settings::{Instances, Settings};
use crate::shelf::Shelf;
use crate::steady;
use crate::ticker::Ticker;
use crate::workshop::{self, Unmade};

/// A program that only has to be started.
#[derive(Clone)]
pub(crate) enum Program {
    Module(InstancePre<Guest>),
    Component(CommandPre<Guest>),
}

impl Program {
    /// How many memories it starts with. Each may hold a descriptor for as long as the program is kept.
    pub(crate) fn memories(&self) -> u64 {
        let needs = match self {
            Self::Module(pre) => Some(pre.module().resources_required()),
            // Not known only where modules are imported, and there are none to import.
            Self::Component(pre) => pre.instance_pre().component().resources_required(),
        };
        needs.map_or(0, |needs| u64::from(needs.num_memories))
    }
}

/// Where it came from, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Memory,
    Disk,
    /// With the reason why it could not be kept, if it could not.
    Compiled {
        unkept: Option<String>,
    },
}

pub(crate) struct Ready {
    pub(crate) program: Program,
    pub(crate) place: Arc<Place>,
    pub(crate) origin: Origin,
}

/// One engine with everything that belongs to it.
pub(crate) struct Place {
    flavour: Flavour,
    pub(crate) engine: Engine,
    pub(crate) ticker: Ticker,
    modules: OnceLock<Linker<Guest>>,
    components: OnceLock<component::Linker<Guest>>,
}

/// Everything that has been made ready.
pub(crate) struct Pantry {
    cache: OnceLock<Result<Option<Cache>, String>>,
    places: Mutex<HashMap<(Flavour, Instances), Arc<Place>>>,
    shelf: Mutex<Shelf>,
}

/// What every command has.
const ENTRY: &str = "_start";

impl Pantry {
    pub(crate) fn new() -> Self {
        Self {
            cache: OnceLock::new(),
            places: Mutex::default(),
            shelf: Mutex::new(Shelf::new()),
        }
    }

    pub(crate) fn ready(
        &self,
        code: &[u8],
        flavour: Flavour,
        settings: &Settings,
        host: &Host,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Ready, Unmade> {
        // Where there are not enough addresses to reserve, each program gets its memory when it starts.
        let place = self
            .place(flavour, settings.instances, settings)
            .or_else(|_| self.place(flavour, Instances::OnDemand, settings))?;
        let name = Name::of(code, flavour, engines::fingerprint(&place.engine));
        if let Some((program, place)) = lock(&self.shelf).take(name) {
            return Ok(Ready {
                program,
                place,
                origin: Origin::Memory,
            });
        }
        let cache = self.cache(settings);
        let kept = cache
            .as_ref()
            .ok()
            .and_then(|cache| cache.as_ref()?.get(name));
        // What another version compiled is compiled again.
        if let Some(kept) = kept
            && let Ok((program, place)) = self.link(&kept, flavour, &place, settings)
        {
            lock(&self.shelf).put(name, &program, &place, kept.bytes().len());
            return Ok(Ready {
                program,
                place,
                origin: Origin::Disk,
            });
        }
        let compiled = workshop::compile(code.to_vec(), flavour, settings, host, cancel)?;
        let (program, place) = self.link(&compiled, flavour, &place, settings)?;
        let unkept = match cache {
            Ok(Some(cache)) => cache.put(name, &compiled).err().map(|e| e.to_string()),
            Ok(None) => None,
            Err(why) => Some(why.clone()),
        };
        lock(&self.shelf).put(name, &program, &place, compiled.bytes().len());
        Ok(Ready {
            program,
            place,
            origin: Origin::Compiled { unkept },
        })
    }

    fn cache(&self, settings: &Settings) -> &Result<Option<Cache>, String> {
        self.cache.get_or_init(|| {
            let dir = settings.cache.as_deref();
            dir.map(|dir| Cache::open(dir, settings.cache_bytes))
                .transpose()
                .map_err(|error| error.to_string())
        })
    }

    fn place(
        &self,
        flavour: Flavour,
        instances: Instances,
        settings: &Settings,
    ) -> Result<Arc<Place>, EngineError> {
        let mut places = lock(&self.places);
        if let Some(place) = places.get(&(flavour, instances)) {
            return Ok(Arc::clone(place));
        }
        let place = Arc::new(Place::new(flavour, instances, settings)?);
        places.insert((flavour, instances), Arc::clone(&place));
        Ok(place)
    }

    /// A program that is too large for the pool runs in memory of its own.
    fn link(
        &self,
        code: &Genuine,
        flavour: Flavour,
        place: &Arc<Place>,
        settings: &Settings,
    ) -> Result<(Program, Arc<Place>), Unmade> {
        let unusable = |error: wasmtime::Error| {
            Unmade::Failed(SetupFailure {
                kind: SetupFailureKind::ProgramNotExecutable,
                step: "link the module".to_owned(),
                message: format!("the module cannot be run: {error:#}"),
                errno: None,
            })
        };
        match load::load(&place.engine, code) {
            Ok(loaded) => Ok((place.link(loaded).map_err(unusable)?, Arc::clone(place))),
            Err(_) if settings.instances != Instances::OnDemand => {
                let place = self.place(flavour, Instances::OnDemand, settings)?;
                let loaded = load::load(&place.engine, code).map_err(unusable)?;
                Ok((place.link(loaded).map_err(unusable)?, place))
            }
            Err(error) => Err(unusable(error)),
        }
    }
}

impl Place {
    pub(crate) fn new(
        flavour: Flavour,
        instances: Instances,
        settings: &Settings,
    ) -> Result<Self, EngineError> {
        let unavailable = |why: String| {
            EngineError::Unavailable {
            backend: "wasm",
            why,
            fix: "this machine has too little address space or too many threads; use --backend native".to_owned(),
        }
        };
        let engine = engines::engine(flavour, instances, settings.stack)
            .map_err(|error| unavailable(format!("{error:#}")))?;
        let ticker = Ticker::start(&engine).map_err(|error| unavailable(error.to_string()))?;
        Ok(Self {
            flavour,
            engine,
            ticker,
            modules: OnceLock::new(),
            components: OnceLock::new(),
        })
    }

    fn link(&self, loaded: Loaded) -> wasmtime::Result<Program> {
        match loaded {
            Loaded::Module(module) => {
                let is_command = module.get_export(ENTRY).is_some_and(|export| match export {
                    ExternType::Func(entry) => {
                        entry.params().len() == 0 && entry.results().len() == 0
                    }
                    _ => false,
                });
                if !is_command {
                    return Err(wasmtime::Error::msg(format!(
                        "it has no function `{ENTRY}` to begin with; build it as a command, not as a library"
                    )));
                }
                let linker = once(&self.modules, || {
                    let mut linker = Linker::new(&self.engine);
                    wasmtime_wasi::p1::add_to_linker_async(&mut linker, |guest: &mut Guest| {
                        &mut guest.wasi
                    })?;
                    calls::lay_over(&mut linker)?;
                    if self.flavour == Flavour::Counted {
                        steady::lay_over(&mut linker)?;
                    }
                    Ok(linker)
                })?;
                Ok(Program::Module(linker.instantiate_pre(&module)?))
            }
            Loaded::Component(component) => {
                let linker = once(&self.components, || {
                    let mut linker = component::Linker::new(&self.engine);
                    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
                    component_files::lay_over(&mut linker, self.flavour)?;
                    component_network::lay_over(&mut linker)?;
                    Ok(linker)
                })?;
                let pre = linker.instantiate_pre(&component)?;
                Ok(Program::Component(CommandPre::new(pre)?))
            }
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("in memory"),
            Self::Disk => f.write_str("from the cache"),
            Self::Compiled { unkept: None } => f.write_str("compiled in the native sandbox"),
            Self::Compiled { unkept: Some(why) } => {
                write!(f, "compiled in the native sandbox; not kept: {why}")
            }
        }
    }
}

fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> wasmtime::Result<T>) -> wasmtime::Result<&T> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
