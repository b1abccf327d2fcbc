//! Programs that print what usually differs from run to run, in several languages. Their texts lie in `programs/`.

/// One program.
pub(crate) struct Noisy {
    pub(crate) name: &'static str,
    pub(crate) language: &'static str,
    pub(crate) prints: &'static str,
    pub(crate) argv: &'static [&'static str],
    pub(crate) promise: Promise,
}

pub(crate) enum Promise {
    Same,
    /// It may differ, for this reason.
    None(&'static str),
}

/// Texts that become files of the workspace.
pub(crate) fn files() -> Vec<(String, String)> {
    let files = [
        ("times.c", include_str!("programs/times.c")),
        ("random.c", include_str!("programs/random.c")),
        ("addresses.c", include_str!("programs/addresses.c")),
        ("fixed.c", include_str!("programs/fixed.c")),
        ("waits.c", include_str!("programs/waits.c")),
        ("processes.c", include_str!("programs/processes.c")),
        ("machine.c", include_str!("programs/machine.c")),
        ("directory.c", include_str!("programs/directory.c")),
        ("counter.c", include_str!("programs/counter.c")),
        ("threads.c", include_str!("programs/threads.c")),
    ];
    let files = files.into_iter();
    files
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

macro_rules! noisy {
    ($language:literal, $name:literal, $prints:literal, $($arg:literal),+ => $promise:expr) => {
        Noisy { name: $name, language: $language, prints: $prints, argv: &[$($arg),+], promise: $promise }
    };
    ($language:literal, $name:literal, $prints:literal, $($arg:literal),+) => {
        noisy!($language, $name, $prints, $($arg),+ => Promise::Same)
    };
}

pub(crate) const ALL: &[Noisy] = &[
    noisy!("C", "times", "every clock, by every call", "/work/times"),
    noisy!(
        "C",
        "random",
        "getrandom, getentropy, arc4random, rand of the time, /dev/urandom",
        "/work/random"
    ),
    noisy!(
        "C",
        "addresses",
        "addresses of stack, heap, code and libraries; the 16 bytes of AT_RANDOM; the stack guard",
        "/work/addresses"
    ),
    noisy!(
        "C",
        "fixed",
        "time, randomness and addresses of a static program",
        "/work/fixed"
    ),
    noisy!(
        "C",
        "waits",
        "how long nanosleep, clock_nanosleep, poll, select, ppoll and a condition took",
        "/work/waits"
    ),
    noisy!(
        "C",
        "processes",
        "its own number, its parent's, its children's",
        "/work/processes"
    ),
    noisy!(
        "C",
        "machine",
        "load, memory, CPUs, resource limits, resources used, host name, umask",
        "/work/machine"
    ),
    noisy!(
        "C",
        "directory",
        "a directory as it is read, also from its middle on and again",
        "/work/directory"
    ),
    noisy!(
        "C",
        "threads",
        "numbers that four threads get from getrandom, each for itself",
        "/work/threads"
    ),
    noisy!("C", "counter", "the processor's own counter", "/work/counter" => Promise::None("`rdtsc` is an instruction, not a call")),
    noisy!(
        "Python",
        "python time",
        "time, monotonic, perf_counter, process_time, datetime",
        "/usr/bin/python3",
        "-c",
        "import time, datetime\nfor _ in range(3): print(time.time(), time.monotonic(), time.perf_counter(), time.process_time(), datetime.datetime.now(), time.localtime())"
    ),
    noisy!(
        "Python",
        "python random",
        "random, secrets, uuid4, os.urandom",
        "/usr/bin/python3",
        "-c",
        "import random, secrets, uuid, os\nprint(random.random(), secrets.token_hex(), uuid.uuid4(), uuid.uuid1(), os.urandom(9))"
    ),
    noisy!(
        "Python",
        "python hashes",
        "the order of a set, hash(), id()",
        "/usr/bin/python3",
        "-c",
        "print(set('abcdefghijklmnop'), hash('a'), hash(b'b'), id(object()), object(), {str(i) for i in range(30)})"
    ),
    noisy!(
        "Python",
        "python sleep",
        "how long time.sleep, asyncio.sleep and a waiting lock took",
        "/usr/bin/python3",
        "-c",
        "import time, asyncio, threading\na = time.time(); time.sleep(0.05); print(time.time() - a)\na = time.monotonic(); asyncio.run(asyncio.sleep(0.05)); print(time.monotonic() - a)\na = time.monotonic(); l = threading.Lock(); l.acquire(); print(l.acquire(timeout=0.05), time.monotonic() - a)"
    ),
    noisy!(
        "Python",
        "python directory",
        "os.listdir, scandir, walk, glob",
        "/usr/bin/python3",
        "-c",
        "import os, glob\nprint(os.listdir('/work/data'), [e.name for e in os.scandir('/work')], glob.glob('/work/data/*1*'), list(os.walk('/work'))[:1], os.listdir('/usr/bin'))"
    ),
    noisy!(
        "Python",
        "python children",
        "the time and the numbers of processes that it starts",
        "/usr/bin/python3",
        "-c",
        "import os, time\nfor _ in range(3): print(os.system('echo $$ $PPID; date +%s.%N'), os.getpid(), time.time(), flush=True)"
    ),
    noisy!(
        "Python",
        "python side by side",
        "the time of a child while the parent looks at the clock too",
        "/usr/bin/python3",
        "-c",
        "import subprocess, os\nfor _ in range(3): print(subprocess.run(['date', '+%s.%N'], capture_output=True, text=True, timeout=20).stdout, os.getpid())"
        => Promise::None("two processes move one clock, in the order in which they come")
    ),
    noisy!(
        "Python",
        "python machine",
        "cpu_count, loadavg, uptime, boot id, names, limits",
        "/usr/bin/python3",
        "-c",
        "import os, socket, resource, locale, time\nprint(os.cpu_count(), os.getloadavg(), os.sched_getaffinity(0), socket.gethostname(), locale.getlocale(), time.tzname, os.umask(0), resource.getrusage(0), resource.getrlimit(resource.RLIMIT_STACK))\nfor f in ['uptime', 'loadavg', 'stat', 'meminfo', 'cpuinfo', 'sys/kernel/random/boot_id', 'sys/kernel/random/uuid']: print(open('/proc/' + f).read())\nprint(dict(os.environ))"
    ),
    noisy!(
        "Python",
        "python temporary",
        "names of temporary files",
        "/usr/bin/python3",
        "-c",
        "import tempfile\nprint([tempfile.mkstemp()[1] for _ in range(3)], tempfile.mkdtemp())"
    ),
    noisy!("Python", "python file times", "the time of a new file", "/usr/bin/python3", "-c", "import os\nopen('/tmp/x', 'w').close(); print(os.stat('/tmp/x').st_mtime)" => Promise::None("files have the machine's time")),
    noisy!("Python", "python memory", "how much memory it takes", "/usr/bin/python3", "-c", "print(open('/proc/self/statm').read(), open('/proc/self/stat').read())" => Promise::None("the kernel counts in batches")),
    noisy!("Python", "python identity", "its user outside, its control group", "/usr/bin/python3", "-c", "print(open('/proc/self/uid_map').read(), open('/proc/self/cgroup').read())" => Promise::None("/proc/self names the run and the user that it is outside")),
    noisy!("Python", "python race", "in which order two threads come first", "/usr/bin/python3", "-c", "import threading\nout = []\ndef work(n):\n    for i in range(20000):\n        if i % 100 == 0: out.append(n)\nts = [threading.Thread(target=work, args=(n,)) for n in 'ab']\n[t.start() for t in ts]; [t.join() for t in ts]; print(''.join(out))" => Promise::None("threads take turns as the kernel likes")),
    noisy!(
        "sh",
        "sh date",
        "date before and after sleep, its number",
        "sh",
        "-c",
        "date; date +%N; sleep 0.05; date +%s.%N; echo $$"
    ),
    noisy!(
        "sh",
        "sh random",
        "mktemp, shuf, sort -R, /dev/urandom, /dev/random",
        "sh",
        "-c",
        "mktemp; mktemp -d; seq 9 | shuf; seq 9 | sort -R; od -An -N8 -tx1 /dev/urandom; head -c 100000 /dev/random | cksum"
    ),
    noisy!(
        "sh",
        "sh directory",
        "ls -f, find, echo *",
        "sh",
        "-c",
        "ls -f /work/data; find /work/data; cd /work/data; echo *; ls -U /usr/bin | cksum"
    ),
    noisy!(
        "sh",
        "sh pipe",
        "processes at both ends of pipes",
        "sh",
        "-c",
        "for i in 1 2 3; do (echo $i; date +%N) | (read a; read b; echo $a $b $$); done"
    ),
    noisy!(
        "bash",
        "bash variables",
        "RANDOM, SRANDOM, SECONDS, EPOCHREALTIME, BASHPID, the time of a command",
        "bash",
        "-c",
        "echo $RANDOM $RANDOM $SRANDOM $SECONDS $EPOCHREALTIME $BASHPID; TIMEFORMAT='%R %U %S'; time sleep 0.05; printf '%(%F %T)T\\n' -1; (echo $BASHPID)"
    ),
    noisy!(
        "awk",
        "awk",
        "rand of a seed that is the time",
        "awk",
        "BEGIN { srand(); print rand(), srand() }"
    ),
    noisy!(
        "JavaScript",
        "node time",
        "Date, performance.now, hrtime, a timer",
        "/usr/bin/node",
        "-e",
        "const a = Date.now(); console.log(a, new Date().toString(), process.hrtime.bigint()); setTimeout(() => console.log(Date.now() - a), 50)"
    ),
    noisy!(
        "JavaScript",
        "node random",
        "Math.random, crypto",
        "/usr/bin/node",
        "-e",
        "const c = require('crypto'); console.log(Math.random(), Math.random(), c.randomUUID(), c.randomBytes(9).toString('hex'))"
    ),
    noisy!(
        "JavaScript",
        "node machine",
        "process.pid, os.cpus, uptime, loadavg, memory, readdir",
        "/usr/bin/node",
        "-e",
        "const os = require('os'), fs = require('fs'); console.log(process.pid, process.ppid, os.cpus(), os.uptime(), os.loadavg(), os.totalmem(), os.hostname(), os.availableParallelism?.(), fs.readdirSync('/work/data'), process.uptime() > 0)"
    ),
    noisy!(
        "Perl",
        "perl",
        "time, rand, the order of a hash, its number, readdir",
        "/usr/bin/perl",
        "-MTime::HiRes=time,sleep",
        "-e",
        "my %h = map { $_ => 1 } 'a' .. 'z'; print time, ' ', rand, ' ', join(',', keys %h), \" $$ \", scalar(localtime), \" @{[times]}\\n\"; my $t = time; sleep 0.05; print time - $t, \"\\n\"; opendir my $d, '/work/data'; print join(',', readdir $d), \"\\n\"; print \\my $x, \"\\n\""
    ),
    noisy!(
        "sh",
        "inherited",
        "what the caller had: variables, umask, limits, descriptors",
        "bash",
        "-c",
        "env | sort; umask; ulimit -s; ls /proc/self/fd; id -u; pwd; tty; cat /etc/machine-id /etc/hostname; nproc"
    ),
    noisy!(
        "sh",
        "hundred processes",
        "the number and the time of the last of a hundred",
        "sh",
        "-c",
        "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; sh -c 'echo $$'; date +%N"
    ),
    noisy!(
        "sh",
        "exec",
        "one program after the other in the same process",
        "sh",
        "-c",
        "exec sh -c 'exec python3 -c \"import os, time; print(os.getpid(), time.time(), os.urandom(4))\"'"
    ),
    noisy!(
        "Python",
        "python busy",
        "a loop that looks at the clock until it has moved",
        "/usr/bin/python3",
        "-c",
        "import time\na = time.time(); n = 0\nwhile time.time() - a < 0.02: n += 1\nprint(n)"
    ),
];
