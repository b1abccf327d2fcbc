//! The compiler alone, for whoever uses this backend as a library: one file that needs no other, called inside the sandbox. `cofferdam` has the same as a verb.

#![allow(
    clippy::print_stderr,
    reason = "a complaint is for whoever reads the sandbox's stderr"
)]

use std::process::ExitCode;

use cofferdam_wasm::Flavour;
use cofferdam_wasm::compile::compile_stream;

fn main() -> ExitCode {
    let flavour = std::env::args().nth(1);
    let Some(flavour) = flavour.as_deref().and_then(Flavour::named) else {
        eprintln!("write `timed` or `counted`, with the code on standard input");
        return ExitCode::FAILURE;
    };
    match compile_stream(flavour, std::io::stdin().lock(), std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
