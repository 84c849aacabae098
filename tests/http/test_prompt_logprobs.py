"""Log-probabilities of prompts: completions with echo and logprobs, and vLLM's prompt_logprobs."""
import concurrent.futures
import json
import os

from harness import Server, TIGOND, done, goldens, ok, parallel, same, token_ids

FAKE = "fake" in os.path.basename(TIGOND)
PAGE = 64
COMPLETE = "/v1/completions"
BOUND = 1e-4 if FAKE else 1e-3  # generated tokens are computed in another way than prompts
TEXTS = ["define violin", "a", "<|im_start|>user\ndefine bow<|im_end|>\n", "naïve café – 日本語 🎻🎻 end", "\n\n x  y\t"]


def ask(s, prompt, **more):
    """(choices, usage, X-Tigon-Cache)"""
    status, headers, body = s.request("POST", COMPLETE, json.dumps({"prompt": prompt, "temperature": 0, **more}),
                                      {"Content-Type": "application/json"})
    if status != 200:
        raise RuntimeError(f"{status}: {body}")
    body = json.loads(body)
    return body["choices"], body["usage"], headers["X-Tigon-Cache"]


def echo(s, prompt, max_tokens=0, logprobs=1, **more):
    return ask(s, prompt, echo=True, logprobs=logprobs, max_tokens=max_tokens, **more)


def well_formed(choice, top):
    """What is wrong with the four lists, or None."""
    text, l = choice["text"], choice["logprobs"]
    n = len(l["tokens"])
    if [len(v) for v in l.values()] != [n] * 4:
        return "lengths", {k: len(v) for k, v in l.items()}
    if l["token_logprobs"][0] is not None or l["top_logprobs"][0] is not None or None in l["token_logprobs"][1:]:
        return "null", l
    if "".join(l["tokens"]) != text:
        return "tokens", (text, l["tokens"])
    for i, at in enumerate(l["text_offset"]):
        if text[at:at + len(l["tokens"][i])] != l["tokens"][i]:
            return "offset", (i, at, text, l["tokens"])
    for i in range(1, n):
        best = l["top_logprobs"][i]
        if best.get(l["tokens"][i]) != l["token_logprobs"][i] and len(best) == top + 1:
            return "the token is among the best", (i, l["tokens"][i], best)
        if not 1 <= len(best) <= top + 1 or max(best.values()) > 0:
            return "the best", (i, best)
    return None


s = Server()

# the form
for text in TEXTS:
    for max_tokens in (0, 1, 3):
        (choice,), usage, _ = echo(s, text, max_tokens, 2, ignore_eos=True)
        n = len(choice["logprobs"]["tokens"])
        wrong = well_formed(choice, 2)
        ok(not wrong and choice["text"].startswith(text) and usage["completion_tokens"] == max_tokens and
           n == usage["prompt_tokens"] + max_tokens and choice["finish_reason"] == "length",
           f"{text!r} and {max_tokens} tokens", (wrong, choice, usage))
        if not max_tokens:
            same(choice["text"], text, "nothing but the prompt")
(choice,), usage, _ = echo(s, [5, 1, 300, 2, 301], 0)
wrong = well_formed(choice, 1)
ok(not wrong and choice["logprobs"]["tokens"][1] == choice["logprobs"]["tokens"][3] == "" and
   "<|" not in choice["text"], "ids: special tokens are no text, but are there", (wrong, choice))
(choice,), usage, _ = echo(s, [400], 0)
same((choice["logprobs"]["token_logprobs"], usage["prompt_tokens"], usage["completion_tokens"]), ([None], 1, 0), "one token")
(choice,), usage, _ = ask(s, "define violin", echo=True, max_tokens=0)
same((choice["text"], choice["logprobs"], usage["completion_tokens"], choice["finish_reason"]),
     ("define violin", None, 0, "length"), "max_tokens 0 with an echo alone")
(choice,), usage, _ = ask(s, "define violin", max_tokens=0, logprobs=1)
same((choice["text"], choice["logprobs"]["tokens"], usage["completion_tokens"], choice["finish_reason"]), ("", [], 0, "length"), "without one: an empty text")
choices, usage, _ = ask(s, ["a", "b"], max_tokens=0, n=3, temperature=1)
same([(c["index"], c["text"], c["finish_reason"]) for c in choices], [(i, "", "length") for i in range(6)], "of each choice")
chunks = s.stream("/v1/completions", {"prompt": "define violin", "max_tokens": 0})
same(([c["text"] for e in chunks[:-1] for c in e["choices"]], chunks[-2]["choices"][0]["finish_reason"]), ([""] * (len(chunks) - 1), "length"), "in a stream")
choices, usage, _ = echo(s, TEXTS, 2, 1, n=2, temperature=1, seed=3, ignore_eos=True)
wrong = [well_formed(c, 1) for c in choices]
ok(not any(wrong) and [c["index"] for c in choices] == list(range(10)) and
   all(c["text"].startswith(TEXTS[i // 2]) for i, c in enumerate(choices)), "five prompts, two choices each", wrong)

# streams add up to the whole
for max_tokens in (0, 3):
    body = {"prompt": TEXTS[3], "echo": True, "logprobs": 2, "max_tokens": max_tokens, "temperature": 0, "n": 2}
    (whole, _), _, _ = ask(s, **body)
    for index in (0, 1):
        events = [e["choices"][0] for e in s.stream(COMPLETE, body) if e != "[DONE]"]
        events = [e for e in events if e["index"] == index]
        lists = {k: [v for e in events if e["logprobs"] for v in e["logprobs"][k]] for k in whole["logprobs"]}
        same(("".join(e["text"] for e in events), lists, events[-1]["finish_reason"], events[0]["text"]),
             (whole["text"], whole["logprobs"], whole["finish_reason"], TEXTS[3]),
             f"a stream of {max_tokens} tokens says the same, the prompt first")

# generated tokens are as likely as in a prompt
for seed, n in ((1, 20), (2, 64), (3, 150), (4, 300)):
    prompt = token_ids(seed, n)
    (drawn,), _, _ = echo(s, prompt, 40, 3, ignore_eos=True, return_token_ids=True)
    (given,), _, _ = echo(s, prompt + drawn["token_ids"], 0, 3)
    want, got = drawn["logprobs"]["token_logprobs"], given["logprobs"]["token_logprobs"]
    same((got[:n], given["logprobs"]["tokens"]), (want[:n], drawn["logprobs"]["tokens"]), f"{n} tokens say the same again")
    want, got = want[n:], got[n:]
    worst = max(abs(a - b) for a, b in zip(want, got))
    ok(len(got) == 40 and worst <= BOUND, f"40 tokens behind {n}: the log-probabilities that they were drawn with", worst)
if not FAKE and "float32" in os.environ.get("TIGOND_ARGS", ""):
    worst = 0
    for case in goldens():
        (c,), _, _ = echo(s, case["prompt_ids"] + case["output_ids"], 0, 5)
        got = c["logprobs"]["token_logprobs"][len(case["prompt_ids"]):]
        for step, one, token in zip(case["steps"], got, case["output_ids"]):
            if token in step["ids"]:
                worst = max(worst, abs(one - step["logprobs"][step["ids"].index(token)]))
    ok(worst <= 2e-4, "and those of the reference", worst)

# as lm-eval reads it: the last token is the generated one, whichever it is
case = next(c for c in goldens() if c["finish_reason"] == "stop")
prompt = case["prompt_ids"] + case["output_ids"][:-1]
(c,), usage, _ = echo(s, prompt, 1)
same((c["finish_reason"], c["logprobs"]["tokens"][-1], usage["completion_tokens"]), ("stop", "", 1), "an end token is drawn")
same(len(c["logprobs"]["token_logprobs"]), len(prompt) + 1, "and is there, to be cut off")
start = len(case["prompt_ids"])
scores = c["logprobs"]["token_logprobs"][start:-1]
greedy = all(one == max(best.values()) for one, best in zip(scores, c["logprobs"]["top_logprobs"][start:-1]))
ok(greedy and len(scores) == len(case["output_ids"]) - 1, "the greedy answer is recognised", scores)

# vLLM's form
for chat in (False, True):
    body = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 2}
    if chat:
        status, answer = s.post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": "define bow"}]})
        got = answer["prompt_logprobs"]
    else:
        status, answer = s.post(COMPLETE, {**body, "prompt": token_ids(5, 70), "echo": True, "logprobs": 0})
        got = answer["choices"][0]["prompt_logprobs"]
        echoed = answer["choices"][0]["logprobs"]["token_logprobs"]
    ok(status == 200 and len(got) == answer["usage"]["prompt_tokens"] and got[0] is None, "prompt_logprobs", answer)
    bad = []
    for i, entry in enumerate(got[1:], 1):
        token = next(iter(entry))
        ranks = [v["rank"] for v in entry.values()]
        values = [v["logprob"] for v in sorted(entry.values(), key=lambda v: v["rank"])]
        if sorted(ranks)[:2] != [1, 2] or len(set(ranks)) != len(ranks) or values != sorted(values, reverse=True) or \
                len(entry) != (2 if entry[token]["rank"] <= 2 else 3) or \
                (not chat and (int(token) != token_ids(5, 70)[i] or entry[token]["logprob"] != echoed[i])):
            bad.append((i, entry))
    ok(not bad, "each token first, then the two best, with ranks", bad[:3])
for more, param in (({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"), ({"prompt_logprobs": 21}, "prompt_logprobs"),
                    ({"max_tokens": 0, "min_tokens": 1}, "min_tokens")):
    status, answer = s.complete("a", **more)
    same((status, answer["error"]["param"]), (400, param), f"{more} is refused")
status, answer = s.complete([token_ids(i, 2000) for i in range(35)], n=8, echo=True, logprobs=0, max_tokens=0)
ok(status == 400 and answer["error"]["param"] == "prompt" and "70000" in answer["error"]["message"], "more than fits", answer)

# the cache: every token has to be computed, but others find it
prompt = token_ids(77, 300)
m = s.metrics()
a = [echo(s, prompt, 2) for _ in range(2)]
same([h for _, _, h in a], ["cached=0; reason=logprobs"] * 2, "nothing is taken from the cache, the second time either")
same(a[0][0], a[1][0], "to say the same")
same((a[1][1]["prompt_tokens_details"]["cached_tokens"],
      s.metrics()['prefix_cache_misses_total{reason="logprobs"}'] - m['prefix_cache_misses_total{reason="logprobs"}']), (0, 2),
     "and it is counted")
choices, usage, header = ask(s, prompt, max_tokens=2, logprobs=1)
same((header, usage["prompt_tokens_details"]["cached_tokens"]), ("cached=256; reason=none", 256), "what it leaves is found")
same(choices[0]["text"], a[0][0][0]["text"][len(a[0][0][0]["text"]) - len(choices[0]["text"]):], "and goes on the same")
same([h for _, _, h in (echo(s, prompt, 2), echo(s, prompt, 2, cache_prompt=False))],
     ["cached=0; reason=logprobs", "cached=0; reason=disabled"], "behind a hit as well; without the cache it says so")

# whichever requests share the steps, and however a prompt is cut
prompts = [token_ids(100 + i, n) for i, n in enumerate((1, 2, 63, 64, 65, 128, 200, 333, 700))]
alone = [echo(s, p, 1, 3)[0] for p in prompts]
few = Server("--max-batched-tokens", "64", "--max-num-seqs", "3")
for name, server in (("one after the other, in windows of 64", few), ("beside each other", s), ("both", few)):
    if name.startswith("one"):
        got = [echo(server, p, 1, 3)[0] for p in prompts]
    else:
        got = parallel([lambda p=p: echo(server, p, 1, 3)[0] for p in prompts * 2])
    ok(all(g == alone[i % len(prompts)] for i, g in enumerate(got)), f"every digit is the same {name}",
       [i for i, g in enumerate(got) if g != alone[i % len(prompts)]])
ok(few.wait_metric("kv_cache_pages_used", 0) is not None, "nothing leaks", few.metrics())
few.stop()

# clients that leave
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    def leave(i):
        c = s.connect()
        c.request("POST", COMPLETE, json.dumps({"prompt": token_ids(i, 900), "echo": True, "logprobs": 5, "max_tokens": 50,
                                                "stream": bool(i % 2)}), {"Content-Type": "application/json"})
        c.close()
    list(pool.map(leave, range(24)))
ok(s.wait_metric("num_requests_running", 0) is not None and s.wait_metric("kv_cache_pages_used", 0) is not None,
   "clients that leave leave nothing", s.metrics())
same(echo(s, prompts[6], 1, 3)[0], alone[6], "and others are answered")
s.stop()

# too little room: a request that comes back behind its prompt is an ordinary one
if FAKE:
    s = Server("--max-num-seqs", "16", env={"FAKE_PAGES": "24", "FAKE_SLOTS": "40", "FAKE_STEP_US": "500"})
    body = {"max_tokens": 600, "logprobs": 1, "ignore_eos": True}
    alone = [echo(s, token_ids(i, 200), **body)[0] for i in range(3)]
    crowd = parallel([lambda i=i: echo(s, token_ids(i % 3, 200), **body)[0] for i in range(12)])
    ok(s.metrics()["num_preemptions_total"] > 0, "a crowd without the room: some are retracted")
    ok(all(got == alone[i % 3] for i, got in enumerate(crowd)), "retracted requests say it once",
       [(i, got) for i, got in enumerate(crowd) if got != alone[i % 3]])
    s.stop()
done()
