"""32 streams of different lengths at the same time give exactly the bytes that each gives alone.

Prompts of 20 to 3000 tokens with a prefill budget of 256, so that many are cut; greedy and drawn,
chat and completions, one and several choices. Ids and times differ, all else must not.
"""
import json
import random
import sys

from harness import Server, done, goldens, ok, parallel, same

COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 32
s = Server("--max-batched-tokens", "256", *sys.argv[3:])
random.seed(5)
words = [w for c in goldens() for w in c["output"].split()]


def request(i):
    text = " ".join(random.choice(words) for _ in range(random.choice((3, 20, 100, 300, 800))))
    body = {"max_tokens": random.choice((1, 7, 40, 90)), "temperature": random.choice((0, 0, 0.7, 1.3)), "seed": i,
            "n": random.choice((1, 1, 1, 2)), "return_token_ids": True, "stream_options": {"include_usage": True}}
    if i % 3 == 0:
        return "/v1/completions", {**body, "prompt": text, "logprobs": 3}
    if i % 3 == 1:
        body.update(logprobs=True, top_logprobs=4, presence_penalty=random.choice((0, 0.5)))
    if i % 5 == 0:
        body.update(stop=["e", "\n"])
    return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}],
                                    "chat_template_kwargs": {"enable_thinking": i % 4 == 0}}


def without_cached(usage):
    """The number of cached tokens depends on earlier requests; nothing else may."""
    return usage and {k: v for k, v in usage.items() if k != "prompt_tokens_details"}


def answer(i):
    """What each choice sent, without ids and times; the order between choices is free."""
    choices, usage = {}, None
    for e in s.stream(*requests[i], timeout=600):
        if e == "[DONE]":
            continue
        usage = e["usage"] or usage
        for c in e["choices"]:
            choices.setdefault(c["index"], []).append(json.dumps(c, sort_keys=True))
    return choices, without_cached(usage)


requests = [request(i) for i in range(COUNT)]
alone = [answer(i) for i in range(COUNT)]
ok(all(len(a[0]) == r[1]["n"] and a[1] for a, r in zip(alone, requests)), f"{COUNT} streams, one after the other")
for turn in range(2):
    order = list(range(COUNT))
    random.shuffle(order)
    together = dict(zip(order, parallel([lambda i=i: answer(i) for i in order])))
    for i in range(COUNT):
        if together[i] != alone[i]:
            same(together[i], alone[i], f"stream {i} of turn {turn}: {str(requests[i])[:300]}")
    ok(all(together[i] == alone[i] for i in range(COUNT)), f"{COUNT} at the same time, turn {turn + 1}")


def whole(i):
    path, body = requests[i]
    return s.post(path, {k: v for k, v in body.items() if k != "stream_options"}, timeout=600)


bodies = parallel([lambda i=i: whole(i) for i in range(COUNT)])


def text_of(chunks, kind):
    pieces = [json.loads(c) for c in chunks]
    return "".join(p.get("text", p.get("delta", {}).get(kind)) or "" for p in pieces)


good = 0
for i, (status, b) in enumerate(bodies):
    for c in b["choices"]:
        m = c.get("message") or {"content": c.get("text")}
        chunks = alone[i][0][c["index"]]
        good += ((m["content"] or "", m.get("reasoning_content") or "")
                 == (text_of(chunks, "content"), text_of(chunks, "reasoning_content") if "message" in c else "")
                 and without_cached(b["usage"]) == alone[i][1]
                 and [t for x in chunks for t in json.loads(x).get("token_ids") or []] == c["token_ids"])
same(good, sum(len(a[0]) for a in alone), "whole answers have what the streams add up to")
ok(s.wait_metric("num_requests_running", 0) is not None and s.metrics()["kv_cache_pages_used"] == 0, "all is free")
s.stop()
done()
