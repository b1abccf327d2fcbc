//! The compiler's side of the wall: reads a stranger's code, writes what the engine runs. Belongs inside a sandbox and is of no use outside: nothing here bounds time or memory.

use std::io::{Read, Write};

use crate::engines::{self, Flavour};
use crate::settings::{Instances, Settings};

/// Why there is nothing to run. Whoever wrote the code reads it.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("cannot read the code: {0}")]
    Unreadable(#[source] std::io::Error),
    #[error("is not WebAssembly: {0}")]
    Malformed(String),
    #[error("cannot write the result: {0}")]
    Unwritable(#[source] std::io::Error),
}

/// The eight bytes that every binary begins with: these are a component's last four, a module has another version and layer there.
const COMPONENT: [u8; 4] = [0x0d, 0x00, 0x01, 0x00];
const MAGIC: &[u8] = b"\0asm";

/// Compiles what `from` gives, binary or text, for `flavour`.
pub fn compile_stream(
    flavour: Flavour,
    mut from: impl Read,
    mut to: impl Write,
) -> Result<(), CompileError> {
    let mut code = Vec::new();
    from.read_to_end(&mut code)
        .map_err(CompileError::Unreadable)?;
    let compiled = compile(flavour, &code)?;
    to.write_all(&compiled)
        .and_then(|()| to.flush())
        .map_err(CompileError::Unwritable)
}

fn compile(flavour: Flavour, code: &[u8]) -> Result<Vec<u8>, CompileError> {
    let malformed = |error: wasmtime::Error| CompileError::Malformed(format!("{error:#}"));
    let engine =
        engines::engine(flavour, Instances::OnDemand, Settings::STACK).map_err(malformed)?;
    let binary =
        wat::parse_bytes(code).map_err(|error| CompileError::Malformed(readable(code, &error)))?;
    let is_component = binary.starts_with(MAGIC) && binary.get(4..8) == Some(&COMPONENT);
    let compiled = if is_component {
        engine.precompile_component(&binary)
    } else {
        engine.precompile_module(&binary)
    };
    compiled.map_err(malformed)
}

/// Text that is wrong shows where; something that is no text at all shows only that.
fn readable(code: &[u8], error: &wat::Error) -> String {
    match std::str::from_utf8(code) {
        Ok(_) => error.to_string(),
        Err(_) => "it does not begin with \\0asm and is no text either".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(code: &[u8]) -> Result<Vec<u8>, CompileError> {
        let mut to = Vec::new();
        compile_stream(Flavour::Timed, code, &mut to).map(|()| to)
    }

    #[test]
    fn text_and_binary_modules_and_components_compile() {
        for code in [&b"(module)"[..], b"(component)", b"\0asm\x01\0\0\0"] {
            let found = wasmtime::Engine::detect_precompiled(&compiled(code).unwrap());
            let is_component = code.starts_with(b"(component");
            assert_eq!(
                matches!(found, Some(wasmtime::Precompiled::Component)),
                is_component
            );
        }
    }

    #[test]
    fn what_is_not_webassembly_is_named() {
        for (code, says) in [
            (&b""[..], "is not WebAssembly"),
            (b"hello", "expected `(`"),
            (b"\x7fELF\xff", "does not begin with \\0asm"),
            (b"\0asm\x01\0\0\0\x01", "unexpected end"),
            (b"(module (func i32.add))", "expected"),
        ] {
            let error = compiled(code).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
