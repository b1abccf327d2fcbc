//! `cargo xtask contracts`: compiles what lies in `contracts/` and keeps the result beside it: interface, code, compiler and settings. The same source gives the same bytes everywhere: no
//! hash of paths or metadata is in them.

use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::generate::Mode;
use crate::install;

/// Below `contracts/`; the second is what attacks the first in tests.
const CONTRACTS: [&str; 2] = ["BondLedger", "attacks/Reentrant"];
const DIR: &str = "contracts";

pub(crate) fn run(root: &Path, mode: Mode) -> Result<(), String> {
    let compiler = install::solidity_compiler(root)?;
    for name in CONTRACTS {
        let path = root.join(DIR).join(format!("{name}.json"));
        let text = artifact(root, &compiler, name)?;
        match mode {
            Mode::Write => {
                fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            Mode::Check => {
                if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
                    return Err(format!(
                        "{DIR}/{name}.json: not what its source says; run `cargo xtask contracts`"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn settings() -> Value {
    json!({
        // What every chain of today understands.
        "evmVersion": "paris",
        "metadata": {"appendCBOR": false, "bytecodeHash": "none"},
        "optimizer": {"enabled": true, "runs": 200},
    })
}

fn artifact(root: &Path, compiler: &Path, name: &str) -> Result<String, String> {
    let file = format!("{name}.sol");
    let name = name.rsplit('/').next().unwrap_or(name);
    let path = root.join(DIR).join(&file);
    let source =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut wanted = settings();
    wanted["outputSelection"] = json!({"*": {"*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object", "metadata"]}});
    let input = json!({
        "language": "Solidity",
        "sources": {&file: {"content": source}},
        "settings": wanted,
    });
    let said = compiled(compiler, &input)?;
    refuse_complaints(&said)?;
    let made = &said["contracts"][&file][name];
    let about: Value = serde_json::from_str(made["metadata"].as_str().unwrap_or_default())
        .map_err(|error| format!("the compiler says nothing of itself: {error}"))?;
    let code = |which: &str| {
        let code = made["evm"][which]["object"].as_str();
        code.filter(|code| !code.is_empty())
            .map(|code| format!("0x{code}"))
            .ok_or_else(|| format!("{file} has no code"))
    };
    let artifact = json!({
        "contract": name,
        "source": format!("{DIR}/{file}"),
        "compiler": format!("solc {}", about["compiler"]["version"].as_str().unwrap_or_default()),
        "settings": settings(),
        "abi": made["abi"],
        "bytecode": code("bytecode")?,
        "deployedBytecode": code("deployedBytecode")?,
    });
    serde_json::to_string_pretty(&artifact)
        .map(|text| text + "\n")
        .map_err(|error| error.to_string())
}

/// Its answer goes through a file: into a pipe it writes no more than 64 KiB before it ends.
fn compiled(compiler: &Path, input: &Value) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("the compiler cannot be used: {error}");
    let mut answer = tempfile::tempfile().map_err(failed)?;
    let mut process = Command::new("node")
        .arg(compiler)
        .arg("--standard-json")
        .stdin(Stdio::piped())
        .stdout(answer.try_clone().map_err(failed)?)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // It reads everything before it writes anything.
    if let Some(mut stdin) = process.stdin.take() {
        stdin
            .write_all(input.to_string().as_bytes())
            .map_err(failed)?;
    }
    let output = process.wait_with_output().map_err(failed)?;
    answer.rewind().map_err(failed)?;
    let mut text = String::new();
    answer.read_to_string(&mut text).map_err(failed)?;
    // Before its answer it may say that it has no solver.
    let said = text.find('{').and_then(|start| text.get(start..));
    let said = said.ok_or_else(|| {
        format!(
            "the compiler says nothing: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    serde_json::from_str(said).map_err(|error| format!("the compiler's answer: {error}"))
}

/// A warning is a complaint too.
fn refuse_complaints(said: &Value) -> Result<(), String> {
    let complaints: Vec<&str> = said["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|error| error["formattedMessage"].as_str())
        .collect();
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(complaints.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::has_chain;

    #[test]
    fn the_artifacts_of_the_contracts_are_current() {
        let root = crate::root();
        // Never installed from here: the tests of the chain may be using what would be replaced.
        if !has_chain(&root) {
            let why = "`cargo xtask test` installs the compiler of contracts";
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("SKIPPED (1): {why}");
            return;
        }
        run(&root, Mode::Check).unwrap();
    }

    #[test]
    fn a_complaint_of_the_compiler_is_an_error() {
        assert_eq!(refuse_complaints(&json!({})), Ok(()));
        let said = json!({"errors": [{"severity": "warning", "formattedMessage": "unused"}]});
        assert_eq!(refuse_complaints(&said), Err("unused".to_owned()));
    }
}
