//! `cofferdam run` in the mode `burst`: the command goes to a daemon of this machine, whose sandboxes wait for work. What a daemon cannot be told, and everything where there is none, runs here in the same
//! backend, and that is said. What the daemon refuses is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Seek as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_contract::codes::{self, ErrorCode};
use cofferdam_contract::ending::EndingRecord;
use cofferdam_contract::mode::{Deed, Mode};
use cofferdam_contract::request::{BackendName, Network};
use cofferdam_contract::signal::signal_name;
use cofferdam_contract::units::Cap;
use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use crate::arguments::remote::ServerArgs;
use crate::arguments::{OnOutputLimit, RunArgs};
use crate::config::{Merged, Origin, Setting, Switch};
use crate::failure::{Failure, visible};
use crate::policy;
use crate::remote;
use crate::run;
use crate::terminal::output::note;

/// Where a daemon is looked for, as by `submit`.
const ADDRESS: (&str, &str) = ("COFFERDAM_SERVER", "http://127.0.0.1:8080");
/// Input that goes along whole.
const MOST_INPUT: u64 = 4 << 20;

/// Why a run stays here.
type Here = String;

/// How the run ended, where a daemon has taken it.
pub(crate) fn hand_over(
    args: &RunArgs,
    merged: &Merged,
    cancel: &OwnedFd,
) -> Result<Option<ExitCode>, Failure> {
    if merged.mode.value != Some(Mode::Burst) {
        return Ok(None);
    }
    let why = match request(args, merged) {
        Err(why) => why,
        Ok(request) => {
            let server = std::env::var(ADDRESS.0).ok();
            let server = server.filter(|address| !address.is_empty());
            let args = ServerArgs {
                server: server.unwrap_or_else(|| ADDRESS.1.to_owned()),
            };
            policy::refuse(merged.mode.value, [Deed::Daemon(&args.server)])?;
            match remote::command(&args, &request, cancel) {
                Ok(run) => return exit_code(&run).map(Some),
                Err(failure) if failure.code() == ErrorCode::ServerUnreachable => {
                    format!("there is no daemon at {}", args.server)
                }
                Err(failure) => return Err(failure),
            }
        }
    };
    note(&format!(
        "cofferdam: mode burst: {why}; running here, in the {} backend",
        merged.backend.value.as_str()
    ));
    Ok(None)
}

/// The run as a daemon takes it. Every flag is looked at: one that could not be sent must not be lost.
fn request(args: &RunArgs, merged: &Merged) -> Result<Value, Here> {
    let RunArgs {
        file,
        command,
        language,
        code: _,
        event: _,
        inputs: _,
        limits: _,
        workspace,
        mount,
        volumes,
        cache_dir: _,
        root,
        cwd,
        env,
        stdin,
        json,
        capture: _,
        on_output_limit,
        backend: _,
        network,
        gpu,
        container,
        deterministic,
        seed: _,
        waive,
        pure,
        cache: _,
        history,
    } = args;
    let stays = [
        ("--workspace", workspace.is_some()),
        ("--mount", !mount.is_empty()),
        ("--cache", !volumes.is_empty()),
        ("--root", root.is_some()),
        ("--image", *container != Default::default()),
        ("--gpu", gpu.is_some()),
        ("--deterministic", *deterministic),
        ("--waive", !waive.is_empty()),
        ("--pure", *pure),
        ("--json", *json),
        ("--no-history", history.no_history),
        // The daemon keeps its own, by its own rules.
        (
            "history.enabled",
            merged.history.enabled.value == Switch::Off,
        ),
        ("history.redact", !merged.history.redact.is_empty()),
        ("--on-output-limit", *on_output_limit != OnOutputLimit::Stop),
        ("--language", language.is_some()),
        ("a module", file.is_some()),
        (
            "--net-private",
            network.net_private.is_some() || network.net_proxy.is_some(),
        ),
        ("--backend", merged.backend.value != BackendName::Native),
    ];
    if let Some((flag, _)) = stays.into_iter().find(|(_, is_given)| *is_given) {
        return Err(format!("{flag} is for runs of this process"));
    }
    let text = |bytes: &std::ffi::OsStr| {
        let text = bytes.to_str().map(str::to_owned);
        text.ok_or_else(|| "what is not UTF-8 cannot be sent".to_owned())
    };
    let words: Vec<String> = command
        .iter()
        .map(|word| text(word))
        .collect::<Result<_, _>>()?;
    let mut variables = BTreeMap::new();
    for variable in env {
        // A mistake is told where the run is made.
        let (name, value) = run::variable(variable.clone()).map_err(|_| "--env".to_owned())?;
        variables.insert(text(&name)?, text(&value)?);
    }
    let mut tags = BTreeMap::new();
    for tag in &history.tag {
        let (name, value) = tag.split_once('=').unwrap_or((tag, ""));
        tags.insert(name.to_owned(), value.to_owned());
    }
    let network = match network.network() {
        Network::Denied => None,
        allowed => Some(allowed.to_string()),
    };
    let cwd = cwd.as_ref().map(|cwd| text(cwd.as_os_str())).transpose()?;
    Ok(json!({
        "command": words,
        "env": variables,
        "cwd": cwd,
        "stdin_base64": input(stdin.as_deref())?.map(|bytes| BASE64.encode(&bytes)),
        "limits": limits(merged)?,
        "network": network,
        "tags": tags,
        "parent": history.parent,
        "wait": false,
    }))
}

/// What is there whole already. What comes bit by bit is read by a run of this process.
fn input(from: Option<&Path>) -> Result<Option<Vec<u8>>, Here> {
    let stays =
        || "standard input is read as it comes; say --stdin none, or name a file".to_owned();
    let opened = match from {
        Some(path) if path.as_os_str() == "none" => return Ok(None),
        Some(path) if path.as_os_str() != "-" => run::open_input(path),
        _ => std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map(File::from),
    };
    let mut file = opened.map_err(|_| stays())?;
    let found = file.metadata().map_err(|_| stays())?;
    // The null device.
    if found.file_type().is_char_device() && found.rdev() == rustix::fs::makedev(1, 3) {
        return Ok(None);
    }
    if !found.is_file() {
        return Err(stays());
    }
    let bytes = rest_of(&mut file).map_err(|_| stays())?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= MOST_INPUT => Ok(Some(bytes)),
        _ => Err("standard input is larger than what goes along".to_owned()),
    }
}

/// From where it stands, since somebody may have read a part of it, and without moving that: a run here may still have to read it. At most one byte more than goes along.
fn rest_of(file: &mut File) -> std::io::Result<Vec<u8>> {
    let begin = file.stream_position()?;
    let mut bytes = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        let done = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if done > MOST_INPUT {
            return Ok(bytes);
        }
        match file.read_at(&mut part, begin.saturating_add(done)) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend(part.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Those that somebody named. The others are the daemon's own, which gives no run everything.
fn limits(merged: &Merged) -> Result<Value, Here> {
    fn number<T: Copy>(
        setting: &Setting<Cap<T>>,
        number: impl Fn(T) -> u64,
    ) -> Result<Option<u64>, Here> {
        match (&setting.origin, setting.value) {
            (Origin::Default, _) => Ok(None),
            (_, Cap::AtMost(limit)) => Ok(Some(number(limit))),
            (_, Cap::Unlimited) => Err("a daemon gives no run everything".to_owned()),
        }
    }
    if let Cap::AtMost(_) = merged.disk_io.value {
        return Err("limits of disk use are for runs of this process".to_owned());
    }
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let named = [
        ("wall_time_ms", number(&merged.wall_time, milliseconds)?),
        ("cpu_time_ms", number(&merged.cpu_time, milliseconds)?),
        ("memory_bytes", number(&merged.memory, |size| size.get())?),
        ("output_bytes", number(&merged.output, |size| size.get())?),
        ("processes", number(&merged.processes, |count| count)?),
        ("disk_bytes", number(&merged.disk, |size| size.get())?),
        ("open_files", number(&merged.open_files, |count| count)?),
        (
            "cpus_milli",
            number(&merged.cpus, |share| u64::from(share.milli()))?,
        ),
    ];
    let named = named.into_iter();
    Ok(named
        .filter_map(|(name, value)| Some((name.to_owned(), json!(value?))))
        .collect::<Map<_, _>>()
        .into())
}

/// As if it had been run here.
fn exit_code(run: &Value) -> Result<ExitCode, Failure> {
    let lost = || {
        Failure::new(
            ErrorCode::ServerRefused,
            "the daemon's answer cannot be read",
        )
    };
    if !run["error"].is_null() {
        return Err(remote::refused(&run["error"]));
    }
    let ending: EndingRecord = serde_json::from_value(run["ending"].clone()).map_err(|_| lost())?;
    let code = match ending {
        EndingRecord::Exited => {
            let code = run["exit_code"].as_i64().ok_or_else(lost)?;
            u8::try_from(code & 0xff).unwrap_or(u8::MAX)
        }
        EndingRecord::Signaled => {
            let name = run["signal"].as_str().ok_or_else(lost)?;
            let number = (1..=64).find(|number| signal_name(*number) == name);
            let number = number.and_then(|number| u8::try_from(number + 128).ok());
            number.ok_or_else(lost)?
        }
        EndingRecord::Stopped { cause, detail, .. } => {
            note(&format!("cofferdam: {}", visible(&detail)));
            match cause.as_str() {
                "wall_time" => codes::EXIT_WALL_TIME,
                "cpu_time" => codes::EXIT_CPU_TIME,
                "output" | "disk" => codes::EXIT_SIZE,
                "canceled" => codes::EXIT_CANCELED,
                _ => codes::EXIT_KILLED,
            }
        }
        EndingRecord::NeverStarted { code, message, .. } => {
            let message = visible(&message);
            note(&format!("cofferdam: {message} [{}]", code.as_str()));
            match code {
                ErrorCode::ProgramNotFound => codes::EXIT_NOT_FOUND,
                ErrorCode::ProgramNotExecutable => codes::EXIT_NOT_EXECUTABLE,
                _ => codes::EXIT_OURS,
            }
        }
    };
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn input_is_taken_from_where_it_stands_and_left_there() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\n").unwrap();
        file.seek(std::io::SeekFrom::Start(4)).unwrap();
        assert_eq!(rest_of(&mut file).unwrap(), b"two\n");
        let mut again = String::new();
        file.read_to_string(&mut again).unwrap();
        assert_eq!(again, "two\n");
        assert_eq!(rest_of(&mut file).unwrap(), b"");
        file.set_len(MOST_INPUT + (1 << 20)).unwrap();
        file.rewind().unwrap();
        let length = u64::try_from(rest_of(&mut file).unwrap().len()).unwrap();
        assert!(length > MOST_INPUT, "what is too long shows that it is");
    }
}
