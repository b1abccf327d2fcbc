//! A registry of images of a test's own, on loopback.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::docker::{skip, which};
use crate::ready::await_line;

/// The password `secret`, as registries keep it.
const SECRET: &str = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

/// A registry on a port of its own.
#[derive(Debug)]
pub struct Registry {
    process: Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Registry {
    /// `None` after saying what is missing; in CI that is a failure.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// One whose images are in `data`, with these lines in the section `http` of its configuration and these sections.
    pub fn start_in(data: &Path, http: &str, sections: &str) -> Option<Self> {
        Self::start_at(Some(data), http, sections)
    }

    /// One that wants the user `me` with the password `secret`.
    pub fn start_with_password() -> Option<Self> {
        Self::start_with("auth: { htpasswd: { realm: test, path: PASSWORDS } }\n")
    }

    fn start_with(more: &str) -> Option<Self> {
        Self::start_at(None, "", more)
    }

    fn start_at(data: Option<&Path>, http: &str, more: &str) -> Option<Self> {
        if which("docker-registry").is_none() {
            return skip("docker-registry");
        }
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("data");
        let data = data.unwrap_or(&own);
        let text = format!(
            "version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp:\n  addr: \"ADDRESS\"\n{http}",
            data.display()
        );
        let passwords = dir.path().join("passwords");
        std::fs::write(&passwords, format!("me:{SECRET}\n")).unwrap();
        let more = more.replace("PASSWORDS", passwords.to_str().unwrap());
        let config = dir.path().join("config.yml");
        let mut said = String::new();
        // The registry does not say which port it was given, so it is given one that was free a moment ago. Another process may take it first: then another one is tried.
        for _ in 0..20 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = port.local_addr().unwrap().to_string();
            drop(port);
            let text = format!("{text}{more}").replace("ADDRESS", &address);
            std::fs::write(&config, text).unwrap();
            let mut command = Command::new("docker-registry");
            command.arg("serve").arg(&config).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let mut process = command.spawn().unwrap();
            let log = process.stderr.take().unwrap();
            match await_line(log, |line| line.contains("listening on")) {
                Ok(_) => {
                    return Some(Self {
                        process,
                        address,
                        _dir: dir,
                    });
                }
                Err(why) => said = why,
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("docker-registry does not listen: {said}");
    }
}

impl Registry {
    /// `host:port`, the beginning of the names of its images.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
