"""Copies of pages and states fail while a daemon serves, on a queue of their own (tests/copy_faults.h).

Every request gets the right answer or a clean error, the daemon ends with status 1 and one sentence, and a later one finds
nothing wrong in the cache's files. Of two workers the other one goes on.
"""
import atexit
import json
import os
import shutil
import tempfile

from harness import Server, decode_worker, done, ok, parallel, prefill_worker, same, token_ids, wait_for

PAGE, LENGTH, PROMPTS = 64, 400, 6
WHOLE = (LENGTH - 1) // PAGE * PAGE  # what can be found of a prompt
OWN = ("--copy-queue", "own")
APART = (*OWN, "--transfer-heartbeat", "10000")  # nobody counts as dead, however busy this machine is
SENTENCE = "the device is lost: copying pages or states between host and device: CL_"
work = tempfile.mkdtemp(prefix="tigon-faults-")
atexit.register(shutil.rmtree, work, ignore_errors=True)
switch = os.path.join(work, "fault")
FAULT = {"COPY_FAULT": switch}


def begin(fault):
    with open(switch + ".new", "w") as f:
        f.write(fault)
    os.rename(switch + ".new", switch)


def end():
    os.unlink(switch)


def ask(s, i, n=8):
    """(status, what was cached, token ids or the error's code); None: the daemon had ended."""
    try:
        status, body = s.post("/v1/completions", {"prompt": token_ids(i, LENGTH), "max_tokens": n, "temperature": 0,
                                                  "ignore_eos": True, "return_token_ids": True})
    except OSError:
        return None
    if status != 200:
        return status, 0, body["error"]["code"]
    return status, body["usage"]["prompt_tokens_details"]["cached_tokens"], body["choices"][0]["token_ids"]


def clean(answer, i):
    return answer is None or (answer[0], answer[2]) in ((503, "device_error"), (200, right[i]))


def ended(s, name):
    """The daemon has ended with status 1, and has said why once in the log, and in its last line."""
    status = s.process.wait(60)
    lines = s.text().splitlines()
    errors = [line for line in lines if " error: " in line]
    ok(status == 1 and len(errors) == 1 and f" error: {SENTENCE}" in errors[0] and lines[-1].startswith(f"tigond: {SENTENCE}"),
       f"{name}: status 1 and one sentence", "\n".join([f"status {status}", *lines[-30:]]))


def settled(s):
    """Nothing is on its way to the disk."""
    seen = []

    def still():
        t = json.loads(s.get("/cache?limit=1")[1])["totals"]["tiers"]["disk"]
        seen.append((t["items"], t["queued"]))
        return t["status"] != "opening" and len(seen) > 4 and len(set(seen[-4:])) == 1 and not t["queued"]

    return wait_for(still)


plain = Server("--prefix-cache", "off")
right = [ask(plain, i)[2] for i in range(PROMPTS)]
plain.stop("the server without a cache ends")
ok(len({tuple(r) for r in right}) > PROMPTS // 2, "answers differ", right)

for how in ("refused", "broken"):
    tiers = (*OWN, "--cache-dir", os.path.join(work, how), "--host-cache-memory", "64M")

    # Down: pages and states that are read for the store.
    s = Server(*tiers, env=FAULT)
    settled(s)
    same(ask(s, 0)[::2], (200, right[0]), "an answer whose pages go to the disk")
    settled(s)
    begin(f"read {how}")
    events = parallel([lambda: s.stream("/v1/completions", {"prompt": token_ids(9, 100), "max_tokens": 3000,
                                                            "ignore_eos": True, "min_tokens": 3000}),
                       *(lambda i=i: ask(s, i) for i in range(1, PROMPTS))])
    ended(s, f"a read is {how}")
    ok(not isinstance(events[0], list) or (events[0][-1] == "[DONE]" and events[0][-2]["error"]["code"] == "device_error"),
       "a stream ends with the error", events[0] if not isinstance(events[0], list) else events[0][-3:])
    ok(all(clean(a, i + 1) for i, a in enumerate(events[1:])), "other requests get the right answer or 503", events[1:])
    end()

    # Up: pages and states that are written from the store.
    s = Server(*tiers, env=FAULT)
    settled(s)
    begin(f"write {how}")
    answer = ask(s, 0)
    ended(s, f"a write is {how}")
    ok(answer is None or answer[::2] == (503, "device_error"), "the request whose pages were to be loaded gets 503", answer)
    end()

    s = Server(*tiers, env=FAULT)
    settled(s)
    same(ask(s, 0), (200, WHOLE, right[0]), "what was on disk before is found, and is right")
    got = [ask(s, i) for i in range(1, PROMPTS)]
    same([a[::2] for a in got], [(200, r) for r in right[1:]], "and so is all else")
    s.stop()

    # Between workers.
    p = prefill_worker(*APART, env=FAULT)
    d = decode_worker([p.endpoint], *APART)
    d.wait_metric("transfer_peers", 1)
    begin(f"read {how}")
    same(ask(d, 0), (200, 0, right[0]), f"a read of a prefill worker is {how}: the decode worker computes the prompt itself")
    ended(p, "the prefill worker")
    end()
    same(ask(d, 1)[::2], (200, right[1]), "and goes on")
    d.stop()
    p = prefill_worker(*APART)
    d = decode_worker([p.endpoint], *APART, env=FAULT)
    d.wait_metric("transfer_peers", 1)
    begin(f"write {how}")
    answer = ask(d, 0)
    ended(d, f"a write of a decode worker is {how}")
    ok(answer is None or answer[::2] == (503, "device_error"), "its request gets 503", answer)
    end()
    d = decode_worker([p.endpoint], *APART)
    d.wait_metric("transfer_peers", 1)
    same(ask(d, 0)[::2], (200, right[0]), "the prefill worker goes on, and what it keeps is right")
    d.stop()
    p.stop()

done()
