"""What long prompts and running streams cost each other, on tigond or vLLM (both answer with token ids).

    bench_mixed.py URL [--streams N] [--prompt TOKENS] [--every SECONDS] [--seconds N] [--vocab N]

Four spells of so many seconds: N streams alone; the streams while a prompt of random tokens arrives every so many seconds;
the streams while two such prompts are always there; and two prompts always, without streams. Streams generate without
end (ignore_eos), prompts want one token. Not a test: prints a row for each spell. A token's time is that of the piece of
the stream that has it; a piece with several tokens counts as one time and as all its tokens.
"""
import argparse
import http.client
import json
import os
import random
import sys
import threading
import time
import urllib.parse


def parse():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("url")
    a.add_argument("--streams", type=int, default=32)
    a.add_argument("--prompt", type=int, default=8192)
    a.add_argument("--every", type=float, default=1.0)
    a.add_argument("--seconds", type=float, default=20.0)
    a.add_argument("--vocab", type=int, default=1000, help="token ids are below this number")
    return a.parse_args()


class Client:
    """A connection, and the requests on it."""

    def __init__(self, url):
        u = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(u.hostname, u.port or 80, timeout=600)

    def post(self, body):
        self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = self.connection.getresponse()
        if r.status != 200:
            print(f"bench_mixed.py: status {r.status}: {r.read().decode()[:300]}", file=sys.stderr, flush=True)
            os._exit(1)  # from any thread
        return r


class Spell:
    """Times of a spell: (when, tokens) of each piece of each stream, and (when, seconds it took) of each answered prompt."""

    def __init__(self):
        self.pieces, self.prompts, self.over = [], [], False


def stream(args, spell, seed, ready):
    draw = random.Random(seed)
    tokens = [draw.randrange(args.vocab) for _ in range(64)]
    client = Client(args.url)
    while not spell.over:
        times = []  # of this request: what lies between two requests is no gap between tokens
        spell.pieces.append(times)
        r = client.post({"prompt": tokens, "max_tokens": 4000, "temperature": 0, "ignore_eos": True, "stream": True,
                         "return_token_ids": True})
        for line in r:
            if line.startswith(b"data: {"):
                n = sum(len(c.get("token_ids") or []) for c in json.loads(line[6:])["choices"])
                if n:
                    times.append((time.monotonic(), n))
                    ready.set()
            if spell.over:
                client.connection.close()
                return


def prompt(args, spell, seed):
    draw = random.Random(seed)
    begin = time.monotonic()
    r = Client(args.url).post({"prompt": [draw.randrange(args.vocab) for _ in range(args.prompt)], "max_tokens": 1,
                               "ignore_eos": True})
    r.read()
    end = time.monotonic()
    spell.prompts.append((end, end - begin))


def prompts_always(args, spell, seed):
    while not spell.over:
        prompt(args, spell, seed)
        seed += 1000


def share(sorted_list, part):
    return sorted_list[min(int(part * len(sorted_list)), len(sorted_list) - 1)] if sorted_list else float("nan")


def run(args, name, streams, how, seed, alone):
    spell, threads = Spell(), []
    for i in range(streams):
        ready = threading.Event()
        threads.append(threading.Thread(target=stream, args=(args, spell, i, ready), daemon=True))
        threads[-1].start()
        if not ready.wait(120):
            raise SystemExit("bench_mixed.py: a stream has no token ids after 120 s")
    begin = time.monotonic()
    end = begin + args.seconds
    if how == "always":
        for i in range(2):
            threads.append(threading.Thread(target=prompts_always, args=(args, spell, seed + i), daemon=True))
            threads[-1].start()
    next_one = begin
    while time.monotonic() < end:
        if how == "every" and time.monotonic() >= next_one:
            threads.append(threading.Thread(target=prompt, args=(args, spell, seed), daemon=True))
            threads[-1].start()
            seed, next_one = seed + 1, next_one + args.every
        time.sleep(0.005)
    spell.over = True
    gaps = sorted(b[0] - a[0] for times in list(spell.pieces) for a, b in zip(times, times[1:])
                  if begin <= a[0] and b[0] <= end)
    tokens = sum(n for times in list(spell.pieces) for at, n in times if begin <= at < end) / args.seconds
    ttft = sorted(took for at, took in list(spell.prompts) if at < end)
    rate = len(ttft) * args.prompt / args.seconds
    for t in threads:
        t.join(120)
    print("\t".join([name, f"{tokens:.1f}", f"{100 * tokens / alone:.1f}" if alone and streams else "-",
                     f"{1000 * share(gaps, 0.5):.1f}", f"{1000 * share(gaps, 0.99):.1f}",
                     f"{1000 * (gaps[-1] if gaps else float('nan')):.1f}", str(len(ttft)), f"{rate:.0f}",
                     f"{1000 * share(ttft, 0.5):.0f}"]), flush=True)
    return tokens


def main():
    args = parse()
    print("\t".join(["spell", "tokens/s", "share_%", "gap_p50_ms", "gap_p99_ms", "gap_max_ms", "prompts", "prompt_tokens/s",
                     "ttft_p50_ms"]))
    alone = run(args, "streams", args.streams, "", 0, 0)
    run(args, f"a prompt every {args.every:g} s", args.streams, "every", 1 << 20, alone)
    run(args, "two prompts always", args.streams, "always", 2 << 20, alone)
    run(args, "two prompts alone", 0, "always", 3 << 20, alone)


main()
