//! How runs end that do not end well.

use cofferdam_contract::ending::{Ending, SetupFailureKind};
use cofferdam_docker::{Init, Settings};
use cofferdam_testkit::docker::Dockerd;

use crate::support::{exited, request, run, script, settings, try_run};

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
