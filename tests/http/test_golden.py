"""Every golden case of the model through HTTP, with the bounds that hold for each number format.

    test_golden.py TIGOND float32|bfloat16 [FILE GOLDEN]

FILE is lexis with quantised weights, and GOLDEN a folder with its answers (golden/quantised_models.py): those of lexis' own
prompts that it has are asked. float32: prompt ids, output ids and texts are those of transformers; every listed log-probability
within 2e-4. bfloat16: the same up to the first step whose margin is below 0.2; the first step's
log-probability within 0.02, 99 % of all steps within 0.1. Quantised weights, whose products have activations of 8 bits
there, have the bounds of test_golden.c: 0.7 for the margin, and 0.05 and 0.25.
"""
import json
import os
import sys

from harness import MODEL, Server, done, goldens, ok, parallel, same

DTYPE = sys.argv[2] if len(sys.argv) > 2 else "float32"
EXACT = DTYPE == "float32"
FILE, GOLDEN = sys.argv[3:5] if len(sys.argv) > 4 else (MODEL, None)
MARGIN, FIRST, NEAR = (0.7, 0.05, 0.25) if GOLDEN else (0.2, 0.02, 0.1)
s = Server("--dtype", DTYPE, model=FILE)


def chat(case):
    body = {k: case[k] for k in ("messages", "tools", "chat_template_kwargs") if k in case}
    return s.post("/v1/chat/completions", {**body, "temperature": 0, "max_tokens": case.get("max_tokens", 64),
                                           "return_token_ids": True}, timeout=600)


def complete(case):
    return s.post("/v1/completions", {"prompt": case["prompt_ids"], "temperature": 0, "logprobs": 5,
                                      "max_tokens": case.get("max_tokens", 64), "return_token_ids": True}, timeout=600)


def sure_steps(case):
    """How many steps must come out the same."""
    if EXACT:
        return len(case["steps"])
    return next((i for i, st in enumerate(case["steps"]) if st["margin"] < MARGIN), len(case["steps"]))


cases = goldens()
if GOLDEN:
    # Where no step of an answer is in doubt, its text is the one that lexis gives.
    with open(os.path.join(GOLDEN, "golden.json")) as f:
        answered = {c["name"]: c for c in json.load(f)["cases"]}
    cases = [{**c, **answered[c["name"]]} for c in cases if c["name"] in answered]
    same(len(cases), len(answered), "every answer has its prompt")
chats = [c for c in cases if "messages" in c]
answers = parallel([lambda c=c: chat(c) for c in chats])
for case, (status, a) in zip(chats, answers):
    if not ok(status == 200, f"{case['name']}: status 200", a):
        continue
    choice, n = a["choices"][0], sure_steps(case)
    good = a["prompt_token_ids"] == case["prompt_ids"] and choice["token_ids"][:n] == case["output_ids"][:n]
    if n == len(case["steps"]):
        reasoning, tag, content = case["output"].rpartition("</think>")
        message = choice["message"]
        if content.startswith("<tool_call>"):
            call = json.loads(content.removeprefix("<tool_call>").removesuffix("</tool_call>"))
            function = message["tool_calls"][0]["function"]
            good &= choice["finish_reason"] == "tool_calls" and message["content"] is None
            good &= (function["name"], json.loads(function["arguments"])) == (call["name"], call["arguments"])
        else:
            good &= choice["finish_reason"] == case["finish_reason"]
            good &= message["content"] == (content.lstrip("\n") if tag else content)
        good &= (message.get("reasoning_content") or "").strip() == reasoning.strip()
        good &= a["usage"]["completion_tokens"] == len(case["output_ids"])
    ok(good, f"{case['name']}: {n} steps", f"want {case['output_ids']}\n{a}")

# ---- constraints: a greedy answer that obeys by itself keeps its tokens and their log-probabilities ----
ENTRY = {"type": "object", "additionalProperties": False, "required": ["word", "pos", "definition"], "properties": {
    "word": {"type": "string", "maxLength": 40}, "pos": {"enum": ["noun", "verb", "adjective", "adverb"]},
    "definition": {"type": "string", "minLength": 3}}}
CONSTRAINTS = {"nothing": {}, "json_object": {"response_format": {"type": "json_object"}},
               "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "entry", "schema": ENTRY}}},
               "a regular expression": {"guided_regex": r'\{"word": "[a-z]+", "pos": "[a-z]+", "definition": "[^"]*"\}'},
               "a grammar": {"guided_grammar": 'root ::= [^}]+ "}"'}}


def said(message, **more):
    status, a = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": message}], "temperature": 0, "max_tokens": 200,
                                                "logprobs": True, "return_token_ids": True, **more}, timeout=600)
    choice = a["choices"][0]
    return choice["message"], choice["finish_reason"], choice["token_ids"], [t["logprob"] for t in choice["logprobs"]["content"]]


obeyed = 0
words = ["candle", "bow", "river", "anchor", "meadow", "violin", "bridge", "lamp"]
entries = parallel([lambda w=w, c=c: said(f"Define {w} as JSON.", **c) for w in words for c in CONSTRAINTS.values()])
for i, word in enumerate(words):
    free, *constrained = entries[i * len(CONSTRAINTS):(i + 1) * len(CONSTRAINTS)]
    try:
        entry = json.loads(free[0]["content"])
    except ValueError:
        continue
    if list(entry) == ENTRY["required"] and entry["pos"] in ENTRY["properties"]["pos"]["enum"] and free[1] == "stop":
        obeyed += 1
        same(constrained, [free] * len(constrained), f"{word}: the same answer under {', '.join(list(CONSTRAINTS)[1:])}")
ok(obeyed >= 5, f"{obeyed} of {len(words)} answers obey by themselves", entries)
called = [c for c in chats if c["output"].startswith("<tool_call>")]
for case in called:
    free, demanded = (s.post("/v1/chat/completions", {"messages": case["messages"], "tools": case["tools"], "temperature": 0, "max_tokens": 64,
                                                      "return_token_ids": True, "tool_choice": choice}, timeout=600)[1]["choices"][0]
                      for choice in ("auto", "required"))
    same(demanded["token_ids"], free["token_ids"], f"{case['name']}: a demanded call that the model makes anyway")
ok(called, "a golden answer is a call")
texts = parallel([lambda c=c: s.post("/detokenize", {"tokens": c["prompt_ids"]}) for c in cases])
same([t[1]["prompt"] for t in texts], [c.get("text", c.get("prompt")) for c in cases], "the prompts' texts")

worst, steps, far, first_worst = 0.0, 0, 0, 0.0
for case, (status, a) in zip(cases, parallel([lambda c=c: complete(c) for c in cases])):
    choice, n = a["choices"][0], sure_steps(case)
    lp = choice["logprobs"]
    good = choice["token_ids"][:n] == case["output_ids"][:n]
    # The end token is no part of the text and has no entry.
    for i in range(min(n, len(lp["tokens"]))):
        want = case["steps"][i]["logprobs"]
        deltas = [abs(lp["token_logprobs"][i] - want[0])]
        got = sorted(lp["top_logprobs"][i].values(), reverse=True)[:5]
        if EXACT and len(got) == 5:  # two tokens with the same text share an entry
            deltas += [abs(x - y) for x, y in zip(got, want)]
        worst = max(worst, *deltas)
        steps += 1
        far += deltas[0] > NEAR
        if i == 0:
            first_worst = max(first_worst, deltas[0])
    ok(good, f"{case['name']}: completion", a)
if EXACT:
    ok(worst <= 2e-4, f"{steps} steps: log-probabilities within {worst:.2g}")
else:
    ok(first_worst <= FIRST, f"first steps within {first_worst:.3g}")
    ok(far <= 0.01 * steps, f"{far} of {steps} steps differ by more than {NEAR} (at most {worst:.3g})")
s.stop()
done()
