//! Filters that are installed for real, in children.

use super::*;

/// Runs `body` in a forked child; what it returns is the child's exit code. A signal is 128 and its number.
fn in_child(body: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child runs `body`, which makes system calls and nothing that needs the threads fork left behind, and leaves by exit_group.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        raw::exit(body());
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int at the pointer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

fn confine(filter: &Filter, listener: Listener) -> Option<i32> {
    // SAFETY: takes no pointer.
    unsafe { raw::syscall(libc::SYS_prctl, [38, 1, 0, 0, 0, 0]) }.unwrap();
    install(filter.program(), listener).unwrap()
}

fn answer(number: libc::c_long, args: [usize; 6]) -> u8 {
    // SAFETY: callers pass null pointers or plain numbers, at which the kernel writes nothing.
    match unsafe { raw::syscall(number, args) } {
        Ok(_) => 0,
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap(),
    }
}

#[test]
fn a_confined_child_still_execs() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let argv = [c"/bin/true".as_ptr(), std::ptr::null()];
    let code = in_child(|| {
        confine(&filter, Listener::Absent);
        // SAFETY: both arrays end with null and the strings with zero; on success the call does not return.
        unsafe { libc::execv(argv[0], argv.as_ptr()) };
        99
    });
    assert_eq!(code, 0);
}

#[test]
fn refused_calls_answer_their_errno_in_a_confined_child() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let refused =
        |number, args| in_child(|| (confine(&filter, Listener::Absent), answer(number, args)).1);
    assert_eq!(refused(libc::SYS_mount, [0; 6]), libc::EPERM);
    assert_eq!(refused(libc::SYS_clone3, [0; 6]), libc::ENOSYS);
    assert_eq!(
        refused(
            libc::SYS_unshare,
            [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]
        ),
        libc::EPERM
    );
    assert_eq!(
        refused(libc::SYS_socket, [40, 1, 0, 0, 0, 0]),
        libc::EPROTONOSUPPORT
    );
    assert_eq!(refused(i64::from(X32) | 39, [0; 6]), libc::ENOSYS);
    assert_eq!(refused(libc::SYS_getpid, [0; 6]), 0);
}

#[test]
fn a_call_through_the_32_bit_entry_ends_the_process() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let code = in_child(|| {
        confine(&filter, Listener::Absent);
        // SAFETY: getpid of the 32-bit entry takes no argument; eax is the only register the kernel changes that is not restored.
        unsafe {
            core::arch::asm!("int 0x80", inlateout("eax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        0
    });
    // A kernel built without 32-bit support faults the instruction itself.
    assert!(
        [128 + libc::SIGSYS, 128 + libc::SIGSEGV].contains(&code),
        "{code}"
    );
}

#[test]
fn without_no_new_privs_or_capability_nothing_is_installed() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let code = in_child(|| {
        // SAFETY: takes no pointer. Dropping the identity drops root's capabilities; failing means there were none.
        let _ = unsafe { raw::syscall(libc::SYS_setresuid, [65534, 65534, 65534, 0, 0, 0]) };
        match install(filter.program(), Listener::Absent) {
            Ok(_) => 0,
            Err(errno) => u8::try_from(errno.raw_os_error()).unwrap(),
        }
    });
    assert_eq!(code, libc::EACCES);
}

#[test]
fn the_supervisor_reads_a_refused_call_and_answers_it() {
    let filter = Filter::build(Variants::NONE, Denied::Notify);
    std::thread::scope(|scope| {
        let (send, listener) = std::sync::mpsc::channel();
        // A filter belongs to a thread: this one confines itself, the test's own supervises.
        let confined = scope.spawn(move || {
            let fd = confine(&filter, Listener::Wanted).unwrap();
            // SAFETY: the kernel just made the descriptor for us alone.
            send.send(unsafe { OwnedFd::from_raw_fd(fd) }).unwrap();
            let recorded = answer(libc::SYS_mount, [1, 2, 3, 4, 5, 0]);
            (
                recorded,
                answer(libc::SYS_clone3, [0; 6]),
                answer(libc::SYS_getpid, [0; 6]),
            )
        });
        let listener = listener.recv().unwrap();
        let Received::Call(call) = receive(listener.as_fd()).unwrap() else {
            panic!("the caller is waiting");
        };
        assert_eq!(name_of(call.number), Some("mount"));
        assert_eq!(call.args, [1, 2, 3, 4, 5, 0]);
        let errno = errno_for(call.number, Variants::NONE);
        assert_eq!(
            respond(listener.as_fd(), call.id, errno),
            Ok(Answered::Sent)
        );
        assert_eq!(confined.join().unwrap(), (1, 38, 0));
        assert_eq!(
            respond(listener.as_fd(), call.id, errno),
            Ok(Answered::Gone)
        );
    });
}

#[test]
fn a_caller_that_died_is_gone_not_an_error() {
    let filter = Filter::build(Variants::NONE, Denied::Notify);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    // SAFETY: as in `in_child`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let fd = confine(&filter, Listener::Wanted).unwrap();
        let byte = [u8::try_from(fd).unwrap()];
        std::io::Write::write_all(&mut &theirs, &byte).unwrap();
        raw::exit(answer(libc::SYS_mount, [0; 6]));
    }
    let mut byte = [0];
    std::io::Read::read_exact(&mut &ours, &mut byte).unwrap();
    let child = rustix::process::Pid::from_raw(pid).unwrap();
    let pidfd = rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()).unwrap();
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let listener = rustix::process::pidfd_getfd(&pidfd, i32::from(byte[0]), flags).unwrap();
    let Received::Call(call) = receive(listener.as_fd()).unwrap() else {
        panic!("the caller is waiting");
    };
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(
        respond(listener.as_fd(), call.id, libc::EPERM),
        Ok(Answered::Gone)
    );
}
