"""The effect of long prompts on running streams: one process on two cores beside a prefill and a decode worker on one core each.

    bench_apart.py TIGOND MODEL [--svg FILE] [--seconds N] [--prompt TOKENS] [OPTION...]

STREAMS streams generate while prompts of so many tokens keep arriving, the next when the one before has its first token.
Turns alternate between the two ways, so that other work of the machine affects both. Options go to every daemon. Not a
test: prints percentiles of the time between two tokens of the streams, and the figure shows each of them.
"""
import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

STREAMS, TURNS = 4, 2


class Daemon:
    def __init__(self, cores, *args):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        env = {**os.environ, "POCL_MAX_PTHREAD_COUNT": str(len(cores))}
        self.process = subprocess.Popen([*args, "--port", "0"], env=env, stdout=self.log, stderr=self.log,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))
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

    def post(self, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return c.getresponse()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def tokens(r, n):
    return [r.randrange(300, 8000) for _ in range(n)]


def stream(daemon, prompt, stop, gaps, begin):
    """Until stop is set: (time, gap) of each token behind the first; each event has a token."""
    r = daemon.post({"prompt": prompt, "max_tokens": 4000, "ignore_eos": True, "temperature": 0, "stream": True,
                     "return_token_ids": True})
    last = None
    for line in r:
        if stop.is_set():
            break
        if not line.startswith(b"data: {"):
            continue
        n = sum(len(c.get("token_ids") or []) for c in json.loads(line[6:])["choices"])
        now = time.perf_counter()
        if last is not None and n:
            gaps.append((now - begin, now - last))
        last = now if n else last
    r.close()


def arrivals(daemon, r, n_tokens, stop, ttfts):
    while not stop.is_set():
        begin = time.perf_counter()
        daemon.post({"prompt": tokens(r, n_tokens), "max_tokens": 1, "temperature": 0}).read()
        ttfts.append(time.perf_counter() - begin)


def turn(daemon, seed, seconds, n_tokens):
    """Gaps of all streams while prompts arrive, and the prompts' times."""
    r, stop, gaps, ttfts = random.Random(seed), threading.Event(), [], []
    begin = time.perf_counter()
    threads = [threading.Thread(target=stream, args=(daemon, tokens(r, 32), stop, gaps, begin), daemon=True)
               for _ in range(STREAMS)]
    for t in threads:
        t.start()
    time.sleep(3)
    gaps.clear()
    t = threading.Thread(target=arrivals, args=(daemon, r, n_tokens, stop, ttfts), daemon=True)
    t.start()
    time.sleep(seconds)
    stop.set()
    for t in [*threads, t]:
        t.join(60)
    time.sleep(1)
    return list(gaps), ttfts


def percentile(v, p):
    v = sorted(v)
    return v[min(len(v) - 1, int(len(v) * p))] if v else float("nan")


def draw(path, points):
    """Time between tokens, in log scale, over the turn; a colour each way."""
    import math
    width, height, left, bottom = 760, 360, 60, 320
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
           'font-size="12"><rect width="100%" height="100%" fill="white"/>']
    end = max(t for v in points.values() for t, _ in v)
    for ms in (1, 10, 100, 1000, 10000):
        y = bottom - math.log10(ms) / 4 * 280
        out.append(f'<path d="M{left} {y:.0f}H{width - 20}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{ms} ms</text>')
    for i, (name, v) in enumerate(points.items()):
        colour = ("#c33", "#36c")[i]
        out.append(f'<text x="{left + 10 + 320 * i}" y="20" fill="{colour}">{name}</text>')
        for t, gap in v:
            y = bottom - math.log10(max(gap * 1e3, 1)) / 4 * 280
            out.append(f'<circle cx="{left + t / end * (width - left - 20):.1f}" cy="{y:.1f}" r="1.5" fill="{colour}"/>')
    out.append(f'<text x="{width / 2}" y="345" text-anchor="middle">seconds, 0 to {end:.0f}: between two tokens of '
               f'{STREAMS} streams while prompts arrive</text></svg>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tigond")
    p.add_argument("model")
    p.add_argument("--svg")
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--prompt", type=int, default=3000)
    o, more = p.parse_known_args()
    base = [o.tigond, "--model", o.model, *more]
    unified = Daemon({0, 1}, *base)
    prefill = Daemon({0}, *base, "--role", "prefill", "--transfer-listen", "tcp://127.0.0.1:0")
    endpoint = prefill.wait_for(r"decode workers at (tcp://\S+?),? ")
    decode = Daemon({1}, *base, "--role", "decode", "--prefill", endpoint)
    decode.wait_for(r"transfer: tcp://(\S+) is there")
    ways = {"one process, two cores": unified, "prefill and decode, a core each": decode}
    gaps, ttfts = {n: [] for n in ways}, {n: [] for n in ways}
    for i in range(TURNS):
        for name, daemon in ways.items():
            g, t = turn(daemon, i, o.seconds, o.prompt)
            gaps[name] += g
            ttfts[name] += t
    print("way\ttokens\titl_p50_ms\titl_p90_ms\titl_p99_ms\titl_max_ms\tprompts\tttft_p50_ms")
    p99 = []
    for name in ways:
        v = [g for _, g in gaps[name]]
        p99.append(percentile(v, .99))
        print(f"{name}\t{len(v)}\t{percentile(v, .5) * 1e3:.1f}\t{percentile(v, .9) * 1e3:.1f}\t{p99[-1] * 1e3:.1f}\t"
              f"{max(v) * 1e3:.1f}\t{len(ttfts[name])}\t{statistics.median(ttfts[name]) * 1e3:.0f}")
    print(f"# p99: {p99[0] / p99[1]:.1f} times shorter apart")
    if o.svg:
        draw(o.svg, gaps)
    for d in (unified, prefill, decode):
        d.stop()


main()
