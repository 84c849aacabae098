"""Thirty-two requests at a time in cache memory for two: all end, each with the bytes that it gives alone."""
import json
import random

from harness import Server, done, ok, parallel, same

PAGE, LENGTH, SEATS = 64, 640, 32
# Of lexis in float32: 2 attention layers of 2 heads of 64, keys and values; 6 recurrent ones of 4 heads of 64 x 64 and
# 4 inputs of 512 channels.
PAGE_BYTES, SLOT_BYTES = 2 * 2 * 2 * 64 * PAGE * 4, 6 * (4 * 64 * 64 + 4 * 512) * 4
PAGES = 2 * LENGTH // PAGE
# A third goes to checkpoints (engine/cache_size.h).
MEMORY = (SEATS + 1) * SLOT_BYTES * 3 // 2 + PAGES * PAGE_BYTES * 3 // 2 + SLOT_BYTES


def request(i):
    r = random.Random(i)
    n = r.randrange(300, 400) if i % 4 == 0 else r.randrange(1, 62)
    return {"prompt": [r.randrange(300, 8000) for _ in range(n)], "temperature": i % 3 / 2, "seed": i, "logprobs": 3,
            "max_tokens": r.randrange(1, 20) if i % 4 == 1 else r.randrange(130, 200), "ignore_eos": True,
            "return_token_ids": True}


def ask(s, i, **more):
    """What an answer says of its request, as text."""
    status, body = s.post("/v1/completions", {**request(i), **more}, timeout=300)
    return json.dumps([status, body.get("choices", body)])


def idle(s):
    """What is in use by requests, when none is left."""
    ok(s.wait_metric("num_requests_running", 0) is not None and s.wait_metric("num_requests_waiting", 0) is not None,
       "nothing runs", s.metrics())
    m = s.metrics()
    totals = json.loads(s.get("/cache")[1])["totals"]
    same((m["kv_cache_pages_used"], totals["pages"] + totals["pool_free_pages"], totals["states"] + totals["pool_free_states"],
          totals["evictable_pages"], totals["evictable_states"]),
         (0, totals["pool_pages"], totals["pool_states"], totals["pages"], totals["states"]),
         "every page and slot is free or in the tree, and can be evicted")


s = Server("--cache-memory", str(MEMORY), "--max-num-seqs", str(SEATS), "--max-model-len", str(LENGTH),
           "--max-batched-tokens", "256")
totals = json.loads(s.get("/cache")[1])["totals"]
ok(PAGES <= totals["pool_pages"] <= PAGES + LENGTH // PAGE, "pages for two of the longest, not for three", totals)
alone = [ask(s, i, cache_prompt=False) for i in range(32)]
ok(all(a.startswith("[200,") for a in alone), "each alone", [a[:200] for a in alone])
same(s.metrics()["num_preemptions_total"], 0, "which fits")
before = s.metrics()
for name in ("all at once", "all at once, again"):
    crowd = parallel([lambda i=i: ask(s, i) for i in range(32)])
    wrong = [(i, got, want) for i, (got, want) in enumerate(zip(crowd, alone)) if got != want]
    ok(not wrong, f"{name}: the bytes of each alone", "\n".join(str(w)[:1500] for w in wrong))
    m = s.metrics()
    ok(m["num_preemptions_total"] > before["num_preemptions_total"], f"{name}: some were retracted", m)
    before = m
    idle(s)
print(f"# {m['num_preemptions_total']:.0f} retractions")
status, body = s.post("/cache/flush", {})
m = s.metrics()
same((status, m["cache_used_bytes"], m["kv_cache_pages_used"]), (200, 0, 0), "after a flush everything is free")
s.stop()
done()
