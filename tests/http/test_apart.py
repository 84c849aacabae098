"""Prefill and decode in processes of their own give the bytes and log-probabilities of one process.

    test_apart.py TIGOND [COUNT [OPTION ...]]

One prefill and one decode worker, then two and two, beside a unified one: all golden prompts, and COUNT random requests at
the same time; the second turn of a chat hits on both sides.
"""
import json
import os
import random
import sys
import tempfile
import time

from harness import Server, comparable, decode_worker, done, goldens, ok, parallel, prefill_worker, same

COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 64
MORE = sys.argv[3:]
BEAT = ("--transfer-heartbeat", "10000")  # nobody counts as dead, however busy this machine is


def pair(n, beat=BEAT):
    """n prefill workers and as many decode workers that know them all."""
    prefills = [prefill_worker(*beat, *MORE) for _ in range(n)]
    return prefills, [decode_among(prefills, beat) for _ in range(n)]


def decode_among(prefills, beat=BEAT):
    s = decode_worker([p.endpoint for p in prefills], *beat, *MORE)
    if s.wait_metric("transfer_peers", len(prefills), 60) is None:
        raise RuntimeError("the workers do not meet:\n" + s.text() + prefills[0].text())
    return s


random.seed(11)
words = [w for c in goldens() for w in c["output"].split()]


def request(i):
    text = " ".join(random.choice(words) for _ in range(random.choice((3, 20, 100, 300, 800))))
    body = {"max_tokens": random.choice((1, 7, 40)), "temperature": random.choice((0, 0, 0.7, 1.3)), "seed": i,
            "n": random.choice((1, 1, 1, 2)), "return_token_ids": True}
    if i % 3 == 0:
        return "/v1/completions", {**body, "prompt": text, "logprobs": 3}
    if i % 3 == 1:
        body.update(logprobs=True, top_logprobs=4, presence_penalty=random.choice((0, 0.5)),
                    repetition_penalty=random.choice((1, 1.1)))
    if i % 7 == 0 and body["max_tokens"] > 3:
        body.update(min_tokens=3)
    # The first token, which the prefill worker draws, is one of the constraint, too.
    if i % 5 == 0:
        body.update(random.choice(({"response_format": {"type": "json_object"}}, {"guided_regex": "[a-c]{1,4} [0-9]{9}"},
                                   {"guided_choice": ["yes", "no", "never"]}, {"allowed_token_ids": [*range(100, 140)]},
                                   {"logit_bias": {"300": 7, "301": 100, "302": -100}}, {"bad_words": [" the", "bow"]})))
    return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]}


golden_requests = [("/v1/completions", {"prompt": c["prompt_ids"], "max_tokens": len(c["output_ids"]), "temperature": 0,
                                        "logprobs": 5, "return_token_ids": True}) for c in goldens()]
requests = [request(i) for i in range(COUNT)]


def answers(servers, asked):
    return [comparable(a) for a in parallel([lambda i=i, r=r: servers[i % len(servers)].post(*r, timeout=600)
                                        for i, r in enumerate(asked)])]


unified = Server(*MORE)
want_golden = [comparable(unified.post(*r, timeout=600)) for r in golden_requests]
want = answers([unified], requests)
ok(all(a[0] == 200 for a in want + want_golden), "one process answers", [a for a in want + want_golden if a[0] != 200][:3])


def settled(read, good):
    """What is read, as soon as it is good, and after ten seconds as it is: counters are told a moment after the answer."""
    until = time.time() + 10
    while not good(value := read()) and time.time() < until:
        time.sleep(0.01)
    return value


for n in (1, 2):
    prefills, decodes = pair(n)
    got = [comparable(decodes[i % n].post(*r, timeout=600)) for i, r in enumerate(golden_requests)]
    ok(got == want_golden, f"{2 * n} processes: {len(got)} golden prompts, the same bytes and log-probabilities",
       [(i, g, w) for i, (g, w) in enumerate(zip(got, want_golden)) if g != w][:1])
    got = answers(decodes, requests)
    ok(got == want, f"{2 * n} processes: {COUNT} requests at the same time",
       [(requests[i], g, w) for i, (g, w) in enumerate(zip(got, want)) if g != w][:1])
    counts = [d.metrics() for d in decodes]
    came = sum(m["transfer_received_total"] for m in counts)
    ok(came == len(golden_requests) + COUNT and not sum(m["transfer_failed_total"] for m in counts),
       "every prompt came from a prefill worker",
       [{k: v for k, v in m.items() if "transfer" in k} for m in counts])
    sent = settled(lambda: [p.metrics() for p in prefills], lambda sent: sum(m["transfer_sent_total"] for m in sent) >= came)
    same(sum(m["transfer_sent_total"] for m in sent), came, "which count them as well")
    same(sum(m["transfer_sent_bytes_total"] for m in sent), sum(m["transfer_received_bytes_total"] for m in counts),
         "to the byte")
    ok(all(m["transfer_sent_total"] for m in sent), "all of them worked", sent)

    status, body = prefills[0].chat("hello")
    ok(status == 404 and "decode workers" in body["error"]["message"], "a prefill worker has no API", body)
    chat = [{"role": "user", "content": " ".join(words[:400])}]
    first = decodes[0].post("/v1/chat/completions", {"messages": chat, "max_tokens": 30, "temperature": 0})[1]
    chat += [first["choices"][0]["message"], {"role": "user", "content": "And what else?"}]
    before = [p.metrics()["prefix_cache_hits_total"] for p in prefills]
    second = decodes[0].post("/v1/chat/completions", {"messages": chat, "max_tokens": 30, "temperature": 0})[1]
    hit = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    ok(hit >= 384, "the second turn of a chat hits in the decode worker", second["usage"])
    hits = settled(lambda: [p.metrics()["prefix_cache_hits_total"] - b for p, b in zip(prefills, before)],
                   lambda hits: max(hits) >= 384)
    ok(max(hits) >= 384, "and in the prefill worker that had the first", hits)
    ok(all(s.wait_metric("kv_cache_pages_used", 0) is not None and s.wait_metric("num_requests_running", 0) is not None
           for s in decodes + prefills), "pools are back where they were", [s.metrics() for s in decodes + prefills])
    for s in decodes + prefills:
        s.stop()
unified.stop()

# ---- a prefill worker whose cache was flushed ----

each_second = ("--transfer-heartbeat", "1000")
prefills = [prefill_worker(*each_second, *MORE) for _ in range(2)]
d = decode_among(prefills, each_second)


def who_prefills():
    """Which of them computes a prompt of which the decode worker has nothing."""
    same(d.request("POST", "/cache/flush")[0], 200, "a decode worker is flushed")
    before = [p.metrics()["transfer_sent_total"] for p in prefills]
    d.complete(prompt=" ".join(words[:500]), max_tokens=1)
    for p, b in zip(prefills, before):
        p.wait_metric("num_requests_running", 0)
    return next((i for i, p in enumerate(prefills) if p.wait_metric("transfer_sent_total", before[i] + 1, 1) is not None), None)


who = who_prefills()
same([who_prefills() for _ in range(2)], [who] * 2, "a prompt goes where it was cached")
same(prefills[who].request("POST", "/cache/flush")[0], 200, "which is flushed")
time.sleep(3)
same(who_prefills(), 1 - who, "and it does not, once nothing is cached there any more")

# ---- workers that leave in order ----

prefills[0].stop()
until = time.time() + 5
while "is shutting down" not in d.text() and time.time() < until:
    time.sleep(0.01)
before = prefills[1].metrics()["transfer_sent_total"]
d.complete(prompt=" ".join(words[500:900]), max_tokens=1)
ok(prefills[1].wait_metric("transfer_sent_total", before + 1, 5) is not None, "the other one is asked at once")
time.sleep(3)
said = d.text()
ok(said.count("is shutting down") == 1 and "broke" not in said and "cannot be reached" not in said,
   "that a prefill worker leaves is one line of the log", said[-2000:])
same(d.metrics()["transfer_failed_total"], 0, "and no failure")
d.stop()
until = time.time() + 5
while "has left" not in prefills[1].text() and time.time() < until:
    time.sleep(0.01)
ok(prefills[1].text().count("a decode worker at 127.0.0.1 has left") == 1 and "does not answer" not in prefills[1].text(),
   "so is that a decode worker does", prefills[1].text()[-2000:])
prefills[1].stop()

# ---- traces ----

folder = tempfile.TemporaryDirectory(prefix="tigon-apart-")
p = prefill_worker(*BEAT, "--transfer-trace", f"{folder.name}/prefill", *MORE)
d = decode_among([p], (*BEAT, "--transfer-trace", f"{folder.name}/decode"))
for i in range(3):
    d.complete(prompt=" ".join(words[100 * i:100 * i + 300]), max_tokens=1)
p.wait_metric("transfer_sent_total", 3)
d.stop()
p.stop()


def events(name):
    """The deliveries of a trace, each with its events in their order."""
    found = {}
    with open(f"{folder.name}/{name}") as f:
        for line in f:
            _, event, delivery, *_ = line.split("\t")
            found.setdefault(delivery, []).append(event)
    return found


sent, came = events("prefill"), events("decode")
ok(len(sent) == 3 and set(sent) == set(came), "both sides trace the same deliveries", (sent, came))
ok(all(e[0] == "asked" and e.count("asked") == 1 and e.count("computed") == e.count("sent") > 0 for e in sent.values()),
   "the prefill worker is asked, and sends what it computed", sent)
ok(all(came[k] == ["received"] * sent[k].count("sent") + ["complete"] for k in came), "the decode worker receives that, and has all",
   came)

# ---- workers whose KV caches have other numbers ----

p = prefill_worker(*BEAT, *MORE)
other = "auto" if "int8" in (*MORE, *os.environ.get("TIGOND_ARGS", "").split()) else "int8"
d = decode_worker([p.endpoint], *BEAT, *MORE, "--kv-dtype", other)
until = time.time() + 20
while "--kv-dtype" not in d.text() and time.time() < until:
    time.sleep(0.05)
ok("--kv-dtype" in d.text() and d.metrics()["transfer_peers"] == 0, "workers of different --kv-dtype do not meet, and say why", d.text())
same(d.post("/v1/completions", {"prompt": "The", "max_tokens": 3})[0], 200, "the decode worker computes its prompts itself")
d.stop()
p.stop()

# ---- heartbeats that are not the same ----

often, seldom = ("--transfer-heartbeat", "600"), ("--transfer-heartbeat", "6000")
pairs = []
for beats in ((often, seldom), (seldom, often)):
    p = prefill_worker(*beats[0], *MORE)
    pairs.append((p, decode_among([p], beats[1])))
until = time.time() + 8
peers = set()
while time.time() < until:
    peers |= {s.metrics()["transfer_peers"] for pair in pairs for s in pair}
    time.sleep(0.05)
for (p, d), name in zip(pairs, ("decode", "prefill")):
    ok(p.text().count("a decode worker at 127.0.0.1 has come") == 1 and "does not answer" not in p.text() + d.text() and "broke" not in d.text(),
       f"a pair whose {name} worker says something seldom stays together", p.text() + d.text())
    d.stop()
    p.stop()
same(peers, {1}, "all the time")
done()
