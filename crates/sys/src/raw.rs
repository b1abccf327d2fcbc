//! System calls without libc in between. libc stores errors in thread-local memory, which a process made with `CLONE_VM` shares with its parent;
//! these calls return the error and touch nothing else.

use rustix::io::Errno;

/// Makes one system call.
///
/// # Safety
/// As unsafe as the call that is made: pointers among `args` must be valid for what that call reads and writes.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn syscall(nr: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let ret: isize;
    // SAFETY: the x86_64 convention: number in rax, arguments in rdi rsi rdx r10 r8 r9; the kernel clobbers rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") nr as isize => ret,
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

/// Makes one system call.
///
/// # Safety
/// As unsafe as the call that is made: pointers among `args` must be valid for what that call reads and writes.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn syscall(nr: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let ret: isize;
    // SAFETY: the aarch64 convention: number in x8, arguments in x0..x5, the result in x0.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") nr,
            inlateout("x0") args[0] as isize => ret,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result(ret)
}

fn result(ret: isize) -> Result<usize, Errno> {
    // The kernel reserves -4095..=-1 for errors.
    match i32::try_from(ret) {
        Ok(code @ -4095..=-1) => Err(Errno::from_raw_os_error(-code)),
        _ => Ok(ret.cast_unsigned()),
    }
}

/// Ends the calling process at once, without running anything that was registered for an orderly exit.
pub(crate) fn exit(code: u8) -> ! {
    loop {
        // SAFETY: takes no pointer and does not return.
        let _ = unsafe { syscall(libc::SYS_exit_group, [usize::from(code), 0, 0, 0, 0, 0]) };
    }
}
