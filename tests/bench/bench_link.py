"""A prefill and a decode worker in network namespaces, over a link with a rate, a delay and losses; as root.

    bench_link.py TIGOND TIGON MODEL [--rate BITS/S] [--delay SECONDS] [--loss SHARE] [--svg FILE] [--prompts N] [OPTION...]

The link is this program: packets of one namespace's tun device are written to the other's when their time has come, or never,
so that both ends see real losses and TCP repairs them. Beside it one process answers the same prompts, in turn. Everything
between the namespaces is encrypted (a key file), since no address is loopback. Prints the times to the first token, whether the
answers have the same bytes, and the time of the transfer after the last layer was computed; the figure shows the windows of
layers of one prompt, computed, sent and received.
"""
import argparse
import ctypes
import fcntl
import heapq
import http.client
import json
import os
import random
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

SPACES, ADDRESSES, MTU = ("tigon-p", "tigon-d"), ("10.77.0.1", "10.77.0.2"), 16000
libc = ctypes.CDLL(None, use_errno=True)


HOME = open("/proc/thread-self/ns/net")


def enter(space):
    """This thread goes there; None: back."""
    with open(f"/run/netns/{space}") if space else os.fdopen(os.dup(HOME.fileno())) as f:
        if libc.setns(f.fileno(), 0x40000000) < 0:
            raise OSError(ctypes.get_errno(), f"setns {space}")


class Link(threading.Thread):
    """Two namespaces with a tun device each, and the link between them."""

    def __init__(self, rate, delay, loss):
        super().__init__(daemon=True)
        self.rate, self.delay, self.loss, self.fds = rate, delay, loss, []
        self.sent = self.lost = 0
        self.bytes = [0, 0]  # that came from each namespace
        self.random = random.Random(1)
        self.close()
        for name, address in zip(SPACES, ADDRESSES):
            subprocess.run(["ip", "netns", "add", name], check=True)
            enter(name)
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH22x", b"tigon0", 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
            self.fds.append(fd)
            for command in (f"link set tigon0 mtu {MTU} up", f"addr add {address}/24 dev tigon0", "link set lo up"):
                subprocess.run(["ip", "-n", name, *command.split()], check=True)
            enter(None)
        self.start()

    @staticmethod
    def close():
        for name in SPACES:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def run(self):
        free, waiting, n = [0.0, 0.0], [], 0
        while True:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(waiting)
                try:
                    os.write(self.fds[to], packet)
                except OSError:
                    self.lost += 1
            timeout = max(waiting[0][0] - now, 0) if waiting else 1
            for fd in select.select(self.fds, [], [], timeout)[0]:
                side = self.fds.index(fd)
                try:
                    packet = os.read(fd, MTU + 100)
                except OSError:
                    continue
                now = time.monotonic()
                free[side] = max(free[side], now) + len(packet) * 8 / self.rate
                self.sent += 1
                self.bytes[side] += len(packet)
                if self.random.random() < self.loss:
                    self.lost += 1
                    continue
                n += 1
                heapq.heappush(waiting, (free[side] + self.delay, n, 1 - side, packet))


def expected_bytes(metrics):
    return sum(float(v) for n, v in (line.rsplit(" ", 1) for line in metrics.splitlines() if line and line[0] != "#")
               if n.split("{")[0] == "tigon_transfer_received_bytes_total")


class Daemon:
    def __init__(self, space, *args):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.space = space
        prefix = ["ip", "netns", "exec", space] if space else []
        self.process = subprocess.Popen([*prefix, *args], stdout=self.log, stderr=self.log)
        self.port = int(self.wait_for(r"ready after .*:(\d+),"))

    def wait_for(self, pattern, seconds=600):
        end = time.time() + seconds
        while time.time() < end:
            with open(self.log.name) as f:
                text = f.read()
            if found := re.search(pattern, text):
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"no {pattern!r} in:\n{text}")

    def connect(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        if self.space:
            enter(self.space)
        c.connect()
        if self.space:
            enter(None)
        return c

    def metrics(self):
        c = self.connect()
        c.request("GET", "/metrics")
        return c.getresponse().read().decode()

    def ask(self, body):
        """Seconds to the first token, and the answer's tokens with their log-probabilities."""
        c = self.connect()
        begin = time.perf_counter()
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        events, first = [], None
        for line in c.getresponse():
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - begin
                events.append(json.loads(line[6:])["choices"])
        return first, json.dumps(events, sort_keys=True)


def read_trace(path):
    """Delivery to its lines (ns, what, first layer, layers, first token, tokens, bytes)."""
    deliveries = {}
    with open(path) as f:
        for line in f:
            ns, what, delivery, *numbers = line.split("\t")
            deliveries.setdefault(delivery, []).append((int(ns), what, *map(int, numbers)))
    return deliveries


def draw(path, lines, title):
    """A row a window: from computed to sent to received."""
    windows = {}
    for ns, what, first, n, token, tokens, size in lines:
        if n:
            windows.setdefault((token, first, what), []).append(ns)
    rows = sorted({k[:2] for k in windows})
    begin = min(ns for ns, what, *_ in lines if what == "asked")
    end = max(ns for ns, *_ in lines)
    width, left, height = 900, 150, 40 + 14 * len(rows) + 40

    def x(ns):
        return left + (ns - begin) / (end - begin) * (width - left - 20)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
           f'font-size="11"><rect width="100%" height="100%" fill="white"/><text x="{left}" y="16">{title}</text>']
    before = begin
    for i, (token, first) in enumerate(rows):
        y = 30 + 14 * i
        computed, sent, received = (windows.get((token, first, w), []) for w in ("computed", "sent", "received"))
        out.append(f'<text x="{left - 6}" y="{y + 9}" text-anchor="end">tokens {token}.., layers {first}..</text>')
        for a, b, colour in ((before, max(computed), "#bbb"), (min(computed), max(sent), "#c83"),
                             (min(computed), max(received), "#36c")):
            out.append(f'<rect x="{x(a):.1f}" y="{y + (0 if colour != "#36c" else 6)}" width="{max(x(b) - x(a), 1):.1f}" '
                       f'height="{11 if colour == "#bbb" else 5}" fill="{colour}"/>')
        before = max(computed)
    for ns, what, *_ in lines:
        if what == "complete":
            out.append(f'<path d="M{x(ns):.1f} 24V{height - 34}" stroke="#080"/>')
    out.append(f'<text x="{left}" y="{height - 12}">{(end - begin) / 1e6:.0f} ms from asked to complete (green); grey: computed, '
               'orange: read and sent, blue: received</text></svg>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def main():
    p = argparse.ArgumentParser()
    for name in ("tigond", "tigon", "model"):
        p.add_argument(name)
    p.add_argument("--rate", type=float, default=1e9)
    p.add_argument("--delay", type=float, default=0.002)
    p.add_argument("--loss", type=float, default=0.001)
    p.add_argument("--svg")
    p.add_argument("--prompts", type=int, default=5)
    p.add_argument("--tokens", type=int, default=3000)
    o, more = p.parse_known_args()
    link = Link(o.rate, o.delay, o.loss)
    with tempfile.TemporaryDirectory() as d:
        key = os.path.join(d, "key")
        subprocess.run([o.tigon, "transfer-key", key], check=True, stdout=subprocess.DEVNULL)
        base = [o.tigond, "--model", o.model, "--port", "0", *more]
        traces = [os.path.join(d, n) for n in ("prefill.tsv", "decode.tsv")]
        apart = ["--transfer-key", key, "--transfer-heartbeat", "1000", "--transfer-trace"]
        unified = Daemon(None, *base)
        prefill = Daemon(SPACES[0], *base, "--role", "prefill", "--transfer-listen", f"tcp://{ADDRESSES[0]}:8100", *apart,
                         traces[0])
        decode = Daemon(SPACES[1], *base, "--role", "decode", "--prefill", f"tcp://{ADDRESSES[0]}:8100",
                        "--disaggregation-min-tokens", "1", *apart, traces[1])
        decode.wait_for(r"transfer: tcp://(\S+) is there")
        r = random.Random(2)
        times, same = {"one process": [], "apart": []}, True
        for _ in range(o.prompts):
            body = {"prompt": [r.randrange(300, 8000) for _ in range(o.tokens)], "max_tokens": 8, "temperature": 0,
                    "logprobs": 3, "return_token_ids": True, "stream": True, "ignore_eos": True}
            a, b = unified.ask(body), decode.ask(body)
            times["one process"].append(a[0])
            times["apart"].append(b[0])
            same = same and a[1] == b[1]
        deliveries, came = read_trace(traces[0]), read_trace(traces[1])
        hidden, windows = [], []
        for delivery, lines in came.items():
            sent = deliveries[delivery]
            last = max(ns for ns, what, *_ in sent if what == "computed")
            hidden.append((max(ns for ns, what, *_ in lines if what == "complete") - last) / 1e6)
            windows.append(max(s[6] for s in sent) * 8 / o.rate * 1e3)
        print(f"# rate {o.rate / 1e9:g} Gbit/s, delay {o.delay * 1e3:g} ms, loss {o.loss:%}: {link.sent} packets, {link.lost} lost")
        data = expected_bytes(decode.metrics())
        print(f"# pages and states {data / 1e6:.3f} MB, on the link {link.bytes[0] / 1e6:.3f} MB in packets of {MTU} bytes, with "
              f"their heads, encryption, retransmissions: {link.bytes[0] / data - 1:.2%} more")
        print("same bytes" if same else "DIFFERENT BYTES")
        for name, v in times.items():
            print(f"{name}\tttft_p50_ms\t{statistics.median(v) * 1e3:.0f}\tall\t" + " ".join(f"{t * 1e3:.0f}" for t in v))
        print(f"apart / one process\t{statistics.median(b / a for a, b in zip(*times.values())):.3f}")
        print(f"last layer computed to all received\tp50_ms\t{statistics.median(hidden):.1f}\tone window on the link\t"
              f"{statistics.median(windows):.1f} ms")
        if o.svg:
            delivery = sorted(came)[-1]
            draw(o.svg, deliveries[delivery] + came[delivery], f"a prompt of {o.tokens} tokens, {o.rate / 1e9:g} Gbit/s, "
                 f"{o.delay * 1e3:g} ms, {o.loss:.1%} lost")
        for x in (unified, prefill, decode):
            x.process.terminate()
            x.process.wait()
    link.close()


main()
