"""What the examples share: a client of Cofferdam's HTTP interface, and a daemon for whoever has none running.

    COFFERDAM_URL     a daemon that runs already, such as http://127.0.0.1:8080
    COFFERDAM_TOKEN   its token, where it wants one
    COFFERDAM         without a URL: the binary that a daemon is started from; else what this clone has built, else what PATH has

Nothing but the standard library.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

CLONE = pathlib.Path(__file__).resolve().parent.parent
# Above what a run may take; a daemon that says nothing for so long is gone.
PATIENCE_SECONDS = 600
# Where no sandbox can be made, none will be.
START_SECONDS = 60


class Refused(Exception):
    """The daemon did not take the work on; `error` is what it said: code, detail, solution."""

    def __init__(self, error):
        self.error = error
        super().__init__(f"{error.get('error_code')}: {error.get('error_detail')}; {error.get('solution')}")


class Client:
    """One daemon. Safe to use from many threads: each has a connection of its own, which is kept open."""

    def __init__(self, url, token=None):
        parts = urllib.parse.urlsplit(url)
        # A token must not go in the clear to whoever asked for more.
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if parts.scheme not in kinds or not parts.hostname:
            sys.exit(f"COFFERDAM_URL: `{url}` is no address; write http://HOST:PORT or https://HOST:PORT")
        self.kind, self.host, self.port = kinds[parts.scheme], parts.hostname, parts.port
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        self.local = threading.local()

    def run(self, **request):
        """One run, waited for: the record of `POST /v1/runs`, as docs/daemon.md tells."""
        return self.ask("POST", "/v1/runs", request)

    def ask(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        while True:
            status, headers, answer = self.send(method, path, text)
            # A full queue says when to come again.
            if status == 503 and "Retry-After" in headers:
                time.sleep(float(headers["Retry-After"]))
            elif status >= 300:
                raise Refused(answer)
            else:
                return answer

    def send(self, method, path, text):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.kind(self.host, self.port, timeout=PATIENCE_SECONDS)
            self.local.connection = connection
        try:
            connection.request(method, path, text, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, json.load(answer)
        except BaseException:
            # Half an answer is no place to go on from.
            connection.close()
            self.local.connection = None
            raise


@contextlib.contextmanager
def daemon():
    """A client of the daemon that COFFERDAM_URL names, or of one that is started here and gone afterwards, history included."""
    url = os.environ.get("COFFERDAM_URL")
    if url:
        yield Client(url, os.environ.get("COFFERDAM_TOKEN"))
        return
    # Whoever ends this program with SIGTERM ends the daemon too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="example-") as data:
        command = [binary(), "--data-dir", data, "serve", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            client = Client("http://" + address(process))
            # Its log is read to the end, so that it never waits for us.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            # It serves once a program has gone through a sandbox.
            until = time.monotonic() + START_SECONDS
            while (health := client.send("GET", "/health", None)[2])["status"] != "healthy":
                if time.monotonic() > until:
                    sys.exit(f"the daemon cannot make a sandbox: {health.get('reason')}; `cofferdam doctor` says more")
                time.sleep(0.01)
            yield client
        finally:
            process.terminate()
            process.wait()


def address(process):
    """The kernel chose the port; the first lines of the log tell it."""
    said = []
    for line in process.stderr:
        said.append(line)
        with contextlib.suppress(ValueError):
            found = json.loads(line).get("address")
            if found:
                return found
    sys.exit("the daemon did not start:\n" + "".join(said))


def binary():
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", CLONE / "target"), "x86_64-unknown-linux-gnu")
    candidates = [os.environ.get("COFFERDAM"), built / "release/cofferdam", built / "debug/cofferdam", shutil.which("cofferdam")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    sys.exit("there is no cofferdam here; build it with `cargo build --release`, or say where it is in COFFERDAM")
