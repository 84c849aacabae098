"""While others wait, a client (a key or an address) has at most half of the queue and of the seats.
Only requests beyond a half get 429."""
import json
import os
import re
import socket
import tempfile
import time

from harness import MODEL, Server, done, ok, same, sanitized, wait_for

SEATS, QUEUE = 4, 8


class Ask:
    """A request, streamed by default. client: the address that it comes from, and further lines of headers, such as a key."""

    def __init__(self, s, client, tokens=4000, prompt="a", port=None, stream=True, **more):
        address, extra = client
        self.socket = socket.create_connection(("127.0.0.1", port or s.port), source_address=(address, 0))
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": stream, "ignore_eos": True,
                           **more}).encode()
        self.socket.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode()
                            + body)
        self.got = b""

    def status(self):
        """The status of the answer; None: it has not come yet."""
        self.socket.setblocking(False)
        try:
            self.got += self.socket.recv(65536)
        except BlockingIOError:
            pass
        return int(self.got.split(b" ")[1]) if b"\r\n" in self.got else None

    def waits_for(self, status):
        return wait_for(lambda: self.status() is not None) and self.status() == status

    def close(self):
        self.socket.close()


def share(name, a, b, *args):
    """Checks queue and seats with two clients: a, which asks for more than its half, and b. args: options of the daemon."""
    s = Server("--max-num-seqs", str(SEATS), "--max-queued-requests", str(QUEUE), *args, env={"FAKE_STEP_US": "3000"})
    s.headers = {"x-api-key": "one"}

    def metric(metric, value):
        end = time.time() + 10
        while time.time() < end:
            if s.metrics()[metric] == value:
                return True
            time.sleep(0.01)
        return False

    running = [Ask(s, a) for _ in range(SEATS)]
    ok(all(q.waits_for(200) for q in running), f"{name}: a client that is alone has all seats")
    waiting = []
    for i in range(QUEUE):
        waiting.append(Ask(s, a))
        metric("num_requests_waiting", i + 1)
    ok(Ask(s, a).waits_for(429) and not any(q.status() for q in waiting), "and the whole queue, of which more is refused")

    seated = []
    for _ in range(SEATS // 2):
        seated.append(Ask(s, b))
        ok(seated[-1].waits_for(200), "another client gets a seat at once, up to half of them")
    ok(metric("num_preemptions_total", SEATS // 2), "for which requests of the first one are retracted", s.metrics()["num_preemptions_total"])
    ok(waiting.pop().waits_for(429), "and its newest one gave up its place in the queue")
    waiting.append(Ask(s, a))
    retracted = SEATS // 2
    ok(metric("num_requests_waiting", QUEUE + retracted) and not waiting[-1].status(), "which those do not need", s.metrics()["num_requests_waiting"])

    others = []
    for i in range(QUEUE // 2):
        others.append(Ask(s, b, tokens=4))
        ok(waiting[-1 - i].waits_for(429), f"request {i + 1} of another client takes the place of its newest")
        metric("num_requests_waiting", QUEUE + retracted)
    ok(b"more than half" in waiting[-1].got and b"Retry-After" in waiting[-1].got, "which is told", waiting[-1].got)
    same([q.status() for q in waiting[:QUEUE // 2] + others], [None] * QUEUE, "nobody else is refused")
    ok(Ask(s, a).waits_for(429), "the greedy one has its half")
    ok(Ask(s, b).waits_for(429), "and so has the other")

    for q in seated:
        q.close()
    ok(all(q.waits_for(200) for q in others), "seats that become free are the other client's")
    ok(metric("num_requests_waiting", QUEUE // 2), "when it waits no more, the retracted ones go on",
       s.metrics()["num_requests_waiting"])
    for q in running:
        q.close()
    ok(wait_for(lambda: [q.status() for q in waiting] == [200] * (QUEUE // 2) + [429] * (QUEUE // 2)),
       "then the others, in their order", [q.status() for q in waiting])
    for q in waiting + others:
        q.close()
    ok(metric("num_requests_running", 0), "all leave")

    # A request of several prompts waits as one, in parts, also if they are more than the queue has places.
    running = [Ask(s, client) for client in (a, b) for _ in range(SEATS // 2)]
    ok(all(q.waits_for(200) for q in running), "all seats are taken")
    many = Ask(s, a, prompt=["a"] * 5 * QUEUE, tokens=2, stream=False)
    ok(metric("num_requests_waiting", 5 * QUEUE), f"a request of {5 * QUEUE} prompts waits", s.metrics()["num_requests_waiting"])
    one = Ask(s, b, tokens=2, stream=False)
    ok(metric("num_requests_waiting", 5 * QUEUE + 1), "and one of another client")
    again = [Ask(s, a, prompt=["a"] * (QUEUE + i), tokens=2, stream=False) for i in range(QUEUE // 2 - 1)]
    ok(metric("num_requests_waiting", 5 * QUEUE + 1 + sum(range(QUEUE, QUEUE + QUEUE // 2 - 1))), "and further ones of the first, up to half of the places")
    ok(Ask(s, a, prompt=["a"] * 2).waits_for(429), "beyond which they are refused")
    for q in running:
        q.close()
    ok(all(q.waits_for(200) for q in (one, many, *again)), "all have their answers", [q.status() for q in (one, many, *again)])
    for q in (one, many, *again):
        q.close()
    s.stop()


folder = tempfile.TemporaryDirectory(prefix="tigon-fair-")
keys, admins = (os.path.join(folder.name, name) for name in ("keys", "admins"))
for path, text in ((keys, "one\ntwo\n"), (admins, "operator\n")):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o600)

share("addresses", ("127.0.0.2", ""), ("127.0.0.3", ""))
share("keys", ("127.0.0.2", "x-api-key: two\r\n"), ("127.0.0.2", "Authorization: Bearer one\r\n"), "--api-key-file", keys)
share("clients of a proxy", ("127.0.0.1", "X-Forwarded-For: 10.0.0.2, 10.0.0.3\r\n"),
      ("127.0.0.1", "X-Forwarded-For: 10.0.0.3\r\nX-Forwarded-For: 10.0.0.2\r\n"))

# X-Forwarded-For counts only from a trusted proxy.
for trusted, address in (("127.0.0.1", "127.0.0.2"), ("", "127.0.0.1")):
    s = Server("--max-num-seqs", "1", "--max-queued-requests", "2", "--trusted-proxy", trusted, env={"FAKE_STEP_US": "3000"})
    first = Ask(s, (address, ""))
    first.waits_for(200)
    waiting = [Ask(s, (address, f"X-Forwarded-For: 10.0.0.{i}\r\n")) for i in range(2)]
    wait_for(lambda: s.metrics()["num_requests_waiting"] == 2)
    ok(Ask(s, (address, "X-Forwarded-For: 10.0.0.9\r\n")).waits_for(429) and not any(q.status() for q in waiting),
       f"--trusted-proxy '{trusted}': {address} is one client, whatever it says")
    s.stop()

# The first key of --api-key-file and the first of --admin-key-file are two clients.
s = Server("--max-num-seqs", "1", "--max-queued-requests", "2", "--api-key-file", keys, "--admin-port", "0",
           "--admin-key-file", admins, env={"FAKE_STEP_US": "3000"})
s.admin_port = int(re.search(r"--admin-port: \S+ port (\d+)", s.text())[1])
s.headers = {"x-api-key": "operator"}
first = Ask(s, ("127.0.0.2", "x-api-key: one\r\n"))
first.waits_for(200)
waiting = [Ask(s, ("127.0.0.2", "x-api-key: one\r\n")) for _ in range(2)]
wait_for(lambda: s.metrics()["num_requests_waiting"] == 2)
operator = Ask(s, ("127.0.0.2", "x-api-key: operator\r\n"), port=s.admin_port)
ok(wait_for(lambda: 429 in [q.status() for q in waiting]) and not operator.status(), "the operator is another client",
   (operator.got, waiting[0].got, waiting[1].got))
s.stop()

# Prompts that wait are kept once, as ids of four bytes, and their memory is bounded: a queue of 100 has room for 64 MiB.
IDS, ROOM = 200000, 64 << 20
FIT = ROOM // (4 * IDS)
long_model = os.path.join(folder.name, "model")
os.mkdir(long_model)
for name in os.listdir(MODEL):
    os.symlink(os.path.join(MODEL, name), os.path.join(long_model, name))
with open(os.path.join(MODEL, "config.json")) as f:
    config = {**json.load(f), "max_position_embeddings": 262144}
os.remove(os.path.join(long_model, "config.json"))
with open(os.path.join(long_model, "config.json"), "w") as f:
    json.dump(config, f)
s = Server("--max-num-seqs", "1", "--max-queued-requests", "100", env={"FAKE_STEP_US": "5000"}, model=long_model)


def resident():
    """Bytes."""
    with open(f"/proc/{s.process.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) << 10


a, b = ("127.0.0.2", ""), ("127.0.0.3", "")
running = Ask(s, a, tokens=100000)
running.waits_for(200)
before = resident()
waiting = []
for i in range(FIT):
    waiting.append(Ask(s, a, prompt=[7] * IDS, stream=False))
    wait_for(lambda: s.metrics()["num_requests_waiting"] == i + 1)
grown = resident() - before
ok(not any(q.status() for q in waiting), f"{FIT} long prompts wait", [q.status() for q in waiting])
ok(grown < 1.5 * ROOM or sanitized(), f"they take {grown >> 20} MiB")
last = Ask(s, a, prompt=[7] * IDS, stream=False)
ok(last.waits_for(429) and b"bytes of memory already" in last.got and b"Retry-After" in last.got, "one more is too much",
   last.got)
ok(not any(q.status() for q in waiting), "and ends none of those")
short = Ask(s, a, stream=False)
ok(wait_for(lambda: s.metrics()["num_requests_waiting"] == FIT + 1) and not short.status(), "a short one may wait")
other = Ask(s, b, prompt=[7] * IDS, stream=False)
ok(wait_for(lambda: (short.status(), waiting[-1].status()) == (429, 429)) and not other.status() and not waiting[-2].status(),
   "for a long one of another client the newest give way", (short.got, waiting[-1].got, other.got))
ok(Ask(s, a, prompt=[7] * IDS, stream=False).waits_for(429), "and the first client gets no more")
for q in (running, *waiting, short, other):
    q.close()
s.stop()

# The memory of constraints is bounded, also of requests that run: each has a reserve of 512 KiB.
MOST = 4 << 20
s = Server("--max-num-seqs", "16", "--constraint-memory", str(MOST), env={"FAKE_STEP_US": "3000"})


def constrained(client):
    return Ask(s, client, guided_regex="[a-z ]+")


def used():
    return s.metrics()["constraint_bytes"]


same(used(), 0, "no constraint takes memory")
mine = [constrained(a) for _ in range(3)]
ok(all(q.waits_for(200) for q in mine) and 3 << 19 < used() <= MOST // 2, "three requests of a client run", used())
last = constrained(a)
ok(last.waits_for(429) and b"this client's requests" in last.got and b"constraint_memory_full" in last.got
   and b"Retry-After" in last.got, "the memory of a fourth would be more than half", last.got)
ok(Ask(s, a).waits_for(200), "without a constraint it runs")
theirs = [constrained(b) for _ in range(3)]
ok(all(q.waits_for(200) for q in theirs) and used() <= MOST, "another client has the other half", used())
third = [constrained(("127.0.0.4", "")) for _ in range(2)]
ok(wait_for(lambda: sorted(q.status() or 0 for q in third) == [200, 429] and any(b"of all requests" in q.got for q in third)),
   "of a third one what is left, for one of two requests", [q.got for q in third])
ok(not any(b"error" in q.got for q in mine + theirs), "the others go on")
for q in mine:
    q.close()
ok(wait_for(lambda: used() < MOST // 2 + (1 << 20)), "memory is given back when requests end", used())
again = constrained(a)
ok(again.waits_for(200), "and can be had again", again.got)
for q in (*theirs, *third, again):
    q.close()
ok(wait_for(lambda: used() == 0), "nothing is left", used())
s.stop()
done()
