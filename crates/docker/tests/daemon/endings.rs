//! How runs end that do not end well.

use cofferdam_contract::ending::{Ending, SetupFailureKind};
use cofferdam_contract::request::WorkspaceAccess;
use cofferdam_docker::{Init, Settings};
use cofferdam_testkit::docker::Dockerd;

use crate::support::{exited, request, run, script, settings, try_run, with_workspace};

fn kind(ending: &Ending) -> Option<SetupFailureKind> {
    match ending {
        Ending::NeverStarted(failure) => Some(failure.kind),
        _ => None,
    }
}

#[test]
fn a_program_that_is_missing_or_not_executable_is_told_from_one_that_returns_the_same() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    for settings in [
        settings(&daemon),
        Settings {
            init: Init::None,
            ..settings(&daemon)
        },
    ] {
        let run = |argv: &[&str]| try_run(request(argv), &settings).unwrap().ending;
        let missing = Some(SetupFailureKind::ProgramNotFound);
        assert_eq!(kind(&run(&["no-such-program"])), missing);
        assert_eq!(kind(&run(&["/bin/no-such-program"])), missing);
        let not_executable = Some(SetupFailureKind::ProgramNotExecutable);
        assert_eq!(kind(&run(&["/bin/not-executable"])), not_executable);
        assert_eq!(run(&["sh", "-c", "exit 127"]), Ending::Exited { code: 127 });
        assert_eq!(run(&["sh", "-c", "exit 126"]), Ending::Exited { code: 126 });
    }
    daemon.assert_clean();
}

#[test]
fn a_program_that_hides_itself_and_returns_127_or_126_was_started() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let tool = |name: &str, text: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), text).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path().join(name), executable).unwrap();
        dir
    };
    let run = |dir: &tempfile::TempDir, argv: &[&str]| {
        let mut asked = request(argv);
        asked.env = vec![("PATH".into(), "/work:/bin".into())];
        let asked = with_workspace(asked, dir.path(), WorkspaceAccess::CopyOnWrite);
        run(&daemon, asked).ending
    };
    let gone = tool("tool", "#!/bin/sh\nrm /work/tool\nexit 127\n");
    let closed = tool("tool", "#!/bin/sh\nchmod 644 /work/tool\nexit 126\n");
    for program in ["./tool", "/work/./tool", "tool"] {
        assert_eq!(run(&gone, &[program]), Ending::Exited { code: 127 });
        assert_eq!(run(&closed, &[program]), Ending::Exited { code: 126 });
    }
    // What was not there is still told from it, also in a workspace.
    let missing = Some(SetupFailureKind::ProgramNotFound);
    assert_eq!(kind(&run(&gone, &["./other"])), missing);
    assert_eq!(kind(&run(&gone, &["other"])), missing);
    let plain = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(gone.path().join("tool"), plain).unwrap();
    let not_executable = Some(SetupFailureKind::ProgramNotExecutable);
    assert_eq!(kind(&run(&gone, &["./tool"])), not_executable);
}

#[test]
fn the_images_own_entry_point_is_not_asked_for() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let image = cofferdam_testkit::docker::IMAGE;
    let made = daemon.docker(&["create", "--entrypoint", "/bin/false", image, "x"]);
    daemon.docker(&["commit", made.trim(), "with-entrypoint"]);
    daemon.docker(&["rm", made.trim()]);
    let settings = Settings {
        image: Some("with-entrypoint".into()),
        ..settings(&daemon)
    };
    let record = try_run(request(&["echo", "mine"]), &settings).unwrap();
    assert_eq!(record.stdout.data, "mine\n");
}

#[test]
fn a_signal_is_its_number_and_128_since_that_is_all_that_the_daemon_says() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    exited(&run(&daemon, script("kill -SEGV $$")), 139);
    // Killed by itself and not for want of memory.
    exited(&run(&daemon, script("kill -KILL $$")), 137);
}
