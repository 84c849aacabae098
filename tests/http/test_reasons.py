"""Why a prompt was not found: every reason that X-Tigon-Cache can give, forced once, and counted under its name.

Runs with the pseudo model, whose pools are as small as a case wants them. The names are those of /metrics, which
has a line for each of them but "none": a reason that no case here forces fails the test.
"""
import atexit
import json
import os
import shutil
import tempfile

from harness import MODEL, Server, done, ok, same, slow_model, token_ids

work = tempfile.mkdtemp(prefix="tigon-reasons-")
atexit.register(shutil.rmtree, work, ignore_errors=True)


LONG = token_ids(1, 900)
TURN = LONG[:500] + token_ids(2, 400)
# reason, requests before, the request that is not found whole, options and environment of the server
CASES = [
    ("none", [{"prompt": LONG}], {"prompt": LONG}, (), {}),
    ("cold", [{"prompt": LONG}], {"prompt": token_ids(3, 300)}, (), {}),
    ("short", [], {"prompt": token_ids(4, 64)}, (), {}),
    ("salt", [{"prompt": LONG}, {"prompt": LONG, "cache_salt": "x"}], {"prompt": LONG, "cache_salt": "y"}, (), {}),
    ("disabled", [{"prompt": LONG}], {"prompt": LONG, "cache_prompt": False}, (), {}),
    ("disabled", [{"prompt": LONG}], {"prompt": LONG}, ("--prefix-cache", "off"), {}),
    ("logprobs", [{"prompt": LONG}], {"prompt": LONG, "echo": True, "logprobs": 1}, (), {}),
    ("logprobs", [{"prompt": LONG}], {"prompt": LONG, "prompt_logprobs": 0}, (), {}),
    ("mean-pooling", [{"prompt": LONG}], {"input": LONG, "pooling": "mean"}, (), {}),
    ("no-checkpoint", [{"prompt": LONG}], {"prompt": TURN}, (), {}),
    ("evicted-page", [{"prompt": token_ids(i, 1000)} for i in (11, 12, 13, 14)], {"prompt": token_ids(11, 1000)},
     ("--max-model-len", "2048", "--max-num-seqs", "4"), {"FAKE_PAGES": "40", "FAKE_SLOTS": "64"}),
    # In short supply, states inside a prompt go first: the next one to leave it there finds only pages.
    ("evicted-state", [{"prompt": token_ids(i, 1000)} for i in (21, 22, 23, 24)], {"prompt": token_ids(21, 600) + token_ids(25, 200)},
     ("--max-model-len", "2048", "--max-num-seqs", "2", "--max-batched-tokens", "256"),
     {"FAKE_PAGES": "400", "FAKE_SLOTS": "8"}),
    # The files on disk are not known yet.
    ("loading", [], {"prompt": LONG}, ("--cache-dir", os.path.join(work, "cache")), {"model": lambda: slow_model(os.path.join(work, "model"))}),
]


def ask(s, body):
    path, more = ("embeddings", {}) if "input" in body else ("completions", {"max_tokens": 1, "temperature": 0})
    status, headers, answer = s.request("POST", f"/v1/{path}", json.dumps({**more, **body}),
                                        {"Content-Type": "application/json"})
    cached = json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]
    return status, cached, headers["X-Tigon-Cache"]


def misses(s):
    """Names to counts; "none" is no miss."""
    return {k.split('"')[1]: v for k, v in s.metrics().items() if k.startswith("prefix_cache_misses_total")}


names, forced = {"none"}, set()
for reason, before, body, args, env in CASES:
    env = dict(env)
    model = env.pop("model", lambda: MODEL)()
    s = Server(*args, env=env, model=model)
    names |= misses(s).keys()
    for b in before:
        ask(s, b)
    counted = misses(s)
    status, cached, header = ask(s, body)
    whole = (len(body.get("prompt") or body["input"]) - 1) // 64 * 64
    if same((status, header), (200, f"cached={cached}; reason={reason}"), f"{reason}: {' '.join(args) or 'as it comes'}"):
        forced.add(reason)
    ok(cached == whole if reason == "none" else cached < max(whole, 1), f"{cached} of {whole} tokens are found")
    same(misses(s), {**counted, **({reason: counted[reason] + 1} if reason != "none" else {})}, "and it alone is counted")
    s.stop()
same(sorted(forced), sorted(names), "every reason there is was seen")
done()
