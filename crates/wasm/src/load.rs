//! The one place where compiled code becomes executable. It must be what our own compiler made in its sandbox: the caller gets it from there, or from the cache, which has checked
//! that it is.

use wasmtime::component::Component;
use wasmtime::{Engine, Module, Precompiled};

/// Code that can be run.
#[derive(Clone)]
pub(crate) enum Loaded {
    Module(Module),
    Component(Component),
}

/// What the compiler made, and nobody else had a hand on since.
#[derive(Debug)]
pub(crate) struct Genuine(Vec<u8>);

impl Genuine {
    /// For whoever has just received it from the compiler, or checked it against the key that only we have.
    pub(crate) fn vouched(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Fails where it was compiled by another version or with other settings: the engine compares.
#[allow(
    unsafe_code,
    reason = "the engine cannot tell good machine code from bad; the type says that somebody who can has looked"
)]
pub(crate) fn load(engine: &Engine, code: &Genuine) -> wasmtime::Result<Loaded> {
    match Engine::detect_precompiled(code.bytes()) {
        Some(Precompiled::Module) => {
            // SAFETY: the bytes are what `Engine::precompile_module` returned: a `Genuine` is made of what came out of our compiler's sandbox, or of a cache entry whose keyed
            // hash fits. They are copied out of a buffer that nobody else can write to.
            unsafe { Module::deserialize(engine, code.bytes()) }.map(Loaded::Module)
        }
        Some(Precompiled::Component) => {
            // SAFETY: as above, with `Engine::precompile_component`.
            unsafe { Component::deserialize(engine, code.bytes()) }.map(Loaded::Component)
        }
        None => Err(wasmtime::Error::msg("it is no compiled code")),
    }
}
