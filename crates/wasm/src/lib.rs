//! The WebAssembly backend.
