//! What an image says about how a program in it is started.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::ImageError;
use crate::manifest;

/// What a run takes over from its image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Names and values.
    pub env: Vec<(String, String)>,
    /// Where a program starts; empty where the image does not say.
    pub working_dir: String,
    /// Who it would be; here it is the sandbox's one user, whoever this is.
    pub user: String,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
}

/// Of the sandbox itself, whatever an image says.
const OURS: [&str; 5] = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"];

/// Every run carries them.
const MOST_VARIABLES: usize = 1000;
/// All words of how a program starts: the kernel takes no single one that is longer.
const LONGEST_START: usize = 128 << 10;

#[derive(Debug, Default, Deserialize)]
struct Document {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<Settings>,
    #[serde(default)]
    rootfs: Option<Layers>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Settings {
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Layers {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

/// Reads a configuration: how to start, and the digests of the plain layers, lowest first.
pub(crate) fn read(bytes: &[u8]) -> Result<(Start, Vec<Digest>), ImageError> {
    let what = "the image's configuration";
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| ImageError::refused(what, error.to_string()))?;
    let own = manifest::architecture();
    let is_other = |said: &str, ours: &str| !said.is_empty() && said != ours;
    if is_other(&document.os, "linux") || is_other(&document.architecture, own) {
        let (os, architecture) = (document.os, document.architecture);
        let why = format!("it is for {os} on {architecture}, and this is linux on {own}");
        return Err(ImageError::refused(what, why));
    }
    let settings = document.config.unwrap_or_default();
    if let Some(why) = settings.excess() {
        return Err(ImageError::refused(what, why));
    }
    let env = settings.env.unwrap_or_default();
    let start = Start {
        env: env.iter().filter_map(|text| variable(text)).collect(),
        working_dir: settings.working_dir.unwrap_or_default(),
        user: settings.user.unwrap_or_default(),
        entrypoint: settings.entrypoint.unwrap_or_default(),
        cmd: settings.cmd.unwrap_or_default(),
    };
    let layers = document.rootfs.map(|layers| layers.diff_ids);
    Ok((start, layers.unwrap_or_default()))
}

impl Settings {
    /// Why there is more of it than any program needs.
    fn excess(&self) -> Option<String> {
        if self.env.as_ref().map_or(0, Vec::len) > MOST_VARIABLES {
            return Some(format!("it sets more than {MOST_VARIABLES} variables"));
        }
        let lists = [&self.env, &self.entrypoint, &self.cmd];
        let words = lists.into_iter().flatten().flatten();
        let words = words.chain(&self.working_dir).chain(&self.user);
        // Each has an end, also where it is empty.
        let size: usize = words.map(|word| word.len() + 1).sum();
        (size > LONGEST_START).then(|| {
            let most = LONGEST_START >> 10;
            format!("its variables and its command are longer than {most} KiB")
        })
    }
}

/// `None` for what the sandbox decides, and for what no shell could name.
fn variable(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_name =
        name.bytes().all(is_word) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    let is_text = !value.contains('\0');
    (is_name && is_text && !OURS.contains(&name)).then(|| (name.to_owned(), value.to_owned()))
}

impl Start {
    /// What is run when nobody names a command.
    pub fn command(&self) -> Vec<String> {
        [self.entrypoint.as_slice(), &self.cmd].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_keeps_its_own_variables_and_the_image_has_the_rest() {
        let own = manifest::architecture();
        let text = format!(
            r#"{{"os":"linux","architecture":"{own}","config":{{"Env":["PATH=/opt/bin","HOME=/root","A=1","A=x=y","1B=2","no","TMPDIR=/x"],
            "WorkingDir":"/srv","User":"app","Entrypoint":["/bin/sh","-c"],"Cmd":["id"]}},"rootfs":{{"diff_ids":["{}"]}}}}"#,
            Digest::of(b"")
        );
        let (start, layers) = read(text.as_bytes()).unwrap();
        let names: Vec<&str> = start.env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PATH", "A", "A"]);
        assert_eq!(start.command(), ["/bin/sh", "-c", "id"]);
        assert_eq!(
            (start.working_dir.as_str(), start.user.as_str()),
            ("/srv", "app")
        );
        assert_eq!(layers, [Digest::of(b"")]);
        assert_eq!(read(b"{\"config\":null}").unwrap().0, Start::default());
        assert!(read(b"{\"os\":\"windows\"}").is_err());
        assert!(read(b"nonsense").is_err());
    }

    #[test]
    fn an_image_sets_no_more_than_a_program_can_be_given() {
        let with = |settings: serde_json::Value| {
            read(
                serde_json::json!({ "config": settings })
                    .to_string()
                    .as_bytes(),
            )
        };
        let many = |count| (0..count).map(|n| format!("V{n}=1")).collect::<Vec<_>>();
        assert_eq!(
            with(serde_json::json!({"Env": many(1000)}))
                .unwrap()
                .0
                .env
                .len(),
            1000
        );
        let error = with(serde_json::json!({"Env": many(1001)}))
            .unwrap_err()
            .to_string();
        assert!(error.contains("more than 1000 variables"), "{error}");
        let long = "x".repeat(100 << 10);
        with(serde_json::json!({ "Cmd": [long] })).unwrap();
        for (one, other) in [("Env", "Cmd"), ("Entrypoint", "Cmd"), ("Env", "Entrypoint")] {
            let error = with(serde_json::json!({one: [long], other: [long]})).unwrap_err();
            assert!(error.to_string().contains("longer than 128 KiB"), "{error}");
        }
        let empty = vec![""; 200 << 10];
        assert!(with(serde_json::json!({ "Cmd": empty })).is_err());
        assert!(with(serde_json::json!({"User": long, "WorkingDir": long})).is_err());
    }
}
