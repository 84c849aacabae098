"""Helpers of the HTTP tests: TAP lines, a tigond for each test, plain HTTP.

A test is run as `test_x.py TIGOND`: the daemon, or the one with the pseudo model of
tests/fake_engine.c. Every server listens on a free port of the loopback and is ended, by its own
process id, when the test is over.
"""
import atexit
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "lexis")
END = 2  # <|im_end|>
TIGOND = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "tigond")

_count = 0
_failed = 0


def ok(good, name, detail=""):
    global _count, _failed
    _count += 1
    print(f"{'' if good else 'not '}ok {_count} - {name}", flush=True)
    if not good:
        _failed += 1
        for line in str(detail).splitlines()[:40]:
            print("#  ", line[:2000], flush=True)
    return good


def same(got, want, name):
    return ok(got == want, name, f"got  {got!r}\nwant {want!r}")


def done():
    print(f"1..{_count}", flush=True)
    sys.exit(1 if _failed else 0)


def skip_all(why):
    print(f"1..0 # SKIP {why}", flush=True)
    sys.exit(0)


def free_ports(n):
    """Ports of the loopback that nobody listens at."""
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def sanitized():
    """Whether AddressSanitizer or ThreadSanitizer is compiled into the daemon. Both make it slow and keep freed memory."""
    with open(TIGOND, "rb") as f:
        return bool(re.search(b"__[at]san_init", f.read()))


class Server:
    """A tigond. Ready when the constructor returns, unless wait=False."""

    def __init__(self, *args, env=None, wait=True, model=MODEL, timeout=300):
        self.log = self.open_log()
        self.process = subprocess.Popen(
            [TIGOND, "--model", model, "--port", "0", *os.environ.get("TIGOND_ARGS", "").split(), *args],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        atexit.register(self.kill)
        self.port = self.admin_port = None
        self.headers = {}  # sent with each request for /metrics
        deadline = time.time() + timeout
        while self.port is None:
            self.port = self._port_of_log()
            if self.port is None and (self.process.poll() is not None or time.time() > deadline):
                raise RuntimeError("tigond does not listen:\n" + self.text())
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.port}"
        while wait and not self._is_ready():
            if self.process.poll() is not None or time.time() > deadline:
                raise RuntimeError("tigond is not ready:\n" + self.text())
            time.sleep(0.02)

    def open_log(self):
        return tempfile.NamedTemporaryFile("w+", prefix="tigond-", suffix=".log")

    def text(self):
        with open(self.log.name) as f:
            return f.read()

    def _is_ready(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            status = self.process.wait(5)
            raise RuntimeError(f"tigond ended with status {status} while loading:\n" + self.text()) from None

    def _port_of_log(self):
        for line in self.text().splitlines():
            if "listening on" in line and "port " in line:
                return int(line.split("port ")[1].split(",")[0])
        return None

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self, name="the server ends with status 0", signum=signal.SIGTERM):
        """SIGTERM; a sanitizer's complaint shows as a status."""
        self.process.send_signal(signum)
        try:
            status = self.process.wait(25)
        except subprocess.TimeoutExpired:
            status = "still running after 25 s"
            self.kill()
        rest = [line for line in self.text().splitlines() if " info: " not in line]
        return ok(status == 0, name, "\n".join([f"status {status}", *rest[-35:]]))

    def connect(self, timeout=60, port=None):
        return http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, bytes)"""
        c = self.connect(timeout)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        except ConnectionRefusedError as e:
            if self.process.poll() is None:
                raise
            raise ConnectionRefusedError(f"tigond ended with status {self.process.returncode}:\n{self.text()[-6000:]}") from e
        finally:
            c.close()

    def get(self, path):
        status, headers, body = self.request("GET", path)
        return status, body

    def post(self, path, body, headers=None, timeout=60):
        """(status, parsed body); `body` is bytes, or something to dump as JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        status, _, answer = self.request(
            "POST", path, body, {"Content-Type": "application/json", **(headers or {})}, timeout)
        return status, json.loads(answer)

    def chat(self, text, **params):
        """(status, parsed body)"""
        return self.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": text}], "temperature": 0, **params})

    def complete(self, prompt, **params):
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **params})

    def stream(self, path, body, timeout=60):
        """The events of a stream as parsed JSON; the last one is the text "[DONE]"."""
        c = self.connect(timeout)
        try:
            c.request("POST", path, json.dumps({**body, "stream": True}),
                      {"Content-Type": "application/json"})
            r = c.getresponse()
            if r.status != 200:
                raise RuntimeError(f"status {r.status}: {r.read()!r}")
            return parse_events(r.read())
        finally:
            c.close()

    def metrics(self):
        """A dictionary from names of metrics, with all labels but model_name, to values."""
        values = {}
        c = self.connect(port=self.admin_port)
        c.request("GET", "/metrics", headers=self.headers)
        text = c.getresponse().read().decode()
        c.close()
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = re.sub(r'model_name="[^"]*",?', "", name).replace("{}", "")
                values[name.removeprefix("tigon_")] = float(value)
        return values

    def wait_metric(self, name, value, seconds=60):
        """Seconds until the metric has this value, or None."""
        begin = time.time()
        while time.time() < begin + seconds:
            if self.metrics()[name] == value:
                return time.time() - begin
            time.sleep(0.005)
        return None


def wait_for(what, seconds=60):
    """Whether what() becomes true within so many seconds."""
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


# ---- prefill and decode workers ----

def prefill_worker(*args, port=0, env=None):
    s = Server("--role", "prefill", "--transfer-listen", f"tcp://127.0.0.1:{port}", *args, env=env)
    s.endpoint = re.search(r"decode workers at (tcp://[^\s,]+)", s.text()).group(1)
    return s


def decode_worker(endpoints, *args, env=None):
    return Server("--role", "decode", "--disaggregation-min-tokens", "1",
                  *(x for e in endpoints for x in ("--prefill", e)), *args, env=env)


def comparable(answer):
    """The part of an answer that may not depend on the worker that computed it."""
    if isinstance(answer, Exception):
        return type(answer).__name__, str(answer)
    status, body = answer
    body = {k: v for k, v in body.items() if k not in {"id", "created", "system_fingerprint"}}
    if "usage" in body:
        body["usage"] = {k: v for k, v in body["usage"].items() if k != "prompt_tokens_details"}
    return status, body


class Askers:
    """Threads that call ask(i, salt), with rising i, until they are stopped; ask returns the fault, or None. Each thread
    waits `pause` seconds between two calls."""

    def __init__(self, n, ask, pause=0):
        self.ask, self.pause, self.n_asked, self.wrong, self.ended = ask, pause, 0, [], threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(k,), daemon=True) for k in range(n)]
        for t in self.threads:
            t.start()

    def _run(self, k):
        i = k
        while not self.ended.is_set():
            i += 1
            wrong = self.ask(i, f"{k} {i}")
            self.n_asked += 1
            if wrong is not None:
                self.wrong.append(wrong)
            self.ended.wait(self.pause)

    def stop(self):
        self.ended.set()
        for t in self.threads:
            t.join()


# ---- models and prompts ----

def token_ids(seed, n, vocab=1000):
    """Token ids that no other seed shares a page with."""
    r = random.Random(seed)
    return [r.randrange(300, vocab) for _ in range(n)]


def messages(text):
    """A chat in which the user says a text."""
    return [{"role": "user", "content": text}]


def make_model(path, says, cases=()):
    """Makes a model that says certain answers. says: pairs of a prompt, as a body of /tokenize, and the answer's text;
    cases: more of them, as golden.json has them."""
    cases = list(cases)
    s = Server()
    for prompt, answer in says:
        ids = s.post("/tokenize", {"prompt": answer, "add_special_tokens": False})[1]["tokens"]
        cases.append({"prompt_ids": s.post("/tokenize", prompt)[1]["tokens"], "output_ids": [*ids, END]})
    s.stop()
    os.mkdir(path)
    for name in os.listdir(MODEL):
        if os.path.isfile(os.path.join(MODEL, name)) and name != "golden.json":
            os.symlink(os.path.join(MODEL, name), os.path.join(path, name))
    with open(os.path.join(path, "golden.json"), "w") as f:
        json.dump({"cases": cases}, f)
    return path


def slow_model(path):
    """Makes a model whose cache directory takes long to open: the weights that identify it are read first."""
    os.mkdir(path)
    for name in os.listdir(MODEL):
        if os.path.isfile(os.path.join(MODEL, name)) and "safetensors" not in name:
            shutil.copyfile(os.path.join(MODEL, name), os.path.join(path, name))
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.truncate(16 << 30)  # a hole: takes no room, but time to read
    return path


def parse_events(data):
    events = []
    for part in data.decode().split("\n\n"):
        if part.startswith("data: "):
            text = part.removeprefix("data: ")
            events.append(text if text == "[DONE]" else json.loads(text))
    return events


def raw_connection(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def raw_post(path, body, extra=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def parallel(functions):
    """Runs them in threads; their results in order."""
    results = [None] * len(functions)

    def run(i):
        try:
            results[i] = functions[i]()
        except Exception as e:  # shown by whoever looks at the result
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def goldens():
    with open(os.path.join(MODEL, "golden.json")) as f:
        return json.load(f)["cases"]
