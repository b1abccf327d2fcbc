//! What `run` is told about WebAssembly, and the hidden verb that compiles it inside the sandbox.

use std::process::ExitCode;

#[cfg(not(feature = "wasm"))]
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::BackendName;
use cofferdam_server::backends::Asked;

use crate::arguments::{RunArgs, WasmCompileArgs};
use crate::failure::Failure;

/// Puts the module in its place, before its arguments, and refuses what fits nowhere.
pub(crate) fn asked(
    args: &mut RunArgs,
    backend: BackendName,
    is_code: bool,
) -> Result<Asked, Failure> {
    if let (BackendName::Wasm | BackendName::Docker, true) = (backend, is_code) {
        return Err(Failure::problem(
            "--language",
            backend.as_str(),
            "source code runs in the native backend, and the configuration names another; write `sandbox.default_runtime: native` there, or set COFFERDAM_BACKEND=native",
        ));
    }
    if let Some(file) = args.file.take_if(|_| !is_code) {
        if backend != BackendName::Wasm {
            return Err(Failure::problem(
                "FILE",
                &file.to_string_lossy(),
                "a file is run with --language NAME, or with --backend wasm; write a command after `--`",
            ));
        }
        args.command.insert(0, file.into_os_string());
    }
    Ok(Asked {
        seed: args.begins_at(),
        ..Asked::default()
    })
}

/// `cofferdam wasm-compile`: for the sandbox, where nobody else calls it.
#[cfg(feature = "wasm")]
pub(crate) fn compile(args: &WasmCompileArgs) -> Result<ExitCode, Failure> {
    use std::io::Write as _;

    use cofferdam_wasm::Flavour;
    let flavour = Flavour::named(&args.flavour)
        .ok_or_else(|| Failure::problem("FLAVOUR", &args.flavour, "write `timed` or `counted`"))?;
    let (from, to) = (std::io::stdin().lock(), std::io::stdout().lock());
    match cofferdam_wasm::compile::compile_stream(flavour, from, to) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            // For whoever started the sandbox, who finds words of their own for it.
            let _ = writeln!(std::io::stderr(), "{error}");
            Ok(ExitCode::FAILURE)
        }
    }
}

#[cfg(not(feature = "wasm"))]
pub(crate) fn compile(_: &WasmCompileArgs) -> Result<ExitCode, Failure> {
    let message = "this binary was built without the wasm backend";
    Err(Failure::new(
        ErrorCode::BackendUnavailable,
        message.to_owned(),
    ))
}
