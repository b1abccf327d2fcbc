//! A program of a few hundred bytes that goes first inside a container with network. It waits until the way out stands, which is when somebody listens at an address that leads nowhere before,
//! and then becomes the program: nothing that was promised a way runs without one.
//!
//! Arguments: its name, the paths to try, an empty one, then the program's own.

use std::arch::global_asm;
use std::net::SocketAddrV4;

global_asm!(
    r#"
    .pushsection .rodata.cofferdam_usher, "a", @progbits
    .balign 16
    .globl cofferdam_usher_begin
    .globl cofferdam_usher_end
cofferdam_usher_begin:
    // The file's head: a 64-bit little-endian executable for x86-64 with one segment, which is all of it.
    .byte 0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    .short 2, 62
    .long 1
    .quad 0x400000 + (.Lusher_enter - cofferdam_usher_begin)
    .quad 64, 0
    .long 0
    .short 64, 56, 1, 0, 0, 0
    .long 1, 5
    .quad 0, 0x400000, 0x400000
    .quad cofferdam_usher_end - cofferdam_usher_begin
    .quad cofferdam_usher_end - cofferdam_usher_begin
    .quad 0x1000

.Lusher_enter: // r13: arguments, r14: environment, ebp: how often it is tried, a millisecond apart
    mov r12, [rsp]
    lea r13, [rsp + 8]
    lea r14, [r13 + r12*8 + 8]
    mov edi, 127
    cmp r12, 4
    jb .Lusher_exit
    mov ebp, 15000
.Lusher_knock:
    mov edi, 2
    mov esi, 0x80001
    xor edx, edx
    mov eax, 41 // socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC)
    syscall
    test rax, rax
    js .Lusher_nap
    mov rbx, rax
    mov rdi, rax
    lea rsi, [rip + .Lusher_address]
    mov edx, 16
    mov eax, 42 // connect
    syscall
    mov r15, rax
    mov rdi, rbx
    mov eax, 3 // close
    syscall
    test r15, r15
    jz .Lusher_program
.Lusher_nap:
    dec ebp
    mov edi, 126
    jz .Lusher_exit
    lea rdi, [rip + .Lusher_millisecond]
    xor esi, esi
    mov eax, 35 // nanosleep
    syscall
    jmp .Lusher_knock

.Lusher_program: // r12: its arguments, behind the empty path
    lea rbx, [r13 + 8]
    mov r12, rbx
.Lusher_skip:
    mov rax, [r12]
    add r12, 8
    cmp byte ptr [rax], 0
    jne .Lusher_skip
    mov ebp, 127
.Lusher_try: // as a shell does: what is missing is passed over, what may not be executed is remembered
    mov rdi, [rbx]
    add rbx, 8
    cmp byte ptr [rdi], 0
    je .Lusher_none
    mov rsi, r12
    mov rdx, r14
    mov eax, 59 // execve
    syscall
    cmp eax, -2
    je .Lusher_try
    cmp eax, -20
    je .Lusher_try
    mov ebp, 126
    cmp eax, -13
    je .Lusher_try
.Lusher_none:
    mov edi, ebp
.Lusher_exit:
    mov eax, 231 // exit_group
    syscall

.Lusher_millisecond: .quad 0, 1000000
.Lusher_address: .byte 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
cofferdam_usher_end:
    .popsection
    "#
);

unsafe extern "C" {
    static cofferdam_usher_begin: u8;
    static cofferdam_usher_end: u8;
}

/// A `struct sockaddr_in`, which is the last thing in the file.
const ADDRESS: usize = 16;

/// The executable file, which waits for somebody to listen there.
pub fn executable(until: SocketAddrV4) -> Vec<u8> {
    let (begin, end) = (
        &raw const cofferdam_usher_begin,
        &raw const cofferdam_usher_end,
    );
    let length = end.addr().saturating_sub(begin.addr());
    // SAFETY: everything between the two is in this binary's read-only data, put there above.
    let file = unsafe { std::slice::from_raw_parts(begin, length) };
    let mut file = file.to_vec();
    file.truncate(length.saturating_sub(ADDRESS));
    let family = u16::try_from(libc::AF_INET).unwrap_or_default();
    file.extend(family.to_ne_bytes());
    file.extend(until.port().to_be_bytes());
    file.extend(until.ip().octets());
    file.extend([0; 8]);
    file
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    fn usher(until: SocketAddrV4, args: &[&str]) -> (tempfile::TempDir, Command) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("usher");
        std::fs::write(&path, executable(until)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new(path);
        command.args(args).env_clear().env("A", "1");
        (dir, command)
    }

    #[test]
    fn it_waits_until_somebody_listens_and_then_is_the_program() {
        // Has its port from the beginning, so that nobody else gets it, and does not listen yet.
        let family = rustix::net::AddressFamily::INET;
        let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None).unwrap();
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        rustix::net::bind(&socket, &any).unwrap();
        let until = rustix::net::getsockname(&socket).unwrap();
        let until = SocketAddrV4::try_from(until).unwrap();
        let args = ["/no/sh", "/bin/sh", "", "sh", "-c", "echo $A $0 $1", "x"];
        let (_dir, mut command) = usher(until, &args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none());
        rustix::net::listen(&socket, 8).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 x\n");
        assert_eq!(output.status.code(), Some(0));
    }

    #[test]
    fn what_is_not_there_or_cannot_be_executed_is_told_by_its_exit_code() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let until = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let run = |args: &[&str]| {
            let (_dir, mut command) = usher(until, args);
            command.status().unwrap().code()
        };
        assert_eq!(run(&["/a/b", "/c", "", "b"]), Some(127));
        assert_eq!(run(&["/etc/passwd", "/c", "", "b"]), Some(126));
    }
}
