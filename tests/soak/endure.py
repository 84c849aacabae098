"""Endurance: two daemons behind HAProxy (packaging/haproxy.cfg), under a mixed load, for as long as one likes.

    endure.py TIGOND [--minutes N] [--restarts N] [--clients N] [--seed N] [--state FILE] [OPTION...]

Each request is one of 400, chosen by chance: chats that begin alike, several choices, streams, log-probabilities, stop
strings, penalties, seeds. Before, another daemon, alone and with more memory, answers each of the 400. Its answers are the
right ones. The two behind HAProxy have so little memory that they retract requests, and evict pages to host memory and to
disk. Some clients leave. In the first part of the time the two are ended by SIGTERM and started again, in turn, and no request
may fail because of that. In the rest of the time their memory must not grow.

--state FILE keeps the results of several runs, which may differ in length, and prints their sums beside the goals: 1,000
retractions, 12 restarts and 100,000 requests. Every daemon gets the OPTIONs. Results are TAP.
"""
import argparse
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from harness import ROOT, Server, done, free_ports, goldens, ok, parallel, parse_events, skip_all, wait_for  # noqa: E402

KINDS, BASES = 400, 25  # requests, and beginnings that they share
GOALS = {"requests": 100000, "retractions": 1000, "restarts": 12}
STEADY = 10000  # memory must be watched over so many requests before its growth is judged
# For lexis: a page of KV has 64 KiB, and a state 432 KiB. There are PAGES pages, and a state for each seat and one more. Half
# as much again is for the cache.
SEATS, PAGES = 16, 40
MEMORY = (SEATS + 1) * 442368 * 3 // 2 + PAGES * 65536 * 3 // 2
HOST, DISK = "24M", "64M"
HOST_BYTES = 24 << 20
DRAIN_S = 120  # for the longest wait and answer on a slow and busy machine, while one daemon has all clients

p = argparse.ArgumentParser()
p.add_argument("tigond")
p.add_argument("--minutes", type=float, default=30)
p.add_argument("--restarts", type=int, default=12)
p.add_argument("--clients", type=int, default=24)
p.add_argument("--seed", type=int, default=int(time.time()))
p.add_argument("--state")
o, more = p.parse_known_args()
if not shutil.which("haproxy"):
    skip_all("no haproxy here")
folder = tempfile.TemporaryDirectory(prefix="tigon-endure-")
words = [w for c in goldens() for w in c["output"].split()]


def text(r, n):
    at = r.randrange(len(words))
    return " ".join(words[(at + k) % len(words)] for k in range(n))


def request(i):
    """(path, body) of request number i of KINDS."""
    base, r = random.Random(f"base {i % BASES}"), random.Random(f"request {i}")
    body = {"temperature": r.choice((0, 0, 0.7, 1)), "seed": i, "max_tokens": r.choice((5, 20, 40, 60, 150, 300)),
            "return_token_ids": True, "stream": r.random() < 0.5}
    if i % 4 == 0:
        # Short prompts with long answers, which together need more pages than there are: some requests are retracted.
        body.update(prompt=text(r, 4), max_tokens=400, ignore_eos=True)
        return "/v1/completions", body
    if r.random() < 0.15:
        body["n"] = r.choice((2, 3))
    if r.random() < 0.2:
        body["stop"] = r.sample(["the", " of", "e.", "\n", "zzz"], r.randrange(1, 4))
    if r.random() < 0.2:
        body[r.choice(("presence_penalty", "frequency_penalty"))] = 0.5
    if r.random() < 0.1:
        body["min_p"] = 0.05
    if r.random() < 0.6:
        begin = text(base, base.choice((20, 120, 250)))
        body["messages"] = [{"role": "user", "content": begin}, {"role": "assistant", "content": text(base, 10)},
                            {"role": "user", "content": text(r, r.choice((3, 40)))}]
        if r.random() < 0.2:
            body.update(logprobs=True, top_logprobs=3)
        return "/v1/chat/completions", body
    body["prompt"] = text(base, base.choice((10, 100, 200))) + " " + text(r, r.choice((2, 60)))
    body["ignore_eos"] = r.random() < 0.5
    if r.random() < 0.2:
        body.update(logprobs=3, echo=r.random() < 0.3)
    return "/v1/completions", body


def essence(choices):
    """The parts of an answer that must be the same each time, as JSON. choices: those of the answer, or of a stream's chunks."""
    found = {}
    for c in choices:
        message = c.get("message") or c.get("delta") or {"content": c.get("text")}
        e = found.setdefault(c["index"], ["", "", [], [], None])
        e[0] += message.get("content") or ""
        e[1] += message.get("reasoning_content") or ""
        e[2] += c.get("token_ids") or []
        logprobs = c.get("logprobs") or {}
        e[3] += [t["logprob"] for t in logprobs.get("content") or []] + (logprobs.get("token_logprobs") or [])
        e[4] = c["finish_reason"] or e[4]
    return json.dumps([found[k] for k in sorted(found)])


class Left(Exception):
    """The client has left on purpose."""


def ask(port, i, leave=None, address="127.0.0.1", connection=None):
    """(essence, None), or (None, a sentence about the failure). leave: random numbers that decide when the client leaves; then
    the call raises Left."""
    path, body = request(i)
    c = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=300, source_address=(address, 0))
    try:
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "X-Session-Id": f"s{i % BASES}"})
        if leave and leave.random() < 0.5:
            time.sleep(leave.random() * 0.05)
            raise Left
        r = c.getresponse()
        if leave:
            r.read(leave.randrange(2000))
            raise Left
        data = r.read()
        if r.status != 200:
            return None, f"status {r.status}: {data[:300]!r}"
        if not body["stream"]:
            return essence(json.loads(data)["choices"]), None
        events = parse_events(data)
        if events[-1:] != ["[DONE]"] or any("error" in e for e in events[:-1]):
            return None, f"the stream ended with {events[-2:]}"
        return essence([x for e in events[:-1] for x in e["choices"]]), None
    except (OSError, http.client.HTTPException, ValueError) as e:
        return None, f"{type(e).__name__}: {e}"
    finally:
        if not connection:
            c.close()


class Worker:
    """One of the two daemons, across its restarts."""

    def __init__(self, number, port, admin_port):
        self.number, self.retractions, self.server = number, 0, None
        self.options = ["--port", str(port), "--admin-port", str(admin_port), "--cache-memory", str(MEMORY),
                        "--max-num-seqs", str(SEATS), "--max-model-len", "1024", "--host-cache-memory", HOST,
                        "--cache-dir", os.path.join(folder.name, f"cache{number}"), "--cache-disk", DISK,
                        "--drain-timeout", str(DRAIN_S), *more]
        self.admin_port = admin_port
        self.start()

    def start(self):
        self.server = Server(*self.options)
        self.server.admin_port = self.admin_port

    def end(self):
        self.retractions += self.server.metrics()["num_preemptions_total"]
        self.server.process.send_signal(signal.SIGTERM)
        try:
            status = self.server.process.wait(DRAIN_S + 20)
        except subprocess.TimeoutExpired:
            status = "none, though it got time enough"
        if status:
            print(f"# worker {self.number} ended with status {status}:\n{self.server.text()[-3000:]}")
        return status == 0

    def memory(self):
        with open(f"/proc/{self.server.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024

    def is_full(self):
        m = self.server.metrics()
        return m['cache_tier_bytes{tier="host"}'] > 0.9 * HOST_BYTES and m['cache_tier_evicted_total{tier="host"}'] > 100


def start_proxy(port, workers):
    with open(os.path.join(ROOT, "packaging", "haproxy.cfg"), encoding="utf-8") as f:
        config = f.read()
    for old, new in (("127.0.0.1:8080", f"127.0.0.1:{port}"), ("127.0.0.1:8101", f"127.0.0.1:{workers[0]}"),
                     ("127.0.0.1:8102", f"127.0.0.1:{workers[1]}"), ("/run/haproxy", folder.name)):
        assert old in config, old
        config = config.replace(old, new)
    path = os.path.join(folder.name, "haproxy.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(config)
    log = open(os.path.join(folder.name, "haproxy.log"), "w")
    return subprocess.Popen(["haproxy", "-db", "-f", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class Load:
    """The clients: o.clients threads, which ask until stop()."""

    def __init__(self, port, right):
        self.port, self.right, self.over = port, right, False
        self.n, self.n_left, self.wrong, self.failed = 0, 0, [], []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.client, args=(k,)) for k in range(o.clients)]
        for t in self.threads:
            t.start()

    def client(self, number):
        r = random.Random(f"{o.seed} {number}")
        address = f"127.0.0.{2 + number % 8}"
        connection = None
        while not self.over:
            i = r.randrange(KINDS)
            leaves = r.random() < 0.05
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300, source_address=(address, 0))
            try:
                got, wrong = ask(self.port, i, leave=r if leaves else None, connection=connection)
            except Left:
                got = wrong = None
            with self.lock:
                self.n += 1
                if leaves:
                    self.n_left += 1
                elif wrong:
                    self.failed.append((time.time(), i, wrong))
                elif got != self.right[i]:
                    self.wrong.append((i, got, self.right[i]))
            if leaves or wrong:
                connection.close()
                connection = None

    def stop(self):
        self.over = True
        for t in self.threads:
            t.join()


def growth(samples):
    """The share by which memory grows in 10,000 requests: the slope of the least-squares line through samples (requests, MiB)."""
    n = len(samples)
    if n < 3 or samples[-1][0] - samples[0][0] < 100:
        return 0.0
    x = sum(s[0] for s in samples) / n
    y = sum(s[1] for s in samples) / n
    slope = sum((a - x) * (b - y) for a, b in samples) / sum((a - x) ** 2 for a, b in samples)
    return slope * 10000 / y


def restart_in_turn(workers, until):
    """Restarts the daemons in turn, spread over the time until `until`. Returns how many did not end with status 0."""
    bad = 0
    for k in range(o.restarts):
        time.sleep(max(0.0, (until - time.time()) / (o.restarts - k) - 3))
        bad += not workers[k % 2].end()
        time.sleep(random.Random(o.seed + k).random() * 2)
        workers[k % 2].start()
        time.sleep(3)  # HAProxy checks a daemon that was down each second
    return bad


def watch_memory(workers, load, until):
    """Samples of each worker from the time when its host memory is full: (requests to both workers, MiB). The first fifth is
    left out, because threads and libraries still get their memory then."""
    samples = [[], []]
    while time.time() < until:
        for k, w in enumerate(workers):
            if samples[k] or w.is_full():
                samples[k].append((load.n, w.memory()))
        time.sleep(min(5.0, max(0.1, until - time.time())))
    return [s[len(s) // 5:] for s in samples]


def add_up(run):
    """Adds this run to the state file, and prints the sums beside the goals."""
    runs = []
    if os.path.exists(o.state):
        with open(o.state) as f:
            runs = json.load(f)
    runs.append(run)
    with open(o.state, "w") as f:
        json.dump(runs, f, indent=1)
    for name, goal in GOALS.items():
        print(f"# {name}: {sum(r[name] for r in runs)} of {goal} in {len(runs)} runs, seeds {[r['seed'] for r in runs]}")


def main():
    print(f"# seed {o.seed}", flush=True)
    calm = Server("--max-num-seqs", str(SEATS), "--max-model-len", "1024", *more)
    asked = parallel([lambda k=k: [(i, *ask(calm.port, i)) for i in range(k, KINDS, 8)] for k in range(8)])
    right = {i: got for part in asked for i, got, _ in part}
    ok(all(right.values()), f"{KINDS} requests are answered by a daemon of its own", [x for part in asked for x in part if x[2]][:3])
    calm.stop()

    ports = free_ports(5)
    workers = [Worker(0, ports[0], ports[2]), Worker(1, ports[1], ports[3])]
    proxy = start_proxy(ports[4], ports)
    try:
        ok(wait_for(lambda: not ask(ports[4], 0)[1], 30), "HAProxy finds the daemons")
        begin = time.time()
        load = Load(ports[4], right)
        middle = begin + 60 * o.minutes * (0.4 if o.restarts else 0)
        bad = restart_in_turn(workers, middle)
        samples = watch_memory(workers, load, begin + 60 * o.minutes)
        load.stop()
        m = [w.server.metrics() for w in workers]
        ended = [w.end() for w in workers]
    finally:
        proxy.terminate()
        proxy.wait()
    run = {"seed": o.seed, "minutes": round((time.time() - begin) / 60, 1), "requests": load.n, "left": load.n_left,
           "wrong": len(load.wrong), "failed": len(load.failed), "restarts": o.restarts,
           "retractions": int(sum(w.retractions for w in workers)),
           "growth": [round(growth(s), 5) for s in samples], "steady": [s[-1][0] - s[0][0] if s else 0 for s in samples]}
    print(f"# {json.dumps(run)}")
    for name in ("prefix_cache_misses_total", "cache_tier_hits_total", "cache_tier_evicted_total", "request_success_total"):
        print("# " + ", ".join(f"{k} {sum(x[k] for x in m):.0f}" for k in sorted(m[0]) if k.startswith(name)))
    ok(load.n > 0 and not load.wrong, f"{load.n} requests: no wrong token", load.wrong[:3])
    ok(not load.failed, f"none failed; {load.n_left} clients left", load.failed[:5])
    ok(not bad and all(ended), f"{o.restarts} restarts: each daemon ends with status 0")
    ok(run["retractions"] > 0, f"{run['retractions']} retractions")
    ok(all(x['cache_tier_hits_total{tier="host"}'] and x['cache_tier_hits_total{tier="disk"}'] for x in m),
       "pages come back from host memory and from disk", m)
    for k, s in enumerate(samples):
        if run["steady"][k] >= STEADY:
            ok(run["growth"][k] < 0.02, f"worker {k}: memory grows by {100 * run['growth'][k]:.2f} % in 10,000 requests, of 2 allowed", s)
        else:
            print(f"# worker {k}: {run['steady'][k]} requests after its memory was full are too few to say whether it grows")
    if o.state:
        add_up(run)
    done()


main()
