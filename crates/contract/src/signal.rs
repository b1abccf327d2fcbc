//! Names of signals, as Linux numbers them on every architecture that we run on.

/// The names of 1 to 31, in order.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

const FIRST_REAL_TIME: i32 = 34;
const LAST_REAL_TIME: i32 = 64;

/// `9` is `SIGKILL`, `36` is `SIGRTMIN+2`; a number that is no signal is spelled as one.
pub fn signal_name(signal: i32) -> String {
    let named = usize::try_from(signal)
        .ok()
        .and_then(|n| n.checked_sub(1))
        .and_then(|i| NAMES.get(i));
    match named {
        Some(name) => (*name).to_owned(),
        None if signal == FIRST_REAL_TIME => "SIGRTMIN".to_owned(),
        None if (FIRST_REAL_TIME..=LAST_REAL_TIME).contains(&signal) => {
            format!("SIGRTMIN+{}", signal - FIRST_REAL_TIME)
        }
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_linux_names() {
        for (number, name) in [
            (1, "SIGHUP"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (15, "SIGTERM"),
            (24, "SIGXCPU"),
            (25, "SIGXFSZ"),
            (31, "SIGSYS"),
            (34, "SIGRTMIN"),
            (64, "SIGRTMIN+30"),
            (0, "signal 0"),
            (32, "signal 32"),
            (-1, "signal -1"),
            (i32::MIN, "signal -2147483648"),
        ] {
            assert_eq!(signal_name(number), name);
        }
    }
}
