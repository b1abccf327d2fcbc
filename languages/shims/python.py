# Runs a Python file as `__main__`, calls its `handler` and writes one JSON document to the result descriptor.
#
#     python3 .cofferdam/shim.py MODE MAIN [ARGUMENT...]      MODE is `handler` (there must be one) or `auto` (there may be one)
#
# The descriptor never reaches user code by name: it is moved away from its number, closed on exec, and its variable is removed.
# What is always needed is imported before the workspace is on the path, the rest by `standard`, so that no file of the user's takes its
# place. Imports are most of what the shim costs. An interpreter that waits for many runs has this file as a module already, and calls `main`.
import fcntl
import json
import os
import sys

MAX_BYTES = 8388608
MAX_TEXT = 65536
FIRST_FD = 10
# Without the directory of the script.
PATH = sys.path[1:] if __name__ == "__main__" else sys.path[:]


def standard(name):
    """A module of the standard library, whatever lies in the workspace."""
    path, sys.path = sys.path, PATH
    try:
        return __import__(name)
    finally:
        sys.path = path


def take_descriptor():
    fd = int(os.environ.pop("COFFERDAM_RESULT_FD"))
    os.set_inheritable(fd, False)
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
    except OSError:
        return fd  # the limit on open files is lower than that
    os.close(fd)
    return moved


def take_event():
    """No file is the event without anything in it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "event.json")
    try:
        file = open(path, encoding="utf-8")
    except FileNotFoundError:
        return {}
    with file:
        event = json.load(file)
    try:
        os.unlink(path)
    except OSError:
        pass  # a read-only workspace; the event is no secret to the handler
    return event


class Channel:
    def __init__(self, fd):
        self.fd = fd
        self.identity = self.look()
        self.owner = os.getpid()

    def look(self):
        found = os.fstat(self.fd)
        return found.st_dev, found.st_ino

    def send(self, document):
        if os.getpid() != self.owner:
            return  # a fork of the program that came back through the handler
        try:
            if self.look() != self.identity:
                raise OSError("the descriptor is another file now")
            rest = memoryview(document)
            while rest:
                rest = rest[os.write(self.fd, rest) :]
            os.close(self.fd)
        except OSError as error:
            complain("the result could not be sent: %s" % error)
            os._exit(1)


def complain(text):
    say("cofferdam: %s\n" % text)


def say(text):
    """To stderr, after what was printed before. User code may have closed or replaced either."""
    for attempt in (lambda: sys.stdout.flush(), lambda: sys.stderr.flush(), lambda: os.write(2, text.encode("utf-8", "replace"))):
        try:
            attempt()
        except Exception:
            pass


def cut(text):
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "… (cut)"


def failure(kind, message, trace):
    error = {"type": cut(kind), "message": cut(message), "traceback": cut(trace)}
    text = json.dumps({"ok": False, "error": error}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def success(value):
    """The document of a value, or of the reason why there is none."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        document = ('{"ok":true,"value":%s}' % text).encode("utf-8")
    except RecursionError:
        return failure("UnserializableResult", "the value is too deep for JSON, or contains itself; flatten it", "")
    except Exception as error:
        return failure("UnserializableResult", "the value is not JSON: %s" % describe(error), "")
    if len(document) > MAX_BYTES:
        told = "the value is %d bytes of JSON, at most %d; write it to a file" % (len(document), MAX_BYTES)
        return failure("UnserializableResult", told, "")
    return document


def describe(error):
    try:
        return str(error)
    except Exception:
        return "(its text could not be made)"


def is_ours(frame):
    name = frame.f_code.co_filename
    return name == __file__ or "/asyncio/" in name


def trace_of(error):
    """As Python prints it, without the frames that called the user's code."""
    start = error.__traceback__
    while start is not None and is_ours(start.tb_frame):
        start = start.tb_next
    try:
        return "".join(standard("traceback").format_exception(type(error), error, start))
    except Exception:
        return "%s: (the traceback could not be made)\n" % type(error).__name__


def kind_of(error):
    kind = type(error)
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else "%s.%s" % (module, kind.__qualname__)


def load(path, arguments):
    """Makes the file `__main__`, as the interpreter itself would."""
    main = type(sys)("__main__")
    main.__file__ = path
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    sys.argv[:] = [path] + arguments
    sys.path[0] = os.path.dirname(path)
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    return main.__dict__.get("handler")


def wants_context(handler):
    """A second parameter that must be given, or is called context."""
    code = getattr(handler, "__code__", None)
    if code is not None and not hasattr(handler, "__wrapped__") and code.co_argcount < 2:
        return False  # most handlers; the general way costs an import
    try:
        parameters = standard("inspect").signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is second.empty or second.name.strip("_") in ("context", "ctx")


def call(handler, event):
    value = handler(event, {}) if wants_context(handler) else handler(event)
    if hasattr(type(value), "__await__"):

        async def wait():
            return await value

        value = standard("asyncio").run(wait())
    return value


def leave(error):
    """What an exception means: the error's document, and how the program ends."""
    if isinstance(error, SystemExit):
        return failure("SystemExit", describe(error), trace_of(error)), error
    trace = trace_of(error)
    say(trace)
    return failure(kind_of(error), describe(error), trace), SystemExit(1)


def run(channel, mode, path, arguments, event):
    called = False
    try:
        handler = load(path, arguments)
        if callable(handler):
            called = True
            document = success(call(handler, event))
        elif mode == "auto":
            return
        else:
            told = "%s defines no function `handler`; define `def handler(event):`" % os.path.basename(path)
            document = failure("MissingHandler", told, "")
    except BaseException as error:
        document, ending = leave(error)
        # A script that ends itself has no handler that could have answered.
        if called or mode != "auto" or not isinstance(error, SystemExit):
            channel.send(document)
        raise ending from None
    channel.send(document)
    if not document.startswith(b'{"ok":true'):
        complain(json.loads(document)["error"]["message"])
        raise SystemExit(1)


def main():
    try:
        channel = Channel(take_descriptor())
        event = take_event()
    except (KeyError, OSError, ValueError) as error:
        complain("the handler cannot be called: %s: %s" % (type(error).__name__, error))
        sys.exit(1)
    run(channel, sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:], event)


if __name__ == "__main__":
    main()
