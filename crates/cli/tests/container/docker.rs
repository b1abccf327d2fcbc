//! A real Docker daemon, an image with the binary under test, and containers of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub(crate) use cofferdam_testkit::docker::succeed;
use cofferdam_testkit::docker::{Dockerd, pack, put_busybox, skip, which};

/// Who the binary is in the container.
pub(crate) type Who = &'static [&'static str];
pub(crate) const USER: Who = &["--user", "1000:1000", "--cap-drop", "ALL"];
/// With the capabilities that Docker leaves to root.
pub(crate) const ROOT: Who = &["--user", "0:0"];
pub(crate) const BARE_ROOT: Who = &["--user", "0:0", "--cap-drop", "ALL"];
pub(crate) const NO_SECCOMP: &str = "seccomp=unconfined";

/// A Docker daemon of this test's own.
pub(crate) struct Docker {
    daemon: Dockerd,
}

pub(crate) const IMAGE: &str = "cofferdam-test";

impl Docker {
    /// `None` after saying what is missing; in CI that is a failure.
    pub(crate) fn start() -> Option<Self> {
        if let Some(missing) = ["gcc", "strip"].into_iter().find(|it| which(it).is_none()) {
            return skip(missing);
        }
        let docker = Self {
            daemon: Dockerd::start()?,
        };
        docker.import();
        Some(docker)
    }

    /// An image with busybox, the binary under test and the program that plays the parts.
    fn import(&self) {
        let root = self.daemon.dir().join("own-image");
        let bin = root.join("usr/bin");
        put_busybox(&bin);
        std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(bin.join("cofferdam"));
        succeed(strip.arg(env!("CARGO_BIN_EXE_cofferdam")));
        let mut compile = Command::new("gcc");
        compile
            .args(["-O1", "-static", "-o"])
            .arg(bin.join("actor"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/actor.c");
        succeed(compile.arg(source));
        // Docker makes /proc, /sys and /dev; the scratch file system is put on /tmp.
        fs::create_dir(root.join("tmp")).unwrap();
        succeed(self.client().arg("import").arg(pack(&root)).arg(IMAGE));
    }

    /// `cofferdam run --json` with these arguments in a new container.
    pub(crate) fn run(&self, who: Who, security: &[&str], args: &[&str]) -> Output {
        let command = [&["cofferdam", "run", "--json"], args].concat();
        self.start_container(who, security, &command)
    }

    pub(crate) fn start_container(&self, who: Who, security: &[&str], command: &[&str]) -> Output {
        let mut client = self.client();
        client.args(["run", "--rm", "--network", "none"]).args(who);
        for option in security {
            client.args(["--security-opt", option]);
        }
        client.arg(IMAGE).args(command);
        client.stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn client(&self) -> Command {
        self.daemon.client()
    }
}
