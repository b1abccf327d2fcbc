//! A program of a few hundred bytes that goes first inside walls which another tool has built. It starts the real program and says, over a descriptor or a file that the program never
//! gets hold of, which step failed or how the program ended: such tools report neither a signal nor a program that is not there in a way that can be told from an exit code.
//!
//! It also sets what must hold for the program and not for the tool: resource limits, a session, and a Landlock domain, from which the kernel lets nobody trace or read the processes
//! outside it, this one and the tool's own first process among them.
//!
//! Arguments: its name, where to tell (a descriptor's number, or a path), resource limits as `7=1024,1=65536`, the working directory, the user and group that the program becomes or
//! nothing, how many tasks of the whole kernel are too many or nothing, the paths to try, an empty one, then the program's own. What it says is a [`Word`]; the kernel's `struct statfs` of `/tmp` comes along when the program has ended.

use std::arch::global_asm;

/// Where the attendant keeps the program's home directory and POSIX shared memory: in the one file system that has a size.
pub const SCRATCH: &str = "/tmp";
pub const HOME_IN_SCRATCH: &str = "/tmp/home";
pub const SHM_IN_SCRATCH: &str = "/tmp/shm";

/// How long a message is: kind and value, four bytes each, and a `struct statfs`.
pub const MESSAGE: usize = 8 + size_of::<libc::statfs>();
const _: () = assert!(MESSAGE == 128);

global_asm!(
    r#"
    .pushsection .rodata.cofferdam_attendant, "a", @progbits
    .balign 16
    .globl cofferdam_attendant_begin
    .globl cofferdam_attendant_end
cofferdam_attendant_begin:
    // The file's head: a 64-bit little-endian executable for x86-64 with one segment, which is all of it.
    .byte 0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    .short 2, 62
    .long 1
    .quad 0x400000 + (.Lenter - cofferdam_attendant_begin)
    .quad 64, 0
    .long 0
    .short 64, 56, 1, 0, 0, 0
    .long 1, 5
    .quad 0, 0x400000, 0x400000
    .quad cofferdam_attendant_end - cofferdam_attendant_begin
    .quad cofferdam_attendant_end - cofferdam_attendant_begin
    .quad 0x1000

.Lenter: // r13: arguments, r14: environment
    mov r12, [rsp]
    lea r13, [rsp + 8]
    lea r14, [r13 + r12*8 + 8]
    mov edi, 127
    cmp r12, 8
    jb .Lexit
    // bubblewrap adds its own PWD.
    mov rsi, r14
    mov rdi, r14
.Lvariable:
    mov rax, [rsi]
    add rsi, 8
    test rax, rax
    jz .Lvariables_end
    cmp dword ptr [rax], 0x3d445750
    je .Lvariable
    mov [rdi], rax
    add rdi, 8
    jmp .Lvariable
.Lvariables_end:
    mov [rdi], rax

    // r15: where to tell. Closed when the program is executed.
    mov rdi, [r13 + 8]
    cmp byte ptr [rdi], 0x2f
    je .Lopen
    call .Lnumber
    mov r15, rax
    mov edi, eax
    mov esi, 2
    mov edx, 1
    mov eax, 72 // fcntl(F_SETFD, FD_CLOEXEC)
    syscall
    jmp .Lfork
.Lopen:
    mov esi, 0x80001
    xor edx, edx
    mov eax, 2 // open(O_WRONLY | O_CLOEXEC)
    syscall
    mov r15, rax
.Lfork:
    mov eax, 57 // fork
    syscall
    mov ecx, 5
    test rax, rax
    js .Lfailed
    jz .Lchild
    mov rbx, rax
    // The program's streams are its own: whoever reads them waits for it alone.
    xor edi, edi
    mov eax, 3 // close
    syscall
    mov edi, 1
    mov eax, 3
    syscall
    mov edi, 2
    mov eax, 3
    syscall
    sub rsp, 288
    // ebp: how to wait. r12: how many tasks of this kernel are too many; none to be counted: for as long as it takes.
    mov ebp, 0x40000000
    mov rdi, [r13 + 40]
    call .Lnumber
    mov r12, rax
    test rax, rax
    jz .Lwait
    or ebp, 1
    mov qword ptr [rsp + 136], 0
    mov qword ptr [rsp + 144], 10000000
    mov qword ptr [rsp + 152], 0x10000
    xor edi, edi
    lea rsi, [rsp + 152]
    xor edx, edx
    mov r10d, 8
    mov eax, 14 // rt_sigprocmask(SIG_BLOCK, SIGCHLD)
    syscall
.Lwait:
    mov rdi, -1
    lea rsi, [rsp + 128]
    mov edx, ebp
    xor r10d, r10d
    mov eax, 61 // wait4(-1, ..., __WALL and, where tasks are counted, WNOHANG)
    syscall
    cmp rax, rbx
    je .Lended
    test rax, rax
    jz .Lcount
    jns .Lwait
    cmp rax, -4
    je .Lwait
    mov edi, 127
    jmp .Lexit
.Lcount:
    lea rdi, [rsp + 160]
    mov eax, 99 // sysinfo
    syscall
    movzx eax, word ptr [rsp + 240]
    cmp rax, r12
    jae .Ltoo_many
    lea rdi, [rsp + 152]
    xor esi, esi
    lea rdx, [rsp + 136]
    mov r10d, 8
    mov eax, 128 // rt_sigtimedwait: until a child ends, or for ten milliseconds
    syscall
    jmp .Lwait
.Ltoo_many: // everything ends with the first process of this kernel
    mov dword ptr [rsp], 7
    mov [rsp + 4], eax
    mov rdi, r15
    mov rsi, rsp
    mov edx, 128
    mov eax, 1
    syscall
    mov edi, 137
    jmp .Lexit
.Lended:
    mov dword ptr [rsp], 1
    mov eax, [rsp + 128]
    mov [rsp + 4], eax
    lea rdi, [rip + .Ltmp]
    lea rsi, [rsp + 8]
    mov eax, 137 // statfs
    syscall
    test rax, rax
    jz .Ltell
    mov qword ptr [rsp + 24], 0
.Ltell:
    mov rdi, r15
    mov rsi, rsp
    mov edx, 128
    mov eax, 1 // write
    syscall
    mov eax, [rsp + 128]
    mov edi, eax
    and edi, 0x7f
    jz .Lexited
    add edi, 128
    jmp .Lexit
.Lexited:
    mov edi, eax
    shr edi, 8
    and edi, 255
.Lexit:
    mov eax, 231 // exit_group
    syscall

.Lchild:
    mov eax, 112 // setsid
    syscall
    // A Landlock domain that allows everything, but to make block devices, which nobody here can. Without Landlock, or with one too old for renaming between directories: none.
    sub rsp, 32
    mov qword ptr [rsp], 0x2800
    mov rdi, rsp
    mov esi, 8
    xor edx, edx
    mov eax, 444 // landlock_create_ruleset
    syscall
    test rax, rax
    js .Lidentity
    mov rbx, rax
    lea rdi, [rip + .Lslash]
    mov esi, 0x280000
    xor edx, edx
    mov eax, 2 // open(O_PATH | O_CLOEXEC)
    syscall
    mov qword ptr [rsp], 0x2000
    mov [rsp + 8], eax
    mov rdi, rbx
    mov esi, 1
    mov rdx, rsp
    xor r10d, r10d
    mov eax, 445 // landlock_add_rule
    syscall
    test rax, rax
    jnz .Lidentity
    mov rdi, rbx
    xor esi, esi
    mov eax, 446 // landlock_restrict_self
    syscall

.Lidentity: // root of a kernel of its own lets go of being it: with its last root id, every capability goes
    mov rdi, [r13 + 32]
    cmp byte ptr [rdi], 0
    je .Lenter_directory
    call .Lnumber
    mov ebp, eax
    mov ebx, 63
.Lbounding:
    mov edi, 24 // PR_CAPBSET_DROP
    mov esi, ebx
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    mov eax, 157 // prctl
    syscall
    dec ebx
    jns .Lbounding
    xor edi, edi
    xor esi, esi
    mov eax, 116 // setgroups
    syscall
    mov ecx, 6
    test rax, rax
    js .Lfailed
    mov edi, ebp
    mov esi, ebp
    mov edx, ebp
    mov eax, 119 // setresgid
    syscall
    mov ecx, 6
    test rax, rax
    js .Lfailed
    mov edi, ebp
    mov esi, ebp
    mov edx, ebp
    mov eax, 117 // setresuid
    syscall
    mov ecx, 6
    test rax, rax
    js .Lfailed
.Lenter_directory: // in scratch space that is the program's own
    lea rdi, [rip + .Lhome]
    mov esi, 0x1ed
    mov eax, 83 // mkdir
    syscall
    lea rdi, [rip + .Lshm]
    mov esi, 0x3ff
    mov eax, 83
    syscall
    mov rdi, [r13 + 24]
    mov eax, 80 // chdir
    syscall
    mov ecx, 3
    test rax, rax
    js .Lfailed

    mov rdi, [r13 + 16]
.Llimit:
    cmp byte ptr [rdi], 0
    je .Lprogram
    call .Lnumber
    mov r8, rax
    inc rdi
    call .Lnumber
    mov [rsp], rax
    mov [rsp + 8], rax
    mov rbx, rdi
    mov edi, r8d
    mov rsi, rsp
    mov eax, 160 // setrlimit
    syscall
    mov ecx, 4
    test rax, rax
    js .Lfailed
    mov rdi, rbx
    cmp byte ptr [rdi], 0x2c
    jne .Llimit
    inc rdi
    jmp .Llimit

.Lprogram: // r12: its arguments, behind the empty path
    lea rbx, [r13 + 48]
    mov r12, rbx
.Lskip:
    mov rax, [r12]
    add r12, 8
    cmp byte ptr [rax], 0
    jne .Lskip
    mov ebp, 2
.Ltry: // as a shell does: what is missing is passed over, what may not be executed is remembered
    mov rdi, [rbx]
    add rbx, 8
    cmp byte ptr [rdi], 0
    je .Lnone
    mov rsi, r12
    mov rdx, r14
    mov eax, 59 // execve
    syscall
    neg eax
    cmp eax, 2
    je .Ltry
    cmp eax, 20
    je .Ltry
    mov ebp, eax
    cmp eax, 13
    je .Ltry
.Lnone:
    mov ecx, 2
    mov eax, ebp
    neg eax
.Lfailed: // ecx: what, eax: the negative errno
    sub rsp, 128
    mov [rsp], ecx
    neg eax
    mov [rsp + 4], eax
    mov rdi, r15
    mov rsi, rsp
    mov edx, 128
    mov eax, 1
    syscall
    mov edi, 127
    jmp .Lexit

.Lnumber: // decimal at rdi, up to the first other character, into rax
    xor eax, eax
.Ldigit:
    movzx edx, byte ptr [rdi]
    sub edx, 0x30
    cmp edx, 9
    ja .Lnumber_end
    imul rax, rax, 10
    add rax, rdx
    inc rdi
    jmp .Ldigit
.Lnumber_end:
    ret

.Lhome: .asciz "/tmp/home"
.Lshm: .asciz "/tmp/shm"
.Ltmp: .asciz "/tmp"
.Lslash: .asciz "/"
cofferdam_attendant_end:
    .popsection
    "#
);

unsafe extern "C" {
    static cofferdam_attendant_begin: u8;
    static cofferdam_attendant_end: u8;
}

/// The executable file.
pub fn executable() -> &'static [u8] {
    let (begin, end) = (
        &raw const cofferdam_attendant_begin,
        &raw const cofferdam_attendant_end,
    );
    let length = end.addr().saturating_sub(begin.addr());
    // SAFETY: everything between the two is in this binary's read-only data, put there above.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

/// What the attendant has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Ended {
        /// As wait(2) gives it.
        status: i32,
        /// `None` where the kernel did not say.
        scratch: Option<ScratchLeft>,
    },
    /// There were as many tasks as are too many, and the attendant has ended everything.
    TooManyTasks,
    /// The program was not executed.
    Failed { at: FailedAt, errno: i32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedAt {
    Exec,
    Cwd,
    Rlimits,
    Fork,
    Identity,
}

/// How full the scratch file system was when the program had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScratchLeft {
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// `None` where they are not counted.
    pub free_files: Option<u64>,
}

impl Word {
    /// The first message of what was read. `None` for anything that the attendant does not say.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let message = bytes.get(..MESSAGE)?;
        let small = |at: usize| -> Option<i32> {
            let part = message.get(at..at + 4)?;
            Some(i32::from_ne_bytes(part.try_into().ok()?))
        };
        let large = |at: usize| -> Option<u64> {
            let part = message.get(at..at + 8)?;
            Some(u64::from_ne_bytes(part.try_into().ok()?))
        };
        let value = small(4)?;
        let at = match small(0)? {
            1 => {
                let size = large(8 + std::mem::offset_of!(libc::statfs, f_bsize))?;
                let blocks = large(8 + std::mem::offset_of!(libc::statfs, f_blocks))?;
                let free = large(8 + std::mem::offset_of!(libc::statfs, f_bfree))?;
                let files = large(8 + std::mem::offset_of!(libc::statfs, f_files))?;
                let free_files = large(8 + std::mem::offset_of!(libc::statfs, f_ffree))?;
                let scratch = (blocks > 0).then(|| ScratchLeft {
                    used_bytes: blocks.saturating_sub(free).saturating_mul(size),
                    free_bytes: free.saturating_mul(size),
                    free_files: (files > 0).then_some(free_files),
                });
                return Some(Self::Ended {
                    status: value,
                    scratch,
                });
            }
            2 => FailedAt::Exec,
            3 => FailedAt::Cwd,
            4 => FailedAt::Rlimits,
            6 => FailedAt::Identity,
            7 => return Some(Self::TooManyTasks),
            5 => FailedAt::Fork,
            _ => return None,
        };
        Some(Self::Failed { at, errno: value })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Output, Stdio};

    use super::*;

    /// Runs the attendant as a plain process; it tells into a file.
    fn attend(limits: &str, cwd: &str, rest: &[&str]) -> (Output, Option<Word>) {
        attend_as(("", ""), limits, cwd, rest)
    }

    fn attend_as(
        (identity, tasks): (&str, &str),
        limits: &str,
        cwd: &str,
        rest: &[&str],
    ) -> (Output, Option<Word>) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("attendant");
        let mut file = std::fs::File::create(&program).unwrap();
        file.write_all(executable()).unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o755))
            .unwrap();
        drop(file);
        let told = dir.path().join("told");
        std::fs::write(&told, "").unwrap();
        let reader = std::fs::File::open(&told).unwrap();
        let output = Command::new(&program)
            .arg(&told)
            .args([limits, cwd, identity, tasks])
            .args(rest)
            .env_clear()
            .env("A", "1")
            .env("PWD", "/nowhere")
            .env("Z", "2")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        // Here, the scratch space is the host's; only empty directories go.
        for made in [HOME_IN_SCRATCH, SHM_IN_SCRATCH] {
            let _ = std::fs::remove_dir(made);
        }
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut { reader }, &mut said).unwrap();
        (output, Word::read(&said))
    }

    fn ended(word: Option<Word>) -> i32 {
        let Some(Word::Ended { status, scratch }) = word else {
            panic!("{word:?}")
        };
        assert!(scratch.is_some());
        status
    }

    #[test]
    fn the_program_runs_with_its_own_arguments_environment_limits_and_directory() {
        let script = "pwd; ulimit -n; echo $0 $1; env";
        let (output, word) = attend(
            "7=99,1=4096",
            "/usr",
            &["/no/sh", "/bin/sh", "", "sh", "-c", script, "zero", "one"],
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        let variables = lines.split_off(3);
        assert_eq!(lines, ["/usr", "99", "zero one"]);
        assert!(
            variables.contains(&"A=1") && variables.contains(&"Z=2"),
            "{text}"
        );
        assert!(!variables.contains(&"PWD=/nowhere"), "{text}");
        assert_eq!((ended(word), output.status.code()), (0, Some(0)));
    }

    #[test]
    fn root_becomes_somebody_else_and_keeps_nothing_or_the_program_does_not_run() {
        let script = "id -u; id -G; grep CapPrm /proc/self/status; grep CapBnd /proc/self/status";
        let (output, word) = attend_as(("1234", ""), "", "/", &["/bin/sh", "", "sh", "-c", script]);
        if !rustix::process::geteuid().is_root() {
            let at = FailedAt::Identity;
            let errno = libc::EPERM;
            assert_eq!(word, Some(Word::Failed { at, errno }));
            return;
        }
        let nothing = "CapPrm:\t0000000000000000\nCapBnd:\t0000000000000000\n";
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, format!("1234\n1234\n{nothing}"));
        assert_eq!(ended(word), 0);
    }

    #[test]
    fn as_many_tasks_as_are_too_many_end_everything() {
        let program = ["/bin/sh", "", "sh", "-c", "sleep 3; exit 3"];
        // The kernel of a test is the host's.
        let (output, word) = attend_as(("", "1"), "", "/", &program);
        assert_eq!(
            (word, output.status.code()),
            (Some(Word::TooManyTasks), Some(137))
        );
        let (output, word) = attend_as(("", "65535"), "", "/", &program);
        assert_eq!((ended(word), output.status.code()), (3 << 8, Some(3)));
    }

    #[test]
    fn an_exit_code_and_a_signal_are_told_apart() {
        let run = |script| attend("", "/", &["/bin/sh", "", "sh", "-c", script]);
        let (output, word) = run("exit 137");
        assert_eq!((ended(word), output.status.code()), (137 << 8, Some(137)));
        let (output, word) = run("kill -KILL $$");
        assert_eq!((ended(word), output.status.code()), (9, Some(137)));
        // Its whole process group, in which the attendant is not.
        let (_, word) = run("kill -TERM 0");
        assert_eq!(ended(word), 15);
    }

    #[test]
    fn what_cannot_be_executed_and_where_it_cannot_start_is_told_with_its_errno() {
        let failed = |cwd, rest: &[&str]| {
            let (output, word) = attend("", cwd, rest);
            assert_eq!(output.status.code(), Some(127));
            word
        };
        let at = |at, errno| Some(Word::Failed { at, errno });
        let missing = failed("/", &["/a/b", "/c", "", "b"]);
        assert_eq!(missing, at(FailedAt::Exec, libc::ENOENT));
        let refused = failed("/", &["/etc/passwd", "/c", "", "b"]);
        assert_eq!(refused, at(FailedAt::Exec, libc::EACCES));
        let nowhere = failed("/a/b", &["/bin/true", "", "b"]);
        assert_eq!(nowhere, at(FailedAt::Cwd, libc::ENOENT));
        assert_eq!(Word::read(&[0; MESSAGE]), None);
        assert_eq!(Word::read(&[1; 5]), None);
    }
}
