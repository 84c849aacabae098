"""Clients that do anything at any time: broken bodies, cut connections, slow readers, many at once.

The server must answer a sane request all along, end with everything free, and leave nothing behind
(its sanitizers, where it has them, look at that). The seed is printed; CHAOS_SEED repeats a run.
"""
import json
import os
import random
import socket
import struct
import sys
import time

from harness import Server, done, ok, parallel, raw_connection, raw_post, same

SECONDS = float(os.environ.get("CHAOS_SECONDS", "8"))
SEED = int(os.environ.get("CHAOS_SEED", time.time_ns() % 1000000))
print(f"# CHAOS_SEED={SEED}")
s = Server("--max-num-seqs", "16", "--max-queued-requests", "40", "--max-body", "200000",
           env={"FAKE_STEP_US": "300", "FAKE_PAGES": "130", "FAKE_SLOTS": "40"})
end = time.time() + SECONDS
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses",
         "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show",
         "/v1/responses/input_tokens", "/v1/chat/completions/input_tokens",
         "/v1/embeddings", "/v1/score", "/v1/rerank", "/v1/responses/x/cancel", "/tokenize", "/detokenize", "/tokenizer_info",
         "/openapi.json", "/apply-template", "/v1/models", "/metrics", "/x", "/cache",
         "/cache/flush")


def random_body(r):
    body = {"max_tokens": r.choice((1, 5, 60, 300)), "stream": r.random() < 0.6, "n": r.choice((1, 1, 2, 5)),
            "temperature": r.choice((0, 1)), "logprobs": r.choice((None, None, True, 3)),
            "stop": r.choice((None, "e", ["a", " the"])), "return_token_ids": r.random() < 0.3,
            "chat_template_kwargs": {"enable_thinking": r.random() < 0.3}}
    if r.random() < 0.3:
        body.update(priority=r.choice((-5, 0, 3)), cache_prompt=r.random() < 0.7, cache_salt=r.choice((None, "a", "b")))
    if r.random() < 0.2:
        body["stream_options"] = {"include_usage": True}
    if r.random() < 0.5:
        body["messages"] = [{"role": "user", "content": r.choice(("", f"{r.random()} ")) + "word " * r.choice((1, 50, 2000))}]
    elif r.random() < 0.4:
        body["input"] = r.choice(("x", "word " * 2000, [{"role": "user", "content": "a"}, {"type": "reasoning", "summary": []}]))
        body.update(n=1, store=r.random() < 0.5)
        body.pop("return_token_ids")
    else:
        body["prompt"] = r.choice(("violin", ["a", "b", "c"], [5, 6, 7], "long " * 3000))
    if r.random() < 0.7:
        body["model"] = "lexis"  # which /api/ needs
    if r.random() < 0.1:
        body["tokens"] = [1, 2, 3]
    if r.random() < 0.2:
        body.update(input=r.choice(("x", ["a", "b"], "word " * 2000, [[1, 2], [3]])), pooling=r.choice(("last", "mean")))
        body.update(text_1="word " * r.choice((1, 2000)), text_2=["a", "b"], query="a", documents=["b", "word " * r.choice((1, 2000))])
    if r.random() < 0.1:
        body[r.choice(list(body))] = r.choice((None, -1, "x", [], {}, 1e9))
    return json.dumps(body).encode()


def wild(seed):
    """One client: connection after connection until the time is over. Counts the results."""
    r = random.Random(seed)
    statuses = {}

    def run():
        while time.time() < end:
            c = raw_connection(s.port)
            c.settimeout(20)
            try:
                for _ in range(r.choice((1, 1, 3))):
                    data = raw_post(r.choice(PATHS), random_body(r))
                    if r.random() < 0.15:  # cut, or with something broken in it
                        at = r.randrange(len(data))
                        data = data[:at] if r.random() < 0.5 else data[:at] + bytes([r.randrange(256)]) + data[at + 1:]
                    for i in range(0, len(data), 5000):
                        c.sendall(data[i:i + 5000])
                        if r.random() < 0.02:
                            time.sleep(0.01)
                    if r.random() < 0.35:  # leave without an answer, or after a piece of it
                        if r.random() < 0.5:
                            c.settimeout(0.05)
                            c.recv(r.choice((1, 200, 5000)))
                        break
                    c.settimeout(1.5)
                    answer = c.recv(100000)
                    if answer.startswith(b"HTTP/1.1 "):
                        statuses[int(answer[9:12])] = statuses.get(int(answer[9:12]), 0) + 1
                    while answer and r.random() < 0.9 and not answer.endswith((b"0\r\n\r\n", b"}")):
                        answer = c.recv(100000)
            except OSError:
                pass
            if r.random() < 0.3:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
        return statuses
    return run


def sane():
    """Whoever asks properly is answered: at once or, when the queue is full, with 429."""
    good = busy = 0
    while time.time() < end:
        status, a = s.chat("define violin", max_tokens=3)
        good += status == 200 and a["usage"]["completion_tokens"] == 3
        busy += status == 429
        if status not in (200, 429):
            return status, a
        time.sleep(0.02)
    return good, busy


def looking():
    """The cache can be looked at all along, and is a tree each time."""
    looks = 0
    while time.time() < end:
        tree = json.loads(s.get("/cache?tokens=1")[1])
        depth = {0: 0}
        for n in tree["nodes"]:
            depth[n["id"]] = depth[n["parent"]] + n["tokens"]
            if n["depth"] != depth[n["id"]] or n["tokens"] != 64 * n["pages"] or n["tokens"] != len(n["token_ids"]):
                return n
        if not tree["truncated"] and tree["totals"]["tokens"] != sum(n["tokens"] for n in tree["nodes"]):
            return tree["totals"]
        looks += 1
        time.sleep(0.01)
    return looks


*crowd, answered, looks = parallel([wild(SEED + i) for i in range(24)] + [sane, looking])
ok(isinstance(looks, int) and looks > 0, f"/cache was a tree {looks} times", looks)
statuses = {}
for counts in crowd:
    if not isinstance(counts, dict):
        ok(False, "a client of the test failed", counts)
        continue
    for k, v in counts.items():
        statuses[k] = statuses.get(k, 0) + v
print(f"# statuses {dict(sorted(statuses.items()))}, sane client (good, busy) {answered}")
ok(isinstance(answered, tuple) and isinstance(answered[0], int) and answered[0] > 0 and isinstance(answered[1], int),
   "a sane client is answered all along", answered)
ok(statuses.get(200) and statuses.get(400) and not statuses.get(500), "nobody sees a 500", statuses)
ok(s.wait_metric("num_requests_running", 0) is not None and s.wait_metric("num_requests_waiting", 0) is not None,
   "all are through")
ok(s.wait_metric("kv_cache_pages_used", 0) is not None, "no page is left in use", s.metrics())
m, totals = s.metrics(), json.loads(s.get("/cache")[1])["totals"]
same((totals["pool_free_pages"] + totals["pages"], totals["pool_free_states"] + totals["states"]),
     (totals["pool_pages"], totals["pool_states"]), "what the tree does not hold is free")
print(f"# {m['prefix_cache_hits_total']:.0f} of {m['prefix_cache_queries_total']:.0f} tokens found, "
      f"{m['num_preemptions_total']:.0f} retractions, {m['prefix_cache_evicted_pages_total']:.0f} pages evicted")
same(s.chat("define violin")[1]["choices"][0]["finish_reason"], "stop", "it still answers")
crowd = [raw_connection(s.port) for _ in range(20)]
for c in crowd:
    c.sendall(raw_post(PATHS[0], {"messages": [{"role": "user", "content": "x"}], "stream": True, "ignore_eos": True}))
s.stop("SIGTERM with twenty streams whose clients do not read: status 0")
done()
