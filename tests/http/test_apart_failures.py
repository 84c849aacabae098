"""Whatever fails between prefill and decode workers, every client gets a right answer, or a clean error if its own worker is gone.

    test_apart_failures.py TIGOND [ROUNDS [OPTION ...]]

Two prefill and two decode workers; one prefill worker is behind a proxy that can be cut, slow, or swallow everything. In each
of ROUNDS rounds every kind of failure comes once, in the middle of 32 requests. The answers have to be those of a unified
server, byte for byte; no request waits for ever; afterwards all pools are empty and all peers are connected. Then: a rolling
restart, pools that are too small, clients that leave, a worker that stands still, and prompts of odd lengths.
"""
import http.client
import json
import random
import signal
import socket
import statistics
import struct
import sys
import threading
import time

from harness import (Askers, Server, TIGOND, comparable, decode_worker, done,
                     goldens, ok, parallel, prefill_worker, raw_connection, raw_post, same, sanitized)

ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 1
MORE = sys.argv[3:]
FAKE = "fake" in TIGOND
BEAT_MS = 200 if FAKE else 1000
DEAD_S = 3 * BEAT_MS / 1000  # until somebody who says nothing counts as dead
CALM_MS = 10000  # for who shall count as alive, however busy this machine is
PATIENCE_S = 90
STEP = {"FAKE_STEP_US": "6000"}

random.seed(5)


class Proxy:
    """Between a decode worker and a prefill worker."""

    def __init__(self, port):
        self.to = port
        self.mode = "forward"
        self.pairs = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                if self.mode == "cut":
                    raise OSError
                server = socket.create_connection(("127.0.0.1", self.to), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = {"ends": (client, server), "swallows": self.mode == "swallow"}
            with self.lock:
                self.pairs.append(pair)
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(a, b, pair), daemon=True).start()

    def _pump(self, a, b, pair):
        try:
            while data := a.recv(65536):
                # What was swallowed is missing for ever: such a connection brings nothing any more.
                pair["swallows"] = pair["swallows"] or self.mode == "swallow"
                if self.mode == "delay":
                    time.sleep(0.05)
                if not pair["swallows"]:
                    b.sendall(data)
        except OSError:
            pass
        self._close(pair)

    def _close(self, pair):
        with self.lock:
            if pair not in self.pairs:
                return
            self.pairs.remove(pair)
        for s in pair["ends"]:
            try:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def cut(self):
        self.mode = "cut"
        for pair in list(self.pairs):
            self._close(pair)

    def heal(self):
        self.mode = "forward"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def prefill_at(port, *more, env=None, beat_ms=BEAT_MS):
    return prefill_worker("--transfer-heartbeat", str(beat_ms), *MORE, *more, port=port, env={**STEP, **(env or {})})


def decode_of(endpoints, *more, env=None, beat_ms=BEAT_MS):
    return decode_worker(endpoints, "--transfer-heartbeat", str(beat_ms), *MORE, *more, env={**STEP, **(env or {})})


def meets(decode, n, seconds=60):
    """Seconds until it has so many peers; else an end to the test."""
    took = decode.wait_metric("transfer_peers", n, seconds)
    if took is None:
        ok(False, f"a decode worker has {n} peers", decode.text()[-3000:])
        done()
    return took


words = [w for c in goldens() for w in c["output"].split()]
ids = [i for c in goldens() for i in c["output_ids"]]


def request(i):
    text = " ".join(random.choice(words) for _ in range(random.choice((3, 20, 100, 300, 800) if FAKE else (3, 20, 100, 300))))
    body = {"max_tokens": random.choice((1, 7, 40)), "temperature": random.choice((0, 0.9)), "seed": i,
            "n": random.choice((1, 1, 2)), "return_token_ids": True}
    if i % 5 == 0:
        body["stop"] = [random.choice(words)[:3]]
    if i % 2:
        return "/v1/completions", {**body, "prompt": text, "logprobs": 2}
    return "/v1/chat/completions", {**body, "logprobs": True, "messages": [{"role": "user", "content": text}]}


def salted(r, salt):
    """The same request, of which no cache has anything."""
    return r[0], {**r[1], "cache_salt": salt}


requests = [request(i) for i in range(32)]
unified = Server(*MORE, env=STEP)
want = [comparable(a) for a in parallel([lambda r=r: unified.post(*r, timeout=600) for r in requests])]
ok(all(a[0] == 200 for a in want), "a unified server answers", [a for a in want if a[0] != 200][:2])


def is_idle(s):
    m = s.metrics()
    return not (m["kv_cache_pages_used"] or m["num_requests_running"] or m["num_requests_waiting"])


def idle(servers, seconds=30):
    """Those that are not as at the beginning after so long."""
    until = time.time() + seconds
    left = list(servers)
    while left and time.time() < until:
        left = [s for s in left if not is_idle(s)]
        time.sleep(0.01)
    return [{k: v for k, v in s.metrics().items() if "pages_used" in k or "num_requests" in k or "transfer" in k} for s in left]


def received(servers):
    return sum(s.metrics()["transfer_received_total"] for s in servers)


# ---- every failure in the middle of 32 requests ----

class Fleet:
    def __init__(self):
        self.ports = [free_port(), free_port()]
        self.prefills = [prefill_at(p) for p in self.ports]
        self.proxy = Proxy(self.ports[1])
        self.decodes = [self.new_decode(), self.new_decode()]
        for d in self.decodes:
            meets(d, 2)
        self.gone = []  # whose clients may get nothing

    def new_decode(self):
        return decode_of([self.prefills[0].endpoint, self.proxy.endpoint])

    def all(self):
        return self.prefills + self.decodes

    def restart_prefill(self, i):
        self.prefills[i] = prefill_at(self.ports[i])


def kill_prefill(f):
    i = random.randrange(2)
    f.prefills[i].kill()
    yield random.uniform(0, 2 * DEAD_S)
    f.restart_prefill(i)


def kill_decode(f):
    f.gone.append(f.decodes[1])
    f.decodes[1].kill()
    yield random.uniform(0, 2 * DEAD_S)
    f.decodes[1] = f.new_decode()


def pause(s):
    s.process.send_signal(signal.SIGSTOP)
    yield random.choice((DEAD_S / 4, 2 * DEAD_S))
    s.process.send_signal(signal.SIGCONT)


def pause_prefill(f):
    yield from pause(random.choice(f.prefills))


def pause_decode(f):
    yield from pause(random.choice(f.decodes))


def drain_prefill(f):
    i = random.randrange(2)
    p = f.prefills[i]
    p.process.send_signal(signal.SIGTERM)
    status = p.process.wait(30)
    if status:
        ok(False, "a prefill worker ends with status 0", f"{status}\n{p.text()[-2000:]}")
    yield 0
    f.restart_prefill(i)


def cut_link(f):
    f.proxy.cut()
    yield random.choice((0, DEAD_S / 3, 2 * DEAD_S))
    f.proxy.heal()


def slow_link(f):
    f.proxy.mode = "delay"
    yield 2 * DEAD_S
    f.proxy.heal()


def dumb_link(f):
    f.proxy.mode = "swallow"
    yield 2 * DEAD_S
    f.proxy.cut()
    f.proxy.heal()


FAILURES = (kill_prefill, kill_decode, pause_prefill, pause_decode, drain_prefill, cut_link, slow_link, dumb_link)


def probe(f, tag):
    """Seconds until a prompt is again computed by a prefill worker."""
    begin = time.time()
    alive = [d for d in f.decodes if d.process.poll() is None]
    body = {"prompt": " ".join(words[:200]), "max_tokens": 1, "temperature": 0}
    for k in range(2000):
        for d in alive:
            before = received([d])
            d.post("/v1/completions", {**body, "cache_salt": f"{tag} {k}"}, timeout=PATIENCE_S)
            if received([d]) > before:
                return time.time() - begin
    return float("inf")


def play(f, failure, tag):
    """One failure. What was wrong, and seconds until prompts are computed elsewhere again, and until all are there again."""
    answers = [None] * len(requests)
    servers = [f.decodes[i % 2] for i in range(len(requests))]

    def one(i):
        time.sleep(random.uniform(0, 0.15 if FAKE else 2))
        try:
            answers[i] = comparable(servers[i].post(*salted(requests[i], tag), timeout=PATIENCE_S))
        except (OSError, http.client.HTTPException, ValueError) as e:
            answers[i] = comparable(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(requests))]
    for t in threads:
        t.start()
    time.sleep(random.uniform(0.02, 0.3 if FAKE else 3))
    f.gone = []
    steps = failure(f)
    began = time.time()
    rest = next(steps)
    time.sleep(rest)
    next(steps, None)
    healed = time.time()
    again = probe(f, tag) if failure is not pause_decode else 0
    if failure is kill_prefill or failure is drain_prefill or failure is kill_decode:
        healed = time.time() - again
    for d in f.decodes:
        meets(d, 2)
    back = time.time() - healed
    for t in threads:
        t.join()
    wrong = []
    for i, (a, w) in enumerate(zip(answers, want)):
        if a != w and servers[i] not in f.gone:
            wrong.append(f"{failure.__name__} {tag}, request {i} {requests[i][1]['max_tokens']}: got {a!r:.600} want {w!r:.600}")
    took = time.time() - began
    left = idle(f.all())
    if left:
        wrong.append(f"{failure.__name__} {tag}: not idle: {left}")
    dead = [s for s in f.all() if s.process.poll() is not None]
    wrong += [f"{failure.__name__} {tag}: a worker ended: {s.text()[-3000:]}" for s in dead]
    return wrong, again, back, took


fleet = Fleet()
again, back, took = {}, {}, {}
wrong = {f.__name__: [] for f in FAILURES}
for n in range(ROUNDS):
    for failure in random.sample(FAILURES, len(FAILURES)):
        w, a, b, t = play(fleet, failure, f"round {n} {failure.__name__}")
        name = failure.__name__
        wrong[name] += w
        again.setdefault(name, []).append(a)
        back.setdefault(name, []).append(b)
        took.setdefault(name, []).append(t)
for name, w in wrong.items():
    ok(not w, f"{name}: {ROUNDS} rounds of {len(requests)} requests, all answers right, pools empty, peers there", "\n".join(w))
    print(f"#   {name}: prefilled elsewhere again after {statistics.median(again[name]):.3f} s (worst {max(again[name]):.3f}),"
          f" all peers after {statistics.median(back[name]):.3f} s (worst {max(back[name]):.3f}),"
          f" round {statistics.median(took[name]):.2f} s (worst {max(took[name]):.2f})", flush=True)
for d in fleet.decodes:
    got = [comparable(a) for a in parallel([lambda r=r, d=d: d.post(*salted(r, "after"), timeout=PATIENCE_S) for r in requests])]
    same(sum(g != w for g, w in zip(got, want)), 0, "afterwards a decode worker answers as one process does")


# ---- a rolling restart ----

def ask_either(i, salt):
    r = requests[i % len(requests)]
    try:
        got = comparable(decodes[i % 2].post(*salted(r, "rolling " + salt), timeout=PATIENCE_S))
    except (OSError, http.client.HTTPException, ValueError) as e:
        got = comparable(e)
    return None if got == want[i % len(requests)] else f"{r!r:.300}: {got!r:.500}"


ports = [free_port(), free_port()]
prefills = [prefill_at(port, beat_ms=CALM_MS) for port in ports]
decodes = [decode_of([p.endpoint for p in prefills], beat_ms=CALM_MS) for _ in range(2)]
for d in decodes:
    meets(d, 2)
askers = Askers(8, ask_either)
for n in range(max(1, ROUNDS // 5)):
    for i in range(2):
        time.sleep(0.3)
        prefills[i].stop(f"prefill worker {i} drains and ends with status 0")
        prefills[i] = prefill_at(ports[i], beat_ms=CALM_MS)
        for d in decodes:
            meets(d, 2)
askers.stop()
ok(not askers.wrong and askers.n_asked > 20, "a rolling restart of prefill workers: not one failed request", "\n".join(askers.wrong))
print(f"#   {askers.n_asked} requests meanwhile", flush=True)
for i, d in enumerate(decodes):
    ok(d.metrics()["transfer_failed_total"] == 0, f"decode worker {i}: what was refused has not failed",
       "\n".join(line for line in d.text().splitlines() if " transfer: " in line))
for s in decodes + prefills:
    s.stop()


# ---- clients that leave ----

def leave(i):
    path, body = salted(requests[i % len(requests)], f"leave {i}")
    s = raw_connection(fleet.decodes[i % 2].port)
    s.sendall(raw_post(path, {**body, "stream": i % 3 == 0}))
    time.sleep(random.choice((0, 0.001, 0.01, 0.05, 0.2)))
    s.close()


for n in range(20 if FAKE else 4):
    parallel([lambda i=16 * n + k: leave(i) for k in range(16)])
left = idle(fleet.all())
ok(not left, f"{320 if FAKE else 64} clients that leave in the middle leave nothing behind", left)
got = [comparable(a) for a in parallel([lambda r=r: fleet.decodes[0].post(*salted(r, "left"), timeout=PATIENCE_S) for r in requests])]
same(sum(g != w for g, w in zip(got, want)), 0, "and answers are right")


# ---- odd lengths ----

lengths = [1, 2, 63, 64, 65, 127, 128, 129, 640, 641, 1024]
odd = [("/v1/completions", {"prompt": (ids * 9)[k:k + n], "max_tokens": m, "temperature": 0, "n": c, "logprobs": 1,
                            "return_token_ids": True})
       for k, n in enumerate(lengths) for m, c in ((1, 1), (5, 2), (1, 2))]
odd_want = [comparable(unified.post(*r, timeout=600)) for r in odd]
for turn in ("the first time", "again"):
    got = [comparable(a) for a in parallel([lambda r=r: fleet.decodes[0].post(*r, timeout=PATIENCE_S) for r in odd])]
    same([r[1] for r, g, w in zip(odd, got, odd_want) if g != w][:2], [], f"prompts of one token, of whole pages, of one more: {turn}")
left = idle(fleet.all())
ok(not left, "pools are empty", left)
for s in fleet.all():
    s.stop()

# ---- pools that are too small; a worker that stands still ----

if FAKE:
    few = ("--max-num-seqs", "8")
    for what, prefill_env, decode_env in (("a decode pool for two long prompts", {}, {"FAKE_PAGES": "130"}),
                                          ("a prefill pool for two long prompts", {"FAKE_PAGES": "130"}, {}),
                                          ("a prefill pool that is too small for most", {"FAKE_PAGES": "6"}, {}),
                                          ("few states on both sides", {"FAKE_SLOTS": "12"}, {"FAKE_SLOTS": "12"})):
        p = prefill_at(free_port(), *few, env=prefill_env)
        d = decode_of([p.endpoint], *few, env=decode_env)
        meets(d, 1)
        got = [comparable(a) for a in parallel([lambda r=r: d.post(*salted(r, "small"), timeout=PATIENCE_S) for r in requests])]
        same([(g, w) for g, w in zip(got, want) if g != w][:1], [], f"{what}: 32 requests at the same time")
        left = idle([p, d])
        ok(not left, f"{what}: empty afterwards", left)
        d.stop()
        p.stop()

    p = prefill_at(free_port(), "--transfer-window", "1", beat_ms=CALM_MS)
    still, other = (decode_of([p.endpoint], beat_ms=CALM_MS) for _ in range(2))
    for d in (still, other):
        meets(d, 1)
    threads = [threading.Thread(target=lambda r=r: comparable(still.post(*salted(r, "still"), timeout=PATIENCE_S))) for r in requests]
    for t in threads:
        t.start()
    time.sleep(0.05)
    still.process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    begin = time.time()
    before = received([other])
    got = [comparable(a) for a in parallel([lambda r=r: other.post(*salted(r, "moves"), timeout=PATIENCE_S) for r in requests])]
    seconds = time.time() - begin
    n = received([other]) - before
    ok(got == want and n == len(requests) and seconds < 20,
       "a decode worker that stands still holds nobody else up", f"{n} were prefilled elsewhere, {seconds:.1f} s\n{p.text()[-1500:]}")
    print(f"#   32 requests beside it: {seconds:.2f} s", flush=True)
    still.process.send_signal(signal.SIGCONT)
    for t in threads:
        t.join()
    left = idle([p, still, other])
    ok(not left, "and when it goes on all is well", left)
    for s in (still, other, p):
        s.stop()

    # The device of a prefill worker is lost, in a step or in a copy: it says so, and ends; the others go on.
    for how in ({"FAKE_FAIL_STEP": "2"}, {"FAKE_FAIL_PIECES": "5"}):
        p = prefill_at(free_port(), env=how, beat_ms=CALM_MS)
        d = decode_of([p.endpoint], beat_ms=CALM_MS)
        meets(d, 1)
        got = [comparable(a) for a in parallel([lambda r=r: d.post(*salted(r, "lost"), timeout=PATIENCE_S) for r in requests])]
        same(sum(g != w for g, w in zip(got, want)), 0, f"a prefill worker loses its device ({how}): all answers are right")
        begin = time.time()
        status = p.process.wait(30)
        # ThreadSanitizer sleeps for a second at the end of a process
        ok(status == 1 and time.time() - begin < (5 if sanitized() else 1.5), "it ends with status 1, and waits for nobody",
           f"{status} {time.time() - begin:.1f} s\n{p.text()[-1000:]}")
        ok(not idle([d]), "nothing is left of it")
        d.stop()

    for how in ({"FAKE_FAIL_STEP": "20"}, {"FAKE_FAIL_PIECES": "20"}):
        p = prefill_at(free_port(), beat_ms=CALM_MS)
        d = decode_of([p.endpoint], env=how, beat_ms=CALM_MS)
        meets(d, 1)

        def ask(r):
            try:
                return d.post(*salted(r, "lost"), timeout=PATIENCE_S)
            except (OSError, http.client.HTTPException, ValueError) as e:
                return str(e), None

        got = parallel([lambda r=r: ask(r) for r in requests])
        wrong = [a for a, w in zip(got, want) if a[0] == 200 and comparable(a) != w]
        wrong += [a for a in got if isinstance(a[0], int) and a[0] not in (200, 500, 503)]
        ok(d.process.wait(30) == 1 and not wrong, f"a decode worker loses its device ({how}): right answers or clean errors",
           (wrong, d.text()[-1500:]))
        ok(not idle([p]), "and the prefill worker forgets it", p.text()[-1000:])
        p.stop()

unified.stop()
done()
