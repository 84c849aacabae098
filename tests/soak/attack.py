"""Measures how much eight good streams, and a probe of /livez, suffer from all attacks of attackers.py at once.

    attack.py TIGOND [--model DIR] [--seconds N] [--quiet N] [--tokens N] [--scale X] [--seed N] [--svg FILE] [--answered] [--bytes-only]
              [OPTION...]

The streams run alone until each has had an answer. Then they run alone for --quiet seconds, which are measured, and then
beside the attacks. All of it is with one daemon, which gets the OPTIONs. The daemon has the last processor that this process
may use; load and attacks share the first. During the attacks nobody reads the daemon's log. All requests are greedy or have
a seed, so that every answer must have the bytes that it had alone.

--answered adds the attackers that get answers of the model (stored, constrained, messages), and two more good clients
(companions.py), which ask for answers of such kinds. The prompts and rows of them all are part of the same steps as those of
the good streams, as any client's are. So the 99th percentile of the time between two tokens says nothing of the attacks then,
and is not checked.

The longest answer has --tokens tokens, and the shortest half as many. Answers are long because each new prompt delays all
streams by a step: with fewer than some 1,000 tokens an answer, the prompts and not the attacks would decide the 99th
percentile of the time between two tokens. "stolen" is the share of the daemon's processor that the host of a virtual machine
took away.

--bytes-only checks no times and no memory, for busy machines and sanitizers. Results are TAP; the figures are in its comments.
"""
import argparse
import gc
import hashlib
import json
import os
import random
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from harness import MODEL, TIGOND, done, ok  # noqa: E402

STREAMS = 8
LIVE_EVERY = 0.1  # seconds between two probes of /livez
RAMP = 15  # seconds, beyond --seconds, until all idle connections are there; they are measured, too
AFTER = 10  # seconds from the end of the attacks to the count of descriptors and memory
GIB, MIB = 1 << 30, 1 << 20
KINDS, ANSWERED = ["idle", "slow", "unread", "unfinished", "malformed", "hostile"], ["stored", "constrained", "messages"]
END = b"\r\n0\r\n\r\n"  # of a body in chunks

p = argparse.ArgumentParser()
p.add_argument("tigond")
p.add_argument("--model", default=MODEL)
p.add_argument("--seconds", type=float, default=600)
p.add_argument("--quiet", type=float, default=60)
p.add_argument("--tokens", type=int, default=3900)
p.add_argument("--scale", type=float, default=1)
p.add_argument("--seed", type=int, default=1)
p.add_argument("--svg")
p.add_argument("--answered", action="store_true")
p.add_argument("--bytes-only", action="store_true")
o, more = p.parse_known_args()


def raise_limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


class Daemon:
    """A tigond on processor `core`. Its log is read until `reading` is False."""

    def __init__(self, core):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.text, self.reading = "", True
        self.process = subprocess.Popen(
            [TIGOND, "--model", o.model, "--port", str(self.port), *os.environ.get("TIGOND_ARGS", "").split(), *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0,
            env={**os.environ, "POCL_MAX_PTHREAD_COUNT": "1"},
            preexec_fn=lambda: (os.sched_setaffinity(0, {core}), raise_limit()))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        end = time.time() + 600
        while "ready after" not in self.text:
            if self.process.poll() is not None or time.time() > end:
                sys.exit("tigond is not ready:\n" + self.text)
            time.sleep(0.05)

    def read(self):
        while self.reading:
            part = self.process.stderr.read(65536)
            if not part:
                return
            self.text += part.decode(errors="replace")

    def memory(self, key):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(rf"{key}:\s+(\d+)", f.read())[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as r:
            return float(re.search(rf"^tigon_{name}\S* (\S+)$", r.read().decode(), re.M)[1])

    def forget_peak(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as f:
            f.write("5")


def requests(seed):
    """Yields the request of each stream, which sends it again and again."""
    r = random.Random(seed)
    for i in range(STREAMS):
        # Answers differ in length, so that the next prompts do not come at the same time.
        n = o.tokens // 2 + i * o.tokens // 2 // (STREAMS - 1)
        body = json.dumps({"prompt": [r.randrange(300, 8000) for _ in range(48)], "max_tokens": n, "ignore_eos": True,
                           "stream": True, "return_token_ids": True, "temperature": i % 2, "seed": i, "top_p": 0.9}).encode()
        yield (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def content(answer):
    """A hash of an answer's body without its id and time; None: its status is not 200, or it has an error."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return None
    # also without the sizes of HTTP's chunks, which have lines of their own, and without what keeps a connection alive while
    # no token comes
    body = re.sub(rb'\r\n[0-9A-Fa-f]+\r\n|"id":"[^"]*"|"created":\d+', b"", b"\r\n" + rest).replace(b": keep-alive\n\n", b"")
    return hashlib.sha256(body).hexdigest() if b'"error"' not in body else None


class Load:
    """The streams and the probe, in one event loop. `phase` runs the loop for some time and keeps the figures of that time."""

    def __init__(self, port):
        self.port = port
        self.requests = list(requests(o.seed))
        self.answers = {}  # number of a stream -> hash of its first answer
        self.epoll = select.epoll()
        self.by_fd = {}

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def phase(self, seconds, want_all=False):
        self.gaps, self.lives, self.wrong, self.n_answers = [], [], [], 0
        self.begin = time.perf_counter()
        self.end = self.begin + seconds
        self.want_all = want_all
        for i in range(STREAMS):
            self.ask(Stream(i, self.connect()))
        probe, due = None, self.begin
        while self.by_fd:
            now = time.perf_counter()
            if not probe and now >= due and not self.over(now):
                probe, due = Probe(self, now), now + LIVE_EVERY
            for fd, _ in self.epoll.poll(max(0.0, due - now) if not probe else 1):
                now = time.perf_counter()
                if probe and fd == probe.fd:
                    if probe.event(now):
                        probe = None
                elif fd in self.by_fd:
                    self.take(self.by_fd[fd], now)
            if probe and time.perf_counter() - probe.begin > 60:
                self.note_live(probe.begin, 60.0, "nothing")
                probe = probe.close()
        while probe:
            for _ in self.epoll.poll(60):
                probe = None if probe.event(time.perf_counter()) else probe

    def over(self, now):
        return now >= self.end and not (self.want_all and len(self.answers) < STREAMS)

    def ask(self, s):
        s.data, s.last, s.end = [], None, b""
        if s.socket.fileno() not in self.by_fd:
            self.by_fd[s.socket.fileno()] = s
            self.epoll.register(s.socket.fileno(), select.EPOLLIN)
        s.socket.sendall(self.requests[s.number])

    def take(self, s, now):
        part = s.socket.recv(1 << 18)
        n = part.count(b"data: {")
        if n:
            if s.last:
                self.gaps.append((now - self.begin, now - s.last))
                self.gaps += [(now - self.begin, 0.0)] * (n - 1)
            s.last = now
        s.data.append(part)
        s.end = (s.end + part)[-len(END):]  # END may be cut in two
        if part and s.end != END:
            return
        self.judge(s, b"".join(s.data), part)
        if part and not self.over(now):
            self.ask(s)
            return
        fd = s.socket.fileno()
        self.epoll.unregister(fd)
        del self.by_fd[fd]
        s.socket.close()
        if not self.over(now):
            self.ask(Stream(s.number, self.connect()))

    def judge(self, s, answer, whole):
        self.n_answers += 1
        got = content(answer) if whole else None
        if got is None or self.answers.setdefault(s.number, got) != got:
            self.wrong.append((s.number, answer[:500], answer[-500:]))

    def note_live(self, begin, took, status):
        self.lives.append((begin - self.begin, took, status))


class Stream:
    def __init__(self, number, s):
        self.number, self.socket = number, s


class Probe:
    """One GET /livez on a connection of its own."""

    def __init__(self, load, now):
        self.load, self.begin, self.sent = load, now, False
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", load.port))
        self.fd = self.socket.fileno()
        load.epoll.register(self.fd, select.EPOLLOUT)

    def event(self, now):
        """Handles an event of the socket. True: the probe has ended."""
        try:
            if not self.sent:
                self.socket.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                self.load.epoll.modify(self.fd, select.EPOLLIN)
                self.sent = True
                return False
            data = self.socket.recv(4096)
            status = int(data.split(b" ")[1]) if data else "closed"
        except OSError as e:
            status = type(e).__name__
        self.load.note_live(self.begin, now - self.begin, status)
        self.close()
        return True

    def close(self):
        self.load.epoll.unregister(self.fd)
        self.socket.close()


class Samples(threading.Thread):
    """Notes memory and descriptors of the daemon once a second."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_process, self.rows, self.over = daemon, [], False

    def run(self):
        begin = time.perf_counter()
        while not self.over and self.daemon_process.process.poll() is None:
            self.rows.append((time.perf_counter() - begin, self.daemon_process.memory("VmRSS"), self.daemon_process.descriptors()))
            time.sleep(1)


class Processor:
    """The times of a processor in /proc/stat since this object was made."""

    def __init__(self, number):
        self.number = number
        self.begin = self.ticks()

    def ticks(self):
        with open("/proc/stat") as f:
            return [int(n) for n in re.search(rf"^cpu{self.number} (.*)", f.read(), re.M)[1].split()[:8]]

    def stolen(self):
        passed = [end - begin for begin, end in zip(self.begin, self.ticks())]
        return passed[7] / max(1, sum(passed))


def percentile(values, share):
    v = sorted(values)
    return v[min(len(v) - 1, int(len(v) * share))] if v else 0.0


def summary(name, load, processor):
    gaps, lives = [g for _, g in load.gaps], [t for _, t, _ in load.lives]
    print(f"# {name}: {load.n_answers} answers, {len(gaps)} gaps between tokens: p50 {percentile(gaps, .5) * 1e3:.2f} ms, "
          f"p99 {percentile(gaps, .99) * 1e3:.2f} ms, largest {max(gaps, default=0) * 1e3:.1f} ms; {len(lives)} probes of /livez: "
          f"p50 {percentile(lives, .5) * 1e3:.2f} ms, largest {max(lives, default=0) * 1e3:.1f} ms; stolen {100 * processor.stolen():.1f} %", flush=True)
    print("#   the largest gaps (second: ms): " + ", ".join(f"{t:.0f}: {g * 1e3:.0f}" for t, g in sorted(load.gaps, key=lambda x: -x[1])[:8])
          + "; the slowest probes: " + ", ".join(f"{t:.0f}: {g * 1e3:.0f}" for t, g, _ in sorted(load.lives, key=lambda x: -x[1])[:8]),
          flush=True)
    return percentile(gaps, .99), max(gaps, default=0), max(lives, default=0)


def draw(path, quiet, load, rows):
    """Draws three panels over the time of the attacks. Of each second: p99 and largest gap; slowest probe; memory."""
    seconds = int(max([t for t, _ in load.gaps] + [1])) + 1

    def each(points, choose):
        rows = [[] for _ in range(seconds + 1)]
        for t, v in points:
            rows[min(seconds, int(t))].append(v * 1e3)
        return [choose(v) if v else None for v in rows]

    lives = [(t, v) for t, v, _ in load.lives]
    panels = [("largest and 99th percentile of the gaps between two tokens, ms",
               [each(load.gaps, max), each(load.gaps, lambda v: percentile(v, .99))], percentile([g for _, g in quiet], .99) * 1e3),
              ("slowest answer of /livez, ms", [each(lives, max)], None),
              ("resident memory, MiB", [[m / MIB for _, m, _ in rows]], None)]
    width, height, left = 760, 150, 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{3 * height + 30}" font-family="sans-serif" '
           'font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for k, (name, lines, mark) in enumerate(panels):
        top, bottom = k * height + 30, (k + 1) * height
        most = max([v for line in lines for v in line if v is not None] + [mark or 0, 1e-9])
        out.append(f'<text x="{left}" y="{top - 8}">{name}</text>')
        for share in (0, .5, 1):
            y = bottom - share * (bottom - top)
            out.append(f'<path d="M{left} {y:.0f}H{width - 20}" stroke="#ddd"/>'
                       f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{share * most:.3g}</text>')
        if mark:
            y = bottom - mark / most * (bottom - top)
            out.append(f'<path d="M{left} {y:.1f}H{width - 20}" stroke="#393" stroke-dasharray="4"/>'
                       f'<text x="{width - 20}" y="{y - 3:.1f}" text-anchor="end" fill="#393">p99 without attacks</text>')
        for colour, line in zip(("#c33", "#36c"), lines):
            points = " ".join(f"{left + i / max(1, len(line) - 1) * (width - left - 20):.1f},{bottom - v / most * (bottom - top):.1f}"
                              for i, v in enumerate(line) if v is not None)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    out.append(f'<text x="{width / 2}" y="{3 * height + 20}" text-anchor="middle">seconds, 0 to {seconds}</text></svg>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def begin(program, *args, behind=()):
    """A program of this folder, which has printed its first line."""
    child = subprocess.Popen([*behind, sys.executable, os.path.join(HERE, program), *map(str, args)],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child


def end(child, seconds):
    """Ends a program that `begin` began. Returns the JSON that it printed."""
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=seconds)
    return json.loads(out)


def main():
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    raise_limit()
    gc.disable()  # a collection would delay the load by milliseconds
    daemon = Daemon(cores[-1])
    load = Load(daemon.port)
    load.phase(0, want_all=True)  # not measured: PoCL still compiles kernels in the first steps
    first = load.wrong
    processor = Processor(cores[-1])
    load.phase(o.quiet)
    alone = load.gaps
    p99_alone, _, _ = summary("alone", load, processor)
    ok(not first + load.wrong, "alone every answer is whole, and the same each time", (first + load.wrong)[:2])
    time.sleep(1)
    idle, descriptors = daemon.memory("VmRSS"), daemon.descriptors()
    daemon.forget_peak()

    daemon.reading = False
    # Where times are measured, attackers have the lowest priority (chrt -i) on the processor that they share with the load. So
    # the load is not delayed itself, and measures the daemon's delays. Whether the attackers do all their work is checked below.
    behind = [] if o.bytes_only else ["chrt", "-i", "0"]
    good = begin("companions.py", daemon.port) if o.answered else None
    attackers = begin("attackers.py", daemon.port, o.scale, o.seed, ",".join(KINDS + ANSWERED * o.answered), behind=behind)
    samples = Samples(daemon)
    samples.start()
    processor = Processor(cores[-1])
    try:
        load.phase(RAMP + o.seconds)
    finally:
        companions = end(good, 900) if good else {}  # while the attacks go on
        attacks = end(attackers, 120)
    p99, largest, live = summary("beside the attacks", load, processor)
    seen, due = attacks["seen"], attacks["due"]
    print(f"# attacks for {attacks['seconds']:.0f} s")
    for name, counts in seen.items():
        print(f"# {name}: {', '.join(f'{k} {n}' for k, n in sorted(counts.items(), key=str))}; {due[name]:.0f} were to begin")
    peak = daemon.memory("VmHWM")
    time.sleep(AFTER)
    samples.over = True
    left, rss, kept = daemon.descriptors(), daemon.memory("VmRSS"), daemon.metric("responses_stored_bytes")
    print(f"# memory: {idle / MIB:.0f} MiB before, at most {peak / MIB:.0f}, {AFTER} s behind {rss / MIB:.0f}, of which {kept / MIB:.0f} are "
          f"stored responses; descriptors "
          f"{descriptors}, at most {max(n for _, _, n in samples.rows)}, then {left}")

    ok(load.n_answers and not load.wrong, f"beside the attacks {load.n_answers} answers have the bytes that they had alone",
       load.wrong[:2])
    few = [name for name, counts in seen.items() if counts["began"] < (1 if o.bytes_only else 0.9 * due[name])]
    ok(attackers.returncode == 0 and not few, "the attackers did what they were to do", few)
    ok(not any(k.startswith("2") for k in seen["malformed"]), "no malformed request is served", seen["malformed"])
    # 505 is for a version of HTTP that does not exist.
    faults = {name: counts for name, counts in seen.items() if any(re.search(r"\b5(?!05)\d\d$", k) for k in counts)}
    ok(not faults, "no attacker gets a status that is for a fault of the server", faults)
    if o.answered:
        ok("another's" not in seen["stored"], "no response is shown to, or changed by, a client that has not made it", seen["stored"])
    for name, what in (("conversation", "a stored response goes on in the same way"), ("schema", "an answer of a schema has the same bytes")):
        if o.answered:
            c = companions[name]
            ok(c["rounds"] and not c["wrong"], f"{what}, {c['rounds']} times, within {c['slowest']:.1f} s", "\n".join(c["wrong"][:5]))
    ok(all(status == 200 for _, _, status in load.lives), "/livez always answers",
       [row for row in load.lives if row[2] != 200][:5])
    ok(left <= descriptors, f"{AFTER} s behind them no descriptor is left", (descriptors, left))
    if not o.bytes_only:
        bound = max(0.010, 1.5 * p99_alone)
        if not o.answered:
            ok(p99 <= bound, f"99 % of the gaps between two tokens are at most {p99 * 1e3:.2f} ms, of {bound * 1e3:.2f} allowed")
        ok(largest < 0.5, f"the largest gap is {largest * 1e3:.1f} ms, of 500 allowed")
        ok(live < 0.1, f"the slowest /livez took {live * 1e3:.1f} ms, of 100 allowed")
        ok(peak - idle <= GIB, f"memory rises by at most {(peak - idle) / MIB:.0f} MiB, of 1024 allowed")
        kept = int(kept) + 64 * MIB
        ok(rss - idle <= kept, f"of which {(rss - idle) / MIB:.0f} MiB are left, of {kept / MIB:.0f} allowed with the stored responses")
    if o.svg:
        draw(o.svg, alone, load, samples.rows)
    daemon.process.send_signal(signal.SIGTERM)
    try:
        status = daemon.process.wait(25)
    except subprocess.TimeoutExpired:
        daemon.process.kill()
        status = "still running"
    ok(status == 0, "it ends with status 0, its log unread", status)
    done()


main()
