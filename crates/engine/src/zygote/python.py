# A Python that has started and waits. For each sandbox that it is shown it makes two copies of itself: the first enters the namespaces, and makes the second, which
# is the program's process: it gives up everything that the process of a cold start gives up, in the same order, waits for the word to go, and then is `__main__`.
# Both are children of whoever started this Python, so that the kernel tells that one how they ended. The code of a run is read after the last wall stands.
#
# Loaded by `-c` over descriptor 0, a socket whose messages are: this text; the numbers of system calls and the modules to import; scripts, until an empty one; then a sandbox each.
import atexit
import ctypes
import fcntl
import gc
import importlib.machinery
import os
import resource
import signal
import socket
import struct
import sys
import time

DOOR = 100
MESSAGE = 1 << 18
MAX_FDS = 8

CLONE_PARENT, CLONE_PIDFD = 0x8000, 0x1000
NEW_NETWORK, NEW_CGROUP = 0x40000000, 0x02000000
SET_DUMPABLE, BOUNDING_DROP, NO_NEW_PRIVS = 4, 24, 38
CAPABILITY_VERSION_3 = 0x20080522
FILTER, SPEC_ALLOW, NEW_LISTENER, WAIT_KILLABLE = 1, 4, 8, 32
SET_INTERFACE_FLAGS, UP_AND_RUNNING = 0x8914, 0x41

# Kinds of messages, and stages in the order of the protocol.
SETUP_FAILED, STARTED, EXEC_FAILED, LISTENER, WAITING, ROUTES, GUEST = 16, 18, 19, 20, 22, 23, 25
GO, GO_WITH_RESULT = 2, 3
JOIN_SESSION_KEYRING = 1
STAGES = ("descriptors", "network", "loopback", "identity", "root", "landlock", "capabilities", "clone", "cgroup", "cgroup namespace", "rlimits", "affinity", "cwd", "privileges", "seccomp", "exec")

raw = ctypes.CDLL(None, use_errno=True).syscall
raw.restype = ctypes.c_long
numbers = {}
# Scripts that most runs begin with, as they were read and as they were compiled.
known = {}


class Failed(Exception):
    """A stage, and what the kernel said."""


def call(name, *arguments):
    result = raw(ctypes.c_long(numbers[name]), *[a if isinstance(a, (bytes, ctypes.Array)) else ctypes.c_long(a) for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def at(stage, work, *arguments):
    try:
        return work(*arguments)
    except OSError as error:
        raise Failed(STAGES.index(stage), error.errno or 0) from None


def message(kind, *values):
    return struct.pack("=B7x3Q", kind, *(values + (0, 0, 0))[:3])


def receive(door):
    while True:
        data, fds, flags, _ = socket.recv_fds(door, MESSAGE, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            os._exit(1)
        return data, fds


def copy():
    """A copy of this process, which is a child of its parent: 0 in the copy, its pid here, and a descriptor of it."""
    descriptor = ctypes.c_int(-1)
    wanted = struct.pack("=11Q", CLONE_PARENT | CLONE_PIDFD, ctypes.addressof(descriptor), *[0] * 9)
    pid = call("clone3", ctypes.create_string_buffer(wanted, len(wanted)), len(wanted))
    return pid, descriptor.value


def prepare():
    """Whatever was inherited and is not meant for programs goes before anything waits. Owning the namespaces is right enough to enter them."""
    call("close_range", DOOR + 1, 0xFFFFFFFF, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    default = ctypes.create_string_buffer(32)
    for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ}:
        # Not by the C library, which keeps two of them for itself.
        call("rt_sigaction", number, default, 0, 8)
    call("personality", 0)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("0")
    except OSError:
        pass
    give_up_capabilities()
    os.chdir("/")


def give_up_capabilities():
    empty_bounding_set()
    call("prctl", NO_NEW_PRIVS, 1, 0, 0, 0)
    drop_capabilities()


def empty_bounding_set():
    for capability in range(64):
        try:
            call("prctl", BOUNDING_DROP, capability, 0, 0, 0)
        except OSError as error:
            if error.errno == 22:
                return  # past the last that this kernel knows
            if error.errno == 1:
                return  # there is none to be given up
            raise


def drop_capabilities():
    call("capset", ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0), 8), ctypes.create_string_buffer(24))


def raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket.fileno(), SET_INTERFACE_FLAGS, struct.pack("=16sH22x", b"lo", UP_AND_RUNNING))


def become(uid, gid):
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def leave_session_keyring():
    try:
        call("keyctl", JOIN_SESSION_KEYRING, 0)
    except OSError:
        pass  # where a container forbids it, the filter forbids it to programs too


def enter(data, fds):
    """In the first copy: through the door, and one more copy, since only a child is in another pid namespace."""
    # Out of the way of what a program's descriptors are numbered.
    os.dup2(fds[0], DOOR, inheritable=False)
    os.close(fds[0])
    door = socket.socket(fileno=DOOR)
    try:
        line, _, program = data.partition(b"\n")
        uid, gid, privileged, routes, *cpus = map(int, line.split())
        namespaces, ruleset = fds[1:6], fds[6:]
        for namespace in namespaces:
            at("identity", call, "setns", namespace, 0)
            os.close(namespace)
        if privileged:
            at("identity", become, uid, gid)
        leave_session_keyring()
        at("network", call, "unshare", NEW_NETWORK)
        at("loopback", raise_loopback)
        at("cgroup namespace", call, "unshare", NEW_CGROUP)
        pid, descriptor = at("clone", copy)
        if pid != 0:
            os._exit(0)
        introduce(door)
        wall_in(door, program, routes, cpus, ruleset)
        return door
    except BaseException as error:
        tell(door, error)


def introduce(door):
    """Until this is said, the process is known by its group, which it leaves afterwards."""
    own = os.pidfd_open(os.getpid())
    socket.send_fds(door, [message(GUEST)], [own])
    os.close(own)


def tell(door, error):
    """The supervisor hears why nothing was run; it is never taken for the program's own end."""
    failed = error if isinstance(error, Failed) else Failed(0, getattr(error, "errno", None) or 5)
    kind = EXEC_FAILED if STAGES[failed.args[0]] in ("cwd", "exec") else SETUP_FAILED
    try:
        door.send(message(kind, *failed.args))
    finally:
        os._exit(127)


def wall_in(door, program, routes, cpus, ruleset):
    """As the process of a cold start does it, in its order."""
    ctypes.pythonapi.PyOS_AfterFork_Child()
    os.setsid()
    os.umask(0o022)
    at("capabilities", empty_bounding_set)
    at("privileges", call, "prctl", NO_NEW_PRIVS, 1, 0, 0, 0)
    if routes:
        send_routes(door)
    for rules in ruleset:
        at("landlock", call, "landlock_restrict_self", rules, 0)
        os.close(rules)
    at("capabilities", drop_capabilities)
    call("prctl", SET_DUMPABLE, 1, 0, 0, 0)
    if cpus:
        at("affinity", os.sched_setaffinity, 0, cpus)
    listener = at("seccomp", install, program)
    socket.send_fds(door, [message(LISTENER)], [listener])
    os.close(listener)


def send_routes(door):
    try:
        files = [os.open("/proc/self/net/" + name, os.O_RDONLY | os.O_CLOEXEC) for name in ("snmp", "snmp6")]
    except OSError:
        return
    socket.send_fds(door, [message(ROUTES)], files)
    for file in files:
        os.close(file)


def install(program):
    kept = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(kept))
    described = ctypes.create_string_buffer(described, len(described))
    try:
        return call("seccomp", FILTER, SPEC_ALLOW | NEW_LISTENER | WAIT_KILLABLE, described)
    except OSError:
        return call("seccomp", FILTER, SPEC_ALLOW | NEW_LISTENER, described)


def await_word(door):
    """The errand and its descriptors. From here on this is a program like any other."""
    data, fds = receive(door)
    limits, cwd, count, *texts = data[1:].split(b"\0")
    texts = [os.fsdecode(text) for text in texts]
    arguments, environment = texts[: int(count)], texts[int(count) :]
    standard, rest = fds[:3], fds[3:]
    result = rest.pop(0) if data[0] == GO_WITH_RESULT else None
    for group in rest:
        at("cgroup", os.write, group, b"0")
    at("cwd", os.chdir, cwd)
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
    for fd in standard + rest:
        os.close(fd)
    if result is not None and result != 3:
        os.dup2(result, 3)
        os.close(result)
    elif result is not None:
        os.set_inheritable(3, True)
    for limit in limits.split():
        number, value = map(int, limit.split(b":"))
        at("rlimits", resource.setrlimit, number, (value, value))
    door.send(message(STARTED, time.monotonic_ns()))
    door.close()
    return arguments, environment


def take_on(arguments, environment):
    """What the interpreter itself does between its start and the first line of a script."""
    wanted = dict(text.split("=", 1) for text in environment)
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        # Most are as they were when this interpreter started, and a write costs a copy of memory.
        if os.environ.get(name) != value:
            os.environ[name] = value
    if "TZ" in wanted:
        time.tzset()
    sys.orig_argv[:] = arguments
    sys.argv[:] = arguments[1:]
    path = os.path.abspath(sys.argv[0])
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write("%s: can't open file %r: [Errno %d] %s\n" % (sys.executable, path, error.errno, error.strerror))
        finish(2)
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    main = type(sys)("__main__")
    main.__file__ = path
    main.__builtins__ = sys.modules["builtins"]
    main.__cached__ = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    return main, path, source


def compiled(path, source):
    text, code = known.get(path, (None, None))
    return code if text == source else compile(source, path, "exec", dont_inherit=True)


def run(main, path, source):
    try:
        exec(compiled(path, source), main.__dict__)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals is globals():
            trace = trace.tb_next
        return error.with_traceback(trace)
    return None


def code_of(error):
    """What an interpreter that meets this at the top says and ends with."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        say(str(error.code) + "\n")
        return 1
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as worse:
        sys.__excepthook__(type(worse), worse, worse.__traceback__)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def say(text):
    try:
        sys.stderr.write(text)
    except Exception:
        pass


def end(main, error):
    code = 0 if error is None else code_of(error)
    is_interrupted = isinstance(error, KeyboardInterrupt)
    del error
    threads = sys.modules.get("threading")
    if threads is not None:
        threads._shutdown()
    atexit._run_exitfuncs()
    code = flush(code)
    for name in list(main.__dict__):
        if name != "__builtins__":
            main.__dict__[name] = None
    gc.collect()
    code = flush(code)
    if is_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    finish(code)


def flush(code):
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception as error:
            if stream is sys.stdout:
                say("Exception ignored in: %r\n%s: %s\n" % (stream, type(error).__name__, error))
                code = 120
    return code


def finish(code):
    os._exit(code)


def wait(door):
    """Returns in the process of a run only."""
    while True:
        data, fds = receive(door)
        pid, descriptor = copy()
        if pid == 0:
            door.close()
            return enter(data, fds)
        try:
            socket.send_fds(door, [message(GUEST, pid)], [descriptor])
        except OSError:
            os._exit(1)
        for fd in fds + [descriptor]:
            os.close(fd)


def preload(name):
    """One that cannot be imported is left for the run to fail with."""
    try:
        __import__(name)
    except Exception:
        pass


def begin():
    os.dup2(0, DOOR, inheritable=False)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(3, DOOR)
    door = socket.socket(fileno=DOOR)
    for word in receive(door)[0].decode().split():
        name, _, number = word.partition("=")
        if number:
            numbers[name] = int(number)
        else:
            preload(name)
    while (script := receive(door)[0]) != b"\0":
        path, _, text = script.partition(b"\0")
        known[os.fsdecode(path)] = text, compile(text, path, "exec", dont_inherit=True)
    prepare()
    sys.path.pop(0)
    gc.collect()
    gc.freeze()
    door.send(message(WAITING))
    return door


def live():
    door = wait(begin())
    try:
        arguments, environment = await_word(door)
    except BaseException as error:
        tell(door, error)
    main, path, source = take_on(arguments, environment)
    end(main, run(main, path, source))


live()
