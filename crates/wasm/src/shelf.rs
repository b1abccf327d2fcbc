//! Programs that wait in memory for their next run: bounded in bytes and in descriptors, of which the first contents of every memory take one.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::process::Resource;

use crate::cache::Name;
use crate::prepare::{Place, Program};

/// What was not used for longest goes first.
pub(crate) struct Shelf {
    programs: HashMap<Name, Stored>,
    bytes: usize,
    weight: u64,
    most_weight: u64,
    now: u64,
}

struct Stored {
    program: Program,
    place: Arc<Place>,
    bytes: usize,
    weight: u64,
    used: u64,
}

/// Compiled code of this size together is kept.
const MOST_BYTES: usize = 256 << 20;
/// So many programs, or programs with so many memories together.
const MOST_WEIGHT: u64 = 256;
/// Of the descriptors that this process may have. Runs need theirs as well.
const SHARE_OF_DESCRIPTORS: u64 = 8;

impl Shelf {
    /// As much as this process can afford.
    pub(crate) fn new() -> Self {
        let own = rustix::process::getrlimit(Resource::Nofile).current;
        let share = own.map_or(MOST_WEIGHT, |own| own / SHARE_OF_DESCRIPTORS);
        Self::of(share.min(MOST_WEIGHT))
    }

    fn of(most_weight: u64) -> Self {
        Self {
            programs: HashMap::new(),
            bytes: 0,
            weight: 0,
            most_weight,
            now: 0,
        }
    }

    pub(crate) fn take(&mut self, name: Name) -> Option<(Program, Arc<Place>)> {
        self.now += 1;
        let stored = self.programs.get_mut(&name)?;
        stored.used = self.now;
        Some((stored.program.clone(), Arc::clone(&stored.place)))
    }

    pub(crate) fn put(&mut self, name: Name, program: &Program, place: &Arc<Place>, bytes: usize) {
        self.now += 1;
        let weight = program.memories().max(1);
        let stored = Stored {
            program: program.clone(),
            place: Arc::clone(place),
            bytes,
            weight,
            used: self.now,
        };
        self.remove(name);
        self.bytes += bytes;
        self.weight += weight;
        self.programs.insert(name, stored);
        while self.is_too_full() && self.programs.len() > 1 {
            let oldest = self.programs.iter().min_by_key(|(_, stored)| stored.used);
            let Some(oldest) = oldest.map(|(name, _)| *name) else {
                return;
            };
            self.remove(oldest);
        }
    }

    fn is_too_full(&self) -> bool {
        self.bytes > MOST_BYTES || self.weight > self.most_weight
    }

    fn remove(&mut self, name: Name) {
        if let Some(old) = self.programs.remove(&name) {
            self.bytes -= old.bytes;
            self.weight -= old.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::{Engine, Linker, Module};

    use super::*;
    use crate::engines::Flavour;
    use crate::settings::{Compiler, Instances, Settings};

    const MOST: u64 = 8;

    fn place() -> Arc<Place> {
        let compiler = Compiler {
            program: "/nowhere".into(),
            args: Vec::new(),
        };
        let settings = Settings::new(compiler, None);
        Arc::new(Place::new(Flavour::Timed, Instances::OnDemand, &settings).unwrap())
    }

    fn linked(engine: &Engine, number: usize, memories: usize) -> (Name, Program) {
        let memories: String = (0..memories)
            .map(|index| format!("(memory 1) (data (memory {index}) (i32.const 0) \"{number}\")"))
            .collect();
        let code = format!("(module ;;{number}\n {memories} (func (export \"_start\")))");
        let module = Module::new(engine, &code).unwrap();
        let program = Linker::new(engine).instantiate_pre(&module).unwrap();
        let name = Name::of(code.as_bytes(), Flavour::Timed, 0);
        (name, Program::Module(program))
    }

    /// As its first run does: what its memories begin with lies in files of this process.
    fn make_images(program: &Program) {
        let Program::Module(pre) = program else {
            panic!("no module");
        };
        pre.module().initialize_copy_on_write_image().unwrap();
    }

    fn images() -> u64 {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let is_image = |path: std::path::PathBuf| {
            std::fs::read_link(path)
                .is_ok_and(|to| to.to_string_lossy().contains("wasm-memory-image"))
        };
        let count = open.filter(|entry| is_image(entry.as_ref().unwrap().path()));
        u64::try_from(count.count()).unwrap()
    }

    #[test]
    fn programs_on_the_shelf_never_hold_more_descriptors_than_their_share() {
        let place = place();
        for memories in [1, 3] {
            let mut shelf = Shelf::of(MOST);
            let mut last = None;
            for number in 0..20 {
                let (name, program) = linked(&place.engine, number, memories);
                make_images(&program);
                shelf.put(name, &program, &place, 1);
                drop(program);
                assert!((1..=MOST).contains(&images()), "{}", images());
                assert!(shelf.weight <= MOST);
                last = Some(name);
            }
            assert!(shelf.take(last.unwrap()).is_some());
        }
        assert_eq!(images(), 0);
    }

    #[test]
    fn programs_without_data_are_counted_and_the_one_just_put_there_stays() {
        let place = place();
        let mut shelf = Shelf::of(2);
        let many = [(1, 0), (2, 0), (3, 0), (4, 5)]
            .map(|(number, memories)| linked(&place.engine, number, memories));
        for (name, program) in &many {
            shelf.put(*name, program, &place, 1);
        }
        assert_eq!((shelf.programs.len(), shelf.weight, shelf.bytes), (1, 5, 1));
        let (name, program) = linked(&place.engine, 7, 0);
        shelf.put(name, &program, &place, MOST_BYTES);
        shelf.put(name, &program, &place, MOST_BYTES);
        assert_eq!(
            (shelf.programs.len(), shelf.weight, shelf.bytes),
            (1, 1, MOST_BYTES)
        );
    }
}
