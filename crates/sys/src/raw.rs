//! System calls without libc in between. libc stores errors in thread-local memory, which a process made with `CLONE_VM` shares with its parent;
//! these calls return the error and touch nothing else.

use rustix::io::Errno;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "cofferdam runs on Linux on x86_64: the system call filter and its table exist for no other machine yet"
);

/// Makes one system call.
///
/// # Safety
/// As unsafe as the call that is made: pointers among `args` must be valid for what that call reads and writes.
pub(crate) unsafe fn syscall(nr: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let ret: i64;
    // SAFETY: the x86_64 convention: number in rax, arguments in rdi rsi rdx r10 r8 r9; the kernel clobbers rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") nr => ret,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result(ret)
}

fn result(ret: i64) -> Result<usize, Errno> {
    // The kernel reserves -4095..=-1 for errors; anything else is a count, a descriptor or an address.
    match i32::try_from(ret) {
        Ok(code @ -4095..=-1) => Err(Errno::from_raw_os_error(-code)),
        _ => usize::try_from(ret.cast_unsigned()).map_err(|_| Errno::OVERFLOW),
    }
}

/// Ends the calling process at once, without running anything that was registered for an orderly exit.
pub(crate) fn exit(code: u8) -> ! {
    loop {
        // SAFETY: takes no pointer and does not return.
        let _ = unsafe { syscall(libc::SYS_exit_group, [usize::from(code), 0, 0, 0, 0, 0]) };
    }
}

/// Ends the calling thread alone.
pub(crate) fn exit_thread() -> ! {
    loop {
        // SAFETY: takes no pointer and does not return.
        let _ = unsafe { syscall(libc::SYS_exit, [0; 6]) };
    }
}

/// Seconds and nanoseconds of a clock, by the call itself: the faster way through the vDSO has to be set up first, which allocates.
pub(crate) fn clock(clock: libc::clockid_t) -> (u64, u64) {
    let mut time = [0i64; 2];
    let at = time.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes one timespec, two words.
    let _ = unsafe {
        syscall(
            libc::SYS_clock_gettime,
            [clock.cast_unsigned() as usize, at, 0, 0, 0, 0],
        )
    };
    (time[0].unsigned_abs(), time[1].unsigned_abs())
}
