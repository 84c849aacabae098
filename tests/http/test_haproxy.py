"""Two prefill and two decode workers, with the arguments of packaging/'s units, behind HAProxy with packaging/'s configuration.

    test_haproxy.py TIGOND TIGON UNITS

Sessions stay with a worker; workers end, in order or not, and come back, and no request fails.
"""
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from harness import MODEL, ROOT, Server, done, free_ports, goldens, ok, parallel, parse_events, same, skip_all

sys.path.insert(0, os.path.join(ROOT, "tests"))
from units import arguments, unit  # noqa: E402

TIGON, UNITS = (os.path.abspath(a) for a in sys.argv[2:4])
if not shutil.which("haproxy"):
    skip_all("no haproxy here")
folder = tempfile.TemporaryDirectory(prefix="tigon-haproxy-")
subprocess.run([TIGON, "transfer-key", os.path.join(folder.name, "transfer-key")], check=True, stdout=subprocess.DEVNULL)


*worker_ports, proxy_port = free_ports(9)
PREFILL, DECODE = (unit(os.path.join(UNITS, f"tigond-{role}@.service")) for role in ("prefill", "decode"))
PEERS = " ".join(f"--prefill tcp://127.0.0.1:{p}" for p in worker_ports[2:4])
OPTIONS = os.environ.get("TIGOND_ARGS", "") + " --max-num-seqs 16 --transfer-heartbeat 1000"


def prefill_worker(i):
    return Server(*arguments(PREFILL, f"{i + 1:02}", CREDENTIALS_DIRECTORY=folder.name, MODEL=MODEL, OPTIONS=OPTIONS,
                             PORT=str(worker_ports[i]), TRANSFER=f"tcp://127.0.0.1:{worker_ports[2 + i]}"))


def decode_worker(i):
    s = Server(*arguments(DECODE, f"{i + 1:02}", CREDENTIALS_DIRECTORY=folder.name, MODEL=MODEL, OPTIONS=OPTIONS, PEERS=PEERS,
                          PORT=str(worker_ports[4 + i]), ADMIN_PORT=str(worker_ports[6 + i])))
    s.admin_port = worker_ports[6 + i]
    if s.wait_metric("transfer_peers", 2, 60) is None:
        raise RuntimeError("it does not find the prefill workers:\n" + s.text())
    return s


def proxy():
    with open(os.path.join(ROOT, "packaging", "haproxy.cfg"), encoding="utf-8") as f:
        text = f.read()
    for old, new in (("127.0.0.1:8080", f"127.0.0.1:{proxy_port}"), ("127.0.0.1:8101", f"127.0.0.1:{worker_ports[4]}"),
                     ("127.0.0.1:8102", f"127.0.0.1:{worker_ports[5]}"), ("/run/haproxy", folder.name)):
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    path = os.path.join(folder.name, "haproxy.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    log = open(os.path.join(folder.name, "log"), "w")
    return subprocess.Popen(["haproxy", "-db", "-f", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def ask(session, messages, stream=False, tokens=24):
    """(text, cached tokens), or the error."""
    c = http.client.HTTPConnection("127.0.0.1", proxy_port, timeout=120)
    body = {"messages": messages, "temperature": 0, "max_tokens": tokens, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    try:
        c.request("POST", "/v1/chat/completions", json.dumps(body),
                  {"Content-Type": "application/json", **({"X-Session-Id": session} if session else {})})
        r = c.getresponse()
        data = r.read()
        if r.status != 200:
            return f"status {r.status}: {data[:300]!r}"
        if not stream:
            answer = json.loads(data)
            return (answer["choices"][0]["message"]["content"],
                    answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        events = parse_events(data)
        if not events or events[-1] != "[DONE]" or any("error" in e for e in events[:-1]):
            return f"the stream ended with {events[-2:]}"
        return ("".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1] if e["choices"]),
                events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"])
    except (OSError, http.client.HTTPException) as e:
        return f"{type(e).__name__}: {e}"
    finally:
        c.close()


def log_lines():
    """(worker, status, session) of every answer so far."""
    time.sleep(0.3)
    with open(os.path.join(folder.name, "log"), encoding="utf-8") as f:
        return re.findall(r'decode/(\S+) \S+ (-?\d+) .*? \{(.*?)\} "POST', f.read())


def workers_of(lines):
    found = {}
    for worker, _, session in lines:
        found.setdefault(session, set()).add(worker)
    return found


words = [w for c in goldens() for w in c["output"].split()]


def first_message(i):
    return [{"role": "user", "content": " ".join(words[(37 * i + k) % len(words)] for k in range(300))}]


def conversation(i):
    """Three turns, each with all before it; the answers."""
    messages, came = first_message(i), []
    for turn in range(3):
        came.append(ask(f"s{i}", messages, stream=turn % 2 == 1))
        if isinstance(came[-1], str):
            break
        messages = messages + [{"role": "assistant", "content": came[-1][0]}, {"role": "user", "content": "And then?"}]
    return came


prefills, decodes = [prefill_worker(i) for i in (0, 1)], [decode_worker(i) for i in (0, 1)]
haproxy = proxy()
try:
    deadline = time.time() + 30
    while isinstance(ask("hello", [{"role": "user", "content": "Hello"}]), str) and time.time() < deadline:
        time.sleep(0.1)

    came = parallel([lambda i=i: conversation(i) for i in range(12)])
    ok(all(isinstance(x, tuple) for c in came for x in c) and all(len(c) == 3 for c in came), "12 chats of three turns",
       [x for c in came for x in c if isinstance(x, str)])
    found = workers_of(log_lines())
    ok(all(len(found[f"s{i}"]) == 1 for i in range(12)), "each has one worker", found)
    same(set().union(*found.values()), {"01", "02"}, "and both workers have chats")
    # Not of the turn before, whose answer the template leaves out in part, but of the prompt before it.
    ok(all(c[2][1] >= c[1][1] >= 300 for c in came if len(c) == 3), "so later turns hit", [[x[1] for x in c] for c in came])
    counts = [d.metrics() for d in decodes]
    ok(all(m["transfer_received_total"] for m in counts) and not sum(m["transfer_failed_total"] for m in counts),
       "prompts came from prefill workers", counts)
    before = len(log_lines())
    for i in range(4):
        ask(None, first_message(20 + i))
    same(len({w for w, _, _ in log_lines()[before:]}), 1, "without a session the client's address decides")

    c = http.client.HTTPConnection("127.0.0.1", proxy_port, timeout=60)
    statuses = []
    for path in ("/cache", "/cache/flush", "/metrics", "/%63ache?tokens=1", "/met%72ics", "/metrics%00", "/v1/../cache",
                 "/v1/models/../../cache", "//cache", "/v1/models", "/v1/models/lexis", "/health"):
        c.request("GET", path, headers={"Host": "api.example.com"})
        r = c.getresponse()
        r.read()
        statuses.append(r.status)
    c.close()
    same(statuses, [404] * 9 + [200] * 3, "what is for operators stays inside, in every spelling")

    def under_load(what, streams, name):
        """Eight sessions ask all the time while `what` is done; the requests without an answer."""
        ending, bad, n = threading.Event(), [], [0]

        def load(k):
            i = 0
            while not ending.is_set():
                answer = ask(f"load{k}", first_message(100 + 31 * k + i), stream=streams and i % 2 == 1, tokens=48)
                n[0] += 1
                i += 1
                if isinstance(answer, str):
                    bad.append(answer)

        slow = time.time() + 120
        threads = [threading.Thread(target=load, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        time.sleep(1)
        what()
        time.sleep(1)
        while n[0] < 16 and time.time() < slow:
            time.sleep(0.1)
        ending.set()
        for t in threads:
            t.join()
        ok(not bad and n[0] >= 16, f"{name}: {n[0]} requests, none failed", bad[:5])

    def end_decode():
        decodes[0].stop("a decode worker ends with status 0 after SIGTERM")

    victims = sorted(s for s, w in workers_of(log_lines()).items() if w == {"01"} and s.startswith("s"))
    under_load(end_decode, True, "a decode worker ends in order")
    before = len(log_lines())
    ok(isinstance(ask(victims[0], first_message(1)), tuple), "its sessions go on")
    same(workers_of(log_lines()[before:]), {victims[0]: {"02"}}, "with the other one")

    def begin_decode():
        decodes[0] = decode_worker(0)
        time.sleep(2)

    under_load(begin_decode, True, "it comes back")
    before = len(log_lines())
    ask(victims[0], first_message(1))
    same(workers_of(log_lines()[before:]), {victims[0]: {"01"}}, "and has its sessions again")

    under_load(lambda: prefills[0].stop("a prefill worker ends with status 0 after SIGTERM"), True,
               "a prefill worker ends in order")

    # What is not streamed has no byte out before all of it is there.
    under_load(lambda: decodes[1].kill(), False, "a decode worker is killed, nothing is streamed")
finally:
    haproxy.terminate()
    haproxy.wait()
for s in (prefills[1], decodes[0]):
    s.stop()
done()
