"""Time to the first token of a prompt of 2,000 tokens, cold against warm, over HTTP.

    bench_ttft.py TIGOND [MODEL [OPTION...]]

Warm: the prompt before it shares everything but the last message. Pairs are interleaved, so that other work of the machine
affects both. Options go to the daemon. Not a test: prints medians and their ratio.
"""
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PREFIX, QUESTION, PAIRS = 1984, 16, 9


def start(tigond, model, options):
    process = subprocess.Popen([tigond, "--model", model, "--port", "0", *options], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "listening on" in line:
            port = int(line.split("port ")[1].split(",")[0])
            break
    else:
        sys.exit("tigond does not listen")
    while True:
        c = http.client.HTTPConnection("127.0.0.1", port)
        c.request("GET", "/health")
        r = c.getresponse()
        r.read()
        if r.status == 200:
            return process, c
        time.sleep(0.05)


def first_token(c, prompt):
    """Seconds to the first event of a stream, and the tokens that were found."""
    body = json.dumps({"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}})
    begin = time.perf_counter()
    c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    r = c.getresponse()
    r.readline()
    seconds = time.perf_counter() - begin
    events = [line.removeprefix("data: ") for line in r.read().decode().splitlines() if line.startswith("data: {")]
    return seconds, json.loads(events[-1])["usage"]["prompt_tokens_details"]["cached_tokens"]


def tokens(r, n):
    return [r.randrange(300, 8000) for _ in range(n)]


def main():
    tigond = sys.argv[1]
    model = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "models", "lexis")
    r = random.Random(1)
    process, c = start(tigond, model, sys.argv[3:])
    times = {"cold": [], "warm": []}
    try:
        first_token(c, tokens(r, PREFIX + QUESTION))  # kernels are built
        c.close()
        for _ in range(PAIRS):
            prefix = tokens(r, PREFIX)
            for name in times:
                seconds, cached = first_token(c, prefix + tokens(r, QUESTION))
                times[name].append(seconds)
                print(f"{name}\t{seconds * 1000:.1f} ms\t{cached} cached", flush=True)
    finally:
        process.terminate()
        process.communicate()
    cold, warm = (statistics.median(t) for t in times.values())
    print(f"median\t{cold * 1000:.1f} ms cold\t{warm * 1000:.1f} ms warm\t{cold / warm:.1f} times shorter")


main()
