"""Prefill workers come and go, and decode workers find them, by way of `tigon registry`.

    test_registry.py TIGOND TIGON

A client sends requests all the time: each answer has to be that of one process, whichever workers run at that moment.
"""
import atexit
import ctypes
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from harness import MODEL, TIGOND, Server, done, ok, same, sanitized

TIGON = os.path.abspath(sys.argv[2])
# Seconds. A worker is forgotten after three, and a busy machine holds up a sanitized one for more than a second.
BEAT = 1.5 if sanitized() else 0.5
BEATS = ("--transfer-heartbeat", str(int(BEAT * 1000)))
folder = tempfile.TemporaryDirectory(prefix="tigon-registry-")


class Registry:
    def __init__(self, listen="tcp://127.0.0.1:0", *more):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="registry-", suffix=".log")
        for _ in range(100):
            self.process = subprocess.Popen([TIGON, "registry", "--listen", listen, *more],
                                            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            atexit.register(self.kill)
            while "waiting for workers" not in self.text() and self.process.poll() is None:
                time.sleep(0.01)
            if self.process.poll() is None:
                break
            time.sleep(0.1)  # the address is still that of the one before
        self.endpoint = re.findall(r"waiting for workers at (tcp://[^\s,]+)", self.text())[-1]

    def text(self):
        with open(self.log.name) as f:
            return f.read()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self, name):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            status = "still running after 10 s"
            self.kill()
        ok(f"SIGTERM from process {os.getpid()}" in self.text(), "it says who ended it", self.text()[-500:])
        return same(status, 0, name)


def until(what, seconds=30):
    """Seconds until it is true, or None."""
    begin = time.time()
    while time.time() < begin + seconds:
        if what():
            return time.time() - begin
        time.sleep(0.02)
    return None


def says(process, text, name, seconds=30):
    return ok(until(lambda: text in process.text(), seconds) is not None, name, f"no {text!r} in\n" + process.text())


def prefill_worker(registry, *more, keys=()):
    s = Server("--role", "prefill", "--transfer-listen", "tcp://127.0.0.1:0", "--registry", registry.endpoint,
               *BEATS, *keys, *more)
    s.endpoint = re.search(r"decode workers at (tcp://[^\s,]+)", s.text()).group(1)
    return s


def decode_worker(registry, *more):
    return Server("--role", "decode", "--disaggregation-min-tokens", "1", "--registry", registry.endpoint, *BEATS, *more)


def peers(server, n, name, seconds=30):
    return ok(server.wait_metric("transfer_peers", n, seconds) is not None, name,
              f"{server.metrics()['transfer_peers']} peers\n" + server.text())


def body(i):
    return {"prompt": [(i * 7919 + k * k) % 1000 + 1 for k in range(150 + i % 5 * 90)], "max_tokens": 5,
            "temperature": 0, "logprobs": 2, "return_token_ids": True}


def plain(answer):
    status, a = answer
    return status, a.get("choices", a)


class Asker(threading.Thread):
    """Asks a server again and again, and remembers the faults."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.quit, self.n, self.wrong = server, False, 0, []
        self.start()

    def run(self):
        while not self.quit:
            i = self.n % len(want)
            try:
                got = plain(self.server.post("/v1/completions", body(i)))
            except OSError as e:
                got = e
            if got != want[i]:
                self.wrong.append((i, got, want[i]))
            self.n += 1

    def end(self, name):
        self.quit = True
        self.join()
        ok(self.n and not self.wrong, f"{name}: {self.n} answers, each right", self.wrong[:2])


def received(server):
    return server.metrics()["transfer_received_total"]


def works(server, name):
    """A prompt goes to a prefill worker, and each answer is right meanwhile: until then they are computed here, because
    a busy machine may have held up the worker's heartbeat."""
    before, wrong, asked = received(server), [], 0

    def goes():
        nonlocal asked
        i, asked = asked % len(want), asked + 1
        if (got := plain(server.post("/v1/completions", body(i)))) != want[i]:
            wrong.append((i, got, want[i]))
        return received(server) > before

    came = until(goes)
    ok(came is not None and not wrong, name, f"{asked} prompts, wrong: {wrong[:1]}\n{server.text()[-2000:]}")


unified = Server()
want = [plain(unified.post("/v1/completions", body(i))) for i in range(16)]
unified.stop()

# ---- workers come and go ----

registry = Registry()
decode = decode_worker(registry)
same(plain(decode.post("/v1/completions", body(0))), want[0], "nobody is there: the decode worker answers alone")
same(received(decode), 0, "which is so")
asker = Asker(decode)
a = prefill_worker(registry)
says(registry, f"prefill worker {a.endpoint} has come", "the registry knows of a prefill worker")
peers(decode, 1, "the decode worker finds it")
works(decode, "and uses it")
b = prefill_worker(registry)
peers(decode, 2, "a second one")
a.stop("one is stopped")
says(registry, f"{a.endpoint} has left", "it has said so to the registry", 0.5)
peers(decode, 1, "the decode worker has one left")
says(decode, f"disconnecting from {a.endpoint}", "and forgets the other")
b.kill()
says(registry, f"{b.endpoint} is not heard of any more", "the registry forgets one that was killed")
peers(decode, 0, "so does the decode worker")
says(decode, f"disconnecting from {b.endpoint}", "which hangs up")
c = prefill_worker(registry)
peers(decode, 1, "a third one is found")
works(decode, "and used")
port = c.endpoint.rsplit(":", 1)[1]
c.kill()
peers(decode, 0, "it dies")
c = prefill_worker(registry, "--transfer-listen", f"tcp://127.0.0.1:{port}")
peers(decode, 1, "another one at its address is found")
works(decode, "and used")
asker.end("meanwhile")

# ---- a worker that dies: the registry forgets it after three heartbeats, and decode workers with the next list ----

seldom = ("--transfer-heartbeat", "1500")
other_registry = Registry()
mortal, finder = prefill_worker(other_registry, *seldom), decode_worker(other_registry, *seldom)
peers(finder, 1, "workers with slow heartbeats find each other")
mortal.kill()
killed = time.time()
until(lambda: f"{mortal.endpoint} is not heard of any more" in other_registry.text())
forgotten = time.time()
until(lambda: f"disconnecting from {mortal.endpoint}: it is gone" in finder.text())
took = forgotten - killed, time.time() - forgotten
ok(took[0] < 3 * 1.5 + 0.7, "the registry forgets a worker that died after three heartbeats", took)
ok(took[1] < 1.5 + 1, "and the decode worker with its next list", took)
finder.stop()
other_registry.stop("the other registry ends with status 0")

# ---- the registry goes, workers stay ----

asker = Asker(decode)
before = decode.text()
for how in ("stopped", "killed"):
    if how == "stopped":
        registry.stop("the registry ends with status 0")
    else:
        registry.kill()
    time.sleep(8 * BEAT)
    same(decode.metrics()["transfer_peers"], 1, f"a registry that was {how} costs no peer")
    works(decode, "which is used")
    registry = Registry(registry.endpoint)
    says(registry, f"prefill worker {c.endpoint} has come", "one that was started again learns of it")
new = decode.text()[len(before):]
ok("does not answer" not in new and "called no more" not in new, "the connection was never lost", new)
d = prefill_worker(registry)
peers(decode, 2, "a new one is found by it")
asker.end("meanwhile")

# ---- addresses that are given, and the same by the registry ----

both = decode_worker(registry, "--prefill", c.endpoint)
other = decode_worker(registry, "--prefill", c.endpoint.replace("127.0.0.1", "localhost"))
peers(both, 2, "a given peer is not called twice")
peers(other, 2, "nor under another name")
time.sleep(6 * BEAT)
same([s.metrics()["transfer_peers"] for s in (both, other)], [2, 2], "some time later too")
works(both, "both are fine")
c.kill()
peers(both, 1, "a given peer dies")
time.sleep(6 * BEAT)
ok("called no more" not in both.text(), "and is called on and on", both.text())
for s in (both, other):
    s.stop()

# ---- frames that are no message ----

HEADER = struct.Struct("<4sHHIIQ")


def frame(kind, fields, version=3):
    return HEADER.pack(b"TGNX", version, kind, HEADER.size + len(fields), 0, 0) + fields


def announcement(endpoint, worker=b"w", model=bytes(16), ttl=60000, role=0, key=bytes(32)):
    return frame(9, struct.pack("<II16s16s32s192s", role, ttl, worker, model, key, endpoint))


LIST = frame(10, struct.pack("<I16s", 0, bytes(16)))


class Zmq:
    """As much of libzmq as is needed to say anything."""
    DEALER, MORE, LINGER, RCVTIMEO = 5, 2, 17, 27

    def __init__(self):
        self.lib = ctypes.CDLL("libzmq.so.5")
        for name in ("zmq_ctx_new", "zmq_socket"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.lib.zmq_ctx_new())
        self.buffer = ctypes.create_string_buffer(1 << 20)

    def connect(self, endpoint):
        s = ctypes.c_void_p(self.lib.zmq_socket(self.context, self.DEALER))
        for option, value in ((self.LINGER, 0), (self.RCVTIMEO, 60000)):
            self.lib.zmq_setsockopt(s, option, ctypes.byref(ctypes.c_int(value)), 4)
        self.lib.zmq_connect(s, endpoint.encode())
        return s

    def send(self, s, *frames):
        for i, f in enumerate(frames):
            self.lib.zmq_send(s, f, len(f), self.MORE if i + 1 < len(frames) else 0)

    def receive(self, s):
        n = self.lib.zmq_recv(s, self.buffer, len(self.buffer), 0)
        return None if n < 0 else self.buffer.raw[:n]

    def close(self, s):
        self.lib.zmq_close(s)


def listed(answer):
    """Endpoints of a PEERS."""
    if answer is None or HEADER.unpack(answer[:24])[2] != 11:
        return answer
    n, = struct.unpack("<I", answer[24:28])
    return sorted(answer[28 + i * 256 + 64:28 + (i + 1) * 256].rstrip(b"\0").decode() for i in range(n))


try:
    zmq = Zmq()
except OSError:
    zmq = None
if zmq:
    asker = Asker(decode)
    s = zmq.connect(registry.endpoint)
    zmq.send(s, LIST)
    same(listed(zmq.receive(s)), [d.endpoint], "LIST is answered")
    good = announcement(b"tcp://127.0.0.1:1")
    for bad in (b"", b"x", b"TGNX", LIST[:-1], LIST + b"x", frame(10, LIST[24:], version=1), frame(99, b""), frame(6, b""),
                frame(1, b"x" * 100), good[:200], announcement(b""), announcement(b"x" * 192),
                announcement(b"tcp://a b:1"), announcement(b"tcp://h:1\0x"), announcement(b"http://h:1"),
                announcement(b"tcp://h:0"), announcement(b"tcp://h:99999"), announcement(b"ipc:///tmp/x"),
                announcement(b"tcp://h:1", role=2), announcement(b"tcp://h:1", key=b"k" * 32),
                frame(11, struct.pack("<I", 0)), frame(11, struct.pack("<I", 1 << 31)), os.urandom(300)):
        zmq.send(s, bad)
    zmq.send(s, LIST, b"more")
    same(listed(zmq.receive(s)), [d.endpoint], "what is none changes nothing")
    zmq.send(s, LIST, b"2", b"3")
    zmq.send(s, announcement(d.endpoint.encode(), worker=b"another", ttl=0))
    zmq.send(s, LIST)
    same(listed(zmq.receive(s)), [d.endpoint], "nobody is forgotten because a stranger says so")
    n = registry.text().count("tcp://127.0.0.1:")
    for i in range(1100):
        zmq.send(s, announcement(b"tcp://127.0.0.1:%d" % (i + 1), worker=b"%d" % i, model=b"m" * 16, ttl=15000))
    zmq.send(s, LIST)
    same(len(listed(zmq.receive(s))), 1024, "there is room for so many")
    says(registry, "no more are taken", "it says so")
    n = registry.text().count("tcp://127.0.0.1:") - n
    ok(0 < n <= 2 * 64, "but not of each that has come", n)
    same(registry.text().count("no more are taken"), 1, "once")
    says(decode, "prefill workers of another model, --page-size, --dtype or --kv-dtype: none of them is used",
         "a decode worker says that they are not for it")
    ok(until(lambda: zmq.send(s, LIST) or listed(zmq.receive(s)) == [d.endpoint]) is not None, "they are forgotten again")
    zmq.send(s, b"x" * 5000)
    zmq.close(s)

    # Peers that do not read, and peers that do not even speak ZeroMQ.
    for i in range(5):
        s = zmq.connect(registry.endpoint)
        for _ in range(2000):
            zmq.send(s, LIST)
        raw = socket.create_connection(("127.0.0.1", int(registry.endpoint.rsplit(":", 1)[1])))
        raw.sendall(os.urandom(1000) if i else b"GET / HTTP/1.1\r\n\r\n")
        raw.close()
        zmq.close(s)
    with open(f"/proc/{registry.process.pid}/status") as f:
        rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
    # AddressSanitizer keeps up to 256 MiB of freed memory.
    ok(rss < (500000 if sanitized() else 100000), "the registry's memory is bounded", f"{rss} kB")

    # A worker that is announced, but is none: nothing answers there; another one is beyond this machine.
    s = zmq.connect(registry.endpoint)
    zmq.send(s, LIST)
    answer = zmq.receive(s)
    model = answer[28 + 16:28 + 32]
    ttl = int(6 * BEAT * 1000)
    zmq.send(s, announcement(b"tcp://127.0.0.1:9", model=model, ttl=ttl))
    zmq.send(s, announcement(b"tcp://192.0.2.1:9", model=model, ttl=ttl))
    zmq.send(s, announcement(b"tcp://127.0.0.1:10", model=b"m" * 16, ttl=ttl))
    says(decode, "knows of tcp://127.0.0.1:9\n", "a worker that is announced is called")
    says(decode, "tcp://192.0.2.1:9: it is not loopback", "beyond this machine it is not, without keys")
    says(decode, "disconnecting from tcp://127.0.0.1:9", "what never answers is forgotten")
    ok("127.0.0.1:10" not in decode.text(), "a worker of another model is nothing to this one")
    same(decode.metrics()["transfer_peers"], 1, "the real one is there all along")
    zmq.close(s)
    asker.end("meanwhile")

for s in (d, decode):
    s.stop()
registry.stop("the registry ends with status 0 after all that")

# ---- with keys ----


def keys(name):
    path = os.path.join(folder.name, name)
    return path, subprocess.run([TIGON, "transfer-key", path], check=True, capture_output=True, text=True).stdout.strip()


files = {name: keys(name) for name in ("registry", "prefill", "decode", "friend", "stranger", "again")}


def allow(name, *others):
    with open(files[name][0], "a") as f:
        for o in others:
            f.write(f"allow {files[o[0]][1]} {o[1]}\n" if isinstance(o, tuple) else f"allow {files[o][1]}\n")
    return "--transfer-key", files[name][0]


registry = Registry("tcp://127.0.0.1:0", *allow("registry", "prefill", "decode", "friend"))
there = ("registry", registry.endpoint)
decode = decode_worker(registry, *allow("decode", there, "prefill"))
friend = prefill_worker(registry, keys=allow("friend", there, "decode"))
stranger = prefill_worker(registry, keys=allow("stranger", there, "decode"))
prefill = prefill_worker(registry, keys=allow("prefill", there, "decode"))
asker = Asker(decode)
peers(decode, 1, "with keys a worker is found")
works(decode, "and used")
says(registry, f"{friend.endpoint} has come", "the registry knows one whose key the decode worker does not")
says(decode, f"{friend.endpoint}: its key is not on our list", "which is not called")
time.sleep(4 * BEAT)
ok(stranger.endpoint not in registry.text(), "one whose key the registry does not know never comes in", registry.text())
says(stranger, "cannot be reached", "and says so")
says(registry, f"a peer at 127.0.0.1 was refused: its public key {files['stranger'][1]} is not on our list", "the registry names its key")
ok(1 <= decode.text().count("not on our list") <= registry.text().count(f"{friend.endpoint} has come"),
   "once is enough, each time that it comes", decode.text() + registry.text())
same(decode.metrics()["transfer_peers"], 1, "there is one")
port = prefill.endpoint.rsplit(":", 1)[1]
prefill.kill()
peers(decode, 0, "it dies")
asker.end("meanwhile")
for s in (decode, friend, stranger):
    s.stop()
registry.stop("the registry with keys ends with status 0")

# A worker that comes back with other keys, at the same address; both are on the lists of all workers.
for name in ("registry", "decode"):
    allow(name, "again")
registry = Registry("tcp://127.0.0.1:0", "--transfer-key", files["registry"][0])
there = ("registry", registry.endpoint)
decode = decode_worker(registry, *allow("decode", there))
first, second = allow("prefill", there), allow("again", there, "decode")
prefill = prefill_worker(registry, "--transfer-listen", f"tcp://127.0.0.1:{port}", keys=first)
peers(decode, 1, "a worker with keys")
named = decode_worker(registry, "--prefill", prefill.endpoint, "--transfer-key", files["decode"][0])
peers(named, 1, "one that is named as well, but not its key, is called with that which the registry knows")
works(named, "and used")
named.stop()
prefill.kill()
peers(decode, 0, "dies")
prefill = prefill_worker(registry, "--transfer-listen", f"tcp://127.0.0.1:{port}", keys=second)
peers(decode, 1, "and comes back with others")
works(decode, "and is used")
for s in (prefill, decode):
    s.stop()
registry.stop("the registry ends with status 0")

# ---- workers that cannot be reached ----

def caller(endpoint, *more):
    return Server("--role", "decode", "--prefill", endpoint, *BEATS, *more)


def listens(endpoint, *more):
    return Server("--role", "prefill", "--transfer-listen", endpoint, *BEATS, *more)


with socket.create_server(("127.0.0.1", 0)) as s:
    nowhere = f"tcp://127.0.0.1:{s.getsockname()[1]}"
mute = socket.create_server(("127.0.0.1", 0))
keyed = listens("tcp://127.0.0.1:0", "--transfer-key", files["prefill"][0])
endpoint = re.search(r"decode workers at (tcp://[^\s,]+)", keyed.text()).group(1)
lost = {"nobody is there": caller(nowhere),
        "somebody is there who says nothing": caller(f"tcp://127.0.0.1:{mute.getsockname()[1]}"),
        "only the prefill worker has keys": caller(endpoint),
        "the keys do not fit": caller(endpoint, "--transfer-key", files["stranger"][0])}
for name, d in lost.items():
    says(d, "cannot be reached", f"{name}: the decode worker says so")
time.sleep(3)
for name, d in lost.items():
    same(d.text().count("cannot be reached"), 1, f"{name}: once")
ok("our own key is taken for its key" in lost["the keys do not fit"].text(), "an address without a key is named at start",
   lost["the keys do not fit"].text())
d = lost["nobody is there"]
late = listens(nowhere)
says(d, f"{nowhere} is there", "and when somebody has come")
late.kill()
says(d, f"the connection to {nowhere} broke", "and has gone")
until(lambda: d.text().count("cannot be reached") == 2)
time.sleep(1)
same(d.text().count("cannot be reached"), 2, "and stays away")
for s in (*lost.values(), keyed):
    s.stop()
mute.close()

# ---- options with which it does not start ----

for args, text in (((), "--listen tcp://HOST:PORT is required; --help lists the options"),
                   (("--listen", "tcp://*:0"), "beyond it --transfer-key is required"),
                   (("--listen", "127.0.0.1:8100"), "is not an address"),
                   (("--listen", "tcp://127.0.0.1:0", "--transfer-key", "/nowhere"), "--transfer-key: /nowhere"),
                   (("--listen", "tcp://127.0.0.1:0", "more"), "more")):
    r = subprocess.run([TIGON, "registry", *args], capture_output=True, text=True, timeout=20)
    ok(r.returncode == 1 and text in r.stderr, f"tigon registry {' '.join(args)}: {text}", r)
with socket.create_server(("127.0.0.1", 0)) as s:
    r = subprocess.run([TIGOND, "--model", MODEL, "--port", "0", "--role", "prefill", "--transfer-listen",
                        f"tcp://127.0.0.1:{s.getsockname()[1]}"], capture_output=True, text=True, timeout=20)
ok(r.returncode == 1 and "--transfer-listen: tcp://127.0.0.1:" in r.stderr and "in use" in r.stderr and "loading" not in r.stderr,
   "an address that is in use is said before the model is loaded", r)
with socket.create_server(("127.0.0.1", 0)) as s:
    early = s.getsockname()[1]
slow = Server("--role", "prefill", "--transfer-listen", f"tcp://127.0.0.1:{early}", *BEATS, env={"FAKE_LOAD_MS": "3000"}, wait=False)
try:
    socket.create_connection(("127.0.0.1", early), timeout=10).close()
    connected = slow.get("/health")[0]
except OSError as e:
    connected = repr(e)
same(connected, 503, "decode workers can connect while the model is being loaded")
d = caller(f"tcp://127.0.0.1:{early}", "--disaggregation-min-tokens", "1")
peers(d, 1, "and meet the worker when it is")
works(d, "which computes prompts")
for s in (d, slow):
    s.stop()
r = subprocess.run([TIGOND, "--model", MODEL, "--port", "0", "--role", "decode", "--prefill", "tcp://127.0.0.1:1",
                    "--transfer-key", "/nowhere"], capture_output=True, text=True, timeout=20)
ok(r.returncode == 1 and "--transfer-key: /nowhere" in r.stderr and "loading" not in r.stderr,
   "a key that is not there is said before the model is loaded", r)
done()
