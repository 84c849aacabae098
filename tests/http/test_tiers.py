"""The cache below the device, as clients see it: --cache-dir, --host-cache-memory, and their files.

An answer is right when it is the one that a server without any cache gives.
"""
import atexit
import glob
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time

from harness import MODEL, Server, TIGOND, done, ok, same, slow_model, token_ids, wait_for

FAKE = "fake" in os.path.basename(TIGOND)
PAGE = 64
JSON = {"Content-Type": "application/json"}
LENGTH = 400  # tokens of a prompt
WHOLE = (LENGTH - 1) // PAGE * PAGE  # what can be found of it
SMALL = ("--cache-memory", "12M" if FAKE else "8M", "--max-num-seqs", "4", "--max-model-len", "1024")
work = tempfile.mkdtemp(prefix="tigon-tiers-")
atexit.register(shutil.rmtree, work, ignore_errors=True)


def ids(seed, n=LENGTH):
    return token_ids(seed, n)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.body = status, json.loads(body)
        self.header = headers["X-Tigon-Cache"]
        self.reason = self.header.split("reason=")[1] if self.header else None
        self.cached = self.body.get("usage", {}).get("prompt_tokens_details", {}).get("cached_tokens")
        self.ids = self.body.get("choices", [{}])[0].get("token_ids")
        self.seen = (self.cached, self.reason)


def complete(s, prompt, max_tokens=8, **more):
    return Answer(*s.request("POST", "/v1/completions",
                             json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                                         "ignore_eos": True, "return_token_ids": True, **more}), JSON))


def tiers(s):
    return json.loads(s.get("/cache?limit=1")[1])["totals"]["tiers"]


def wait_written(s):
    """Everything computed is on disk, and nothing is on its way."""
    seen = []

    def settled():
        t = tiers(s)["disk"]
        seen.append((t["items"], t["queued"]))
        return t["status"] != "opening" and len(seen) > 4 and len(set(seen[-4:])) == 1 and not t["queued"]

    return wait_for(settled)


def wait_open(s):
    return wait_for(lambda: tiers(s)["disk"]["status"] != "opening")


def files(folder):
    return sorted(f for kind in ("kv", "state") for f in glob.glob(f"{folder}/*/*/*.{kind}"))


def place(name):
    return os.path.join(work, name)


# What everything is compared with.
plain = Server("--prefix-cache", "off")
right = [complete(plain, ids(i)).ids for i in range(16)]
long_right = complete(plain, ids(50, 100), 150).ids
plain.stop("the server without a cache ends")
ok(len({tuple(r) for r in right}) > 8, "answers differ", right)

# a clean restart
first = place("first")
s = Server("--cache-dir", first)
wait_open(s)
begin = time.time()
a = [complete(s, ids(i)) for i in range(8)]
soon = 5 + 5 * (time.time() - begin)  # a busy machine is as slow with files as with answers
ok(wait_for(lambda: len(files(first)) >= 8 * (WHOLE // PAGE + 1), soon), f"on disk within {soon:.1f} s of the answer", files(first)[:3])
same([r.seen for r in a], [(0, "cold")] * 8, "a new directory knows nothing")
ok(all(os.stat(f).st_mode & 0o7777 == 0o600 for f in files(first)), "files of mode 0600")
wait_written(s)
m, t, n = s.metrics(), tiers(s), len(files(first))
same((m['cache_tier_items{tier="disk"}'], m["cache_disk_queued_items"], m['cache_tier_items{tier="host"}']), (n, 0, 0),
     "/metrics counts them")
ok(m["cache_disk_written_items_total"] == n and m["cache_disk_written_bytes_total"] > 0, "as written", m)
same((t["disk"]["status"], t["disk"]["items"], t["disk"]["written"], t["host"]["items"]), ("ready", n, n, 0),
     "and so does /cache")
s.stop()

s = Server("--cache-dir", first)
wait_open(s)
b = [complete(s, ids(i)) for i in range(8)]
same([r.seen for r in b], [(WHOLE, "none")] * 8, "after a restart all of it is found on disk")
same([r.ids for r in b], right[:8], "with the same answers")
m = s.metrics()
same((m["cache_loads_total"], m["cache_loads_failed_total"], m['cache_tier_hits_total{tier="disk"}']),
     (8, 0, 8 * (WHOLE // PAGE + 1)), "by eight requests that waited for theirs")
b = complete(s, ids(0))
same((b.seen, b.ids, s.metrics()["cache_loads_total"]), ((WHOLE, "none"), right[0], 8), "now they are on the device")
s.stop()

# killed in the middle of load, again and again
killed = place("killed")
for turn in range(3):
    s = Server("--cache-dir", killed)
    wait_open(s)
    a = [complete(s, ids(i)) for i in range(8)]
    same([r.ids for r in a], right[:8], f"start {turn}: right answers")
    if turn:
        same([r.cached for r in a], [WHOLE] * 8, f"start {turn}: prompts seen before the kill hit")
    wait_written(s)
    ended = threading.Event()

    def load(seed):
        for n in range(10000):
            try:
                complete(s, ids(seed + n), 20)
            except OSError:
                return
            except Exception:  # half an answer
                return
            if ended.is_set():
                return

    threads = [threading.Thread(target=load, args=(100000 * (4 * turn + k + 1),)) for k in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.4)
    s.kill()
    ended.set()
    for thread in threads:
        thread.join()

# a second daemon on the same directory
owner = Server("--cache-dir", first)
guest = Server("--cache-dir", first)
wait_open(owner)
wait_open(guest)
same((tiers(owner)["disk"]["status"], tiers(guest)["disk"]["status"]), ("ready", "read-only"), "one owner, one that reads")
before = files(first)
b = [complete(guest, ids(i)) for i in (1, 2)]
same([(r.seen, r.ids) for r in b], [((WHOLE, "none"), right[i]) for i in (1, 2)], "which finds what is there")
b = complete(guest, ids(14))
same((b.seen, b.ids), ((0, "cold"), right[14]), "computes what is not")
time.sleep(0.5)
same(files(first), before, "and writes nothing")
same(complete(owner, ids(4)).seen, (WHOLE, "none"), "the owner hits as before")
guest.stop("the guest ends")
owner.stop("the owner ends")

# a daemon that is stopped writes its queue
s = Server("--cache-dir", place("stopped"))
for i in range(4):
    complete(s, ids(i))
s.stop("SIGTERM right after the answers")
s = Server("--cache-dir", place("stopped"))
wait_open(s)
same([complete(s, ids(i)).seen for i in range(4)], [(WHOLE, "none")] * 4, "everything was written before the end")
s.stop()

# damage in a hundred files
hurt = place("hurt")
s = Server("--cache-dir", hurt)
for i in range(16):
    complete(s, ids(i))
wait_written(s)
s.stop()
r = random.Random(5)
chosen = files(hurt)
r.shuffle(chosen)
chosen, whole = chosen[:100], chosen[100:]
for k, path in enumerate(chosen):
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        if k % 10 == 8:
            f.truncate(r.randrange(size))
        elif k % 10 == 9:
            f.seek(0, 2)
            f.write(b"x")
        else:
            for at in r.sample(range(size if k % 2 else 300), r.randrange(1, 4)):
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1 << r.randrange(8)]))
folder = os.path.dirname(chosen[0])
for name, data in (("README", b"hello"), (f"{0:032x}-{0:016x}-{0:016x}-00000040.kv", b""), ("x" * 90 + ".kv", bytes(99)),
                   ("half.tmp", b"TIGONKV1")):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)
pages = [p for p in whole if p.endswith(".kv")]
if ok(len(chosen) == 100 and len(pages) > 1, "a hundred files are damaged", (len(chosen), len(whole))):
    shutil.copyfile(pages[0], pages[1])  # a good one under another one's name
s = Server("--cache-dir", hurt)
wait_open(s)
b = [complete(s, ids(i)) for i in range(16)]
same([x.ids for x in b], right, "the server starts, and answers are right")
ok(any(x.cached < WHOLE for x in b), "some of them computed again", [x.header for x in b])
damaged = s.metrics()["cache_disk_damaged_total"]
said = [line for line in s.text().splitlines() if " warning: " in line and "cache: " in line]
more = sum(int(m[1]) - 1 for m in re.finditer(r"cache: (\d+) more files do not have their size", s.text()))
ok(0 < damaged == len(said) + more, "the log says of each file why", (damaged, len(said), more, s.text()[-3000:]))
named = [sum(os.path.basename(path) in line for line in s.text().splitlines()) for path in files(hurt) + chosen]
ok(max(named) == 1, "and once", [line for line in s.text().splitlines() if "cache" in line][-40:])
same([complete(s, ids(i)).ids for i in range(16)], right, "right again from the device")
wait_written(s)
s.stop()
s = Server("--cache-dir", hurt)
wait_open(s)
same([complete(s, ids(i)).ids for i in range(16)], right, "and after another start")
s.stop()

# a bound
s = Server("--cache-dir", place("bounded"), "--cache-disk", "12M" if FAKE else "3M")
LIMIT = (12 if FAKE else 3) << 20
most = 0
for i in range(16):
    complete(s, ids(i))
    most = max(most, tiers(s)["disk"]["bytes"])
    wait_for(lambda: not tiers(s)["disk"]["queued"])
    if i:
        same(complete(s, ids(0)).cached, WHOLE, f"{i}: one of them hits on the device again and again")
wait_written(s)
total = sum(os.path.getsize(f) for f in files(place("bounded")))
ok(0 < total <= LIMIT and most <= LIMIT, "--cache-disk bounds the files", (total, most))
ok(s.metrics()['cache_tier_evicted_total{tier="disk"}'] > 0, "by evicting", s.metrics())
s.stop()
s = Server("--cache-dir", place("bounded"), "--cache-disk", "12M" if FAKE else "3M")
wait_open(s)
same([complete(s, ids(i)).cached for i in (0, 1)], [WHOLE, 0], "what is in use on the device stays on disk")
s.stop()

# forgetting
s = Server("--cache-dir", first, "--host-cache-memory", "256M")
wait_open(s)
complete(s, ids(14))
wait_written(s)
ok(len(files(first)) > 50, "there is something to forget", len(files(first)))
same(s.request("POST", "/cache/flush", b"", JSON)[0], 200, "POST /cache/flush")
same([complete(s, ids(i)).seen for i in (14, 1)], [(0, "cold")] * 2, "forgets host memory and disk")
s.stop()
s = Server("--cache-dir", first)
wait_open(s)
same([complete(s, ids(i)).cached for i in (1, 14, 2, 3)], [WHOLE, WHOLE, 0, 0], "also for the next start")
s.stop()

# host memory alone
s = Server(*SMALL, "--host-cache-memory", "512M")
a = [complete(s, ids(i)) for i in range(16)]
m = s.metrics()
ok(m["prefix_cache_evicted_pages_total"] > 0 and m['cache_tier_items{tier="host"}'] > 0, "the device forgets",
   {k: v for k, v in m.items() if "cache" in k})
b = [complete(s, ids(i)) for i in range(16)]
same([x.seen for x in b], [(WHOLE, "none")] * 16, "what it forgot comes back from host memory")
same(([x.ids for x in a], [x.ids for x in b]), (right, right), "with the same bytes")
m = s.metrics()
ok(m['cache_tier_hits_total{tier="host"}'] > 0 and m['cache_tier_hits_total{tier="disk"}'] == 0 and
   m["cache_loads_total"] > 0, "and is counted", {k: v for k, v in m.items() if "tier" in k})
same(tiers(s)["disk"]["status"], "none", "there is no disk")
a = complete(s, ids(50, 100), 150)
same(a.ids, long_right, "a long answer")
for i in range(16):
    complete(s, ids(i))
b = complete(s, ids(50, 100) + a.ids)
ok(b.cached >= 192 and b.reason == "none", "comes back as well", b.header)
ok(s.wait_metric("kv_cache_pages_used", 0) is not None, "nothing leaks", s.metrics())
s.stop()
s = Server(*SMALL, "--host-cache-memory", "2M")
same([complete(s, ids(i % 16)).ids for i in range(32)], right + right, "little host memory: right answers")
until = time.time() + 10  # what is too much is freed by a thread of its own
while (held := s.metrics()['cache_tier_bytes{tier="host"}']) > 2 << 20 and time.time() < until:
    time.sleep(0.05)
ok(0 < held <= 2 << 20, "within its bound", held)
s.stop()

# while the files on disk are not known yet, because the weights are hashed first
if FAKE:
    slow = slow_model(place("model"))
    s = Server("--cache-dir", place("slow"), model=slow)
    a = complete(s, ids(1))
    same((a.seen, a.ids, tiers(s)["disk"]["status"]), ((0, "loading"), right[1], "opening"), "loading")
    same(s.metrics()['prefix_cache_misses_total{reason="loading"}'], 1, "is counted")
    s.stop("the server ends meanwhile")
    ok(" listed in " not in s.text(), "and does not wait for that: it has never listed the files", s.text()[-2000:])

# options that exclude each other, paths that are no directory
for name, args, want in (
        ("--record with --cache-dir", ("--cache-dir", place("none"), "--record", place("record")),
         "--record cannot be combined with --cache-dir or --host-cache-memory"),
        ("a file as --cache-dir", ("--cache-dir", os.path.join(MODEL, "config.json")), "config.json"),
        ("a --cache-dir without a parent", ("--cache-dir", place("no/such/parent")), "no/such/parent")):
    run = subprocess.run([TIGOND, "--model", MODEL, "--port", "0", *os.environ.get("TIGOND_ARGS", "").split(), *args],
                         capture_output=True, text=True, timeout=120)
    ok(run.returncode == 1 and want in run.stderr + run.stdout, f"{name} is refused", (run.returncode, run.stderr))
done()
