"""Calls that a request demands, or whose arguments have to follow a schema: tool_choice, strict, in every format.

The pseudo model says what its golden.json has for a prompt, else a random token that may come. So without a golden answer
the answer is random calls.
"""
import json
import os
import re
import shutil
import tempfile
import threading

from harness import Server, done, make_model, messages, ok, same

CHAT = "/v1/chat/completions"
AIM = {"type": "object", "required": ["at", "n", "kinds"], "additionalProperties": False, "properties": {
    "at": {"type": "string", "enum": ["the target", "a bird", "no"]}, "n": {"type": "integer", "minimum": 1, "maximum": 12},
    "kinds": {"type": "array", "items": {"enum": ["bow", 5]}, "minItems": 1, "maxItems": 2},
    "note": {"type": ["string", "null"], "maxLength": 6}, "code": {"type": "string", "pattern": "^[a-f]{2}[0-9]$"}}}
TOOLS = [{"type": "function", "function": {"name": "aim", "parameters": AIM}},
         {"type": "function", "function": {"name": "now"}},
         {"type": "function", "function": {"name": "rest", "parameters": {"type": "object", "properties": {
             "long": {"type": "boolean"}}, "required": ["long"]}}}]
STRICT = [{**t, "function": {**t["function"], "strict": True}} for t in TOOLS]
GOOD = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
FREE = '<tool_call>\n{"name": "aim", "arguments": {"x": 1}}\n</tool_call>'
# What the user says -> how the model answers if it may, and whether it thinks.
SAYS = {"call": ("I look.\n" + GOOD, False), "thinks": ("Hm.</think>\n\n" + GOOD, True), "free": (FREE, False),
        "prose": ("No call.", False), "llama": ('{"name": "now", "parameters": {}}', False), "json": ('{"a": "<tool_call>"}', False)}


def fits(name, text):
    """Whether a call's arguments are those of its tool."""
    a = json.loads(text)
    if name == "now":
        return a == {}
    if name == "rest":
        return list(a) == ["long"] and type(a["long"]) is bool
    return (name == "aim" and {"at", "n", "kinds"} <= set(a) <= set(AIM["properties"]) and a["at"] in AIM["properties"]["at"]["enum"]
            and type(a["n"]) is int and 1 <= a["n"] <= 12 and 1 <= len(a["kinds"]) <= 2 and all(k in ("bow", 5) for k in a["kinds"])
            and (a.get("note") is None or isinstance(a["note"], (str, int)) and len(str(a["note"])) <= 6)
            and ("code" not in a or re.fullmatch("[a-f]{2}[0-9]", a["code"]) is not None))


def ask(text, **more):
    return {"messages": messages(text), "tools": TOOLS, "temperature": 0, "max_tokens": 400, **more}


def calls_of(message):
    return [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]


def whole(s, text, **more):
    status, body = s.post(CHAT, ask(text, **more))
    if status != 200:
        raise RuntimeError(body)
    return [(calls_of(c["message"]), c["message"]["content"], c["finish_reason"]) for c in body["choices"]]


def streamed(s, text, **more):
    *chunks, end = s.stream(CHAT, ask(text, **more))
    assert end == "[DONE]"
    got = {}
    for chunk in chunks:
        for c in chunk["choices"]:
            calls, content, finish = got.setdefault(c["index"], ([], "", None))
            for piece in c["delta"].get("tool_calls") or []:
                if piece["index"] == len(calls):
                    calls.append([piece["function"]["name"], ""])
                calls[piece["index"]][1] += piece["function"]["arguments"]
            got[c["index"]] = calls, content + (c["delta"].get("content") or ""), c["finish_reason"] or finish
    return [([tuple(c) for c in calls], content or None, finish) for calls, content, finish in (got[i] for i in sorted(got))]


def refused(s, **more):
    status, body = s.post(CHAT, ask("Say.", **more))
    error = body.get("error", {})
    return status, error.get("code"), error.get("param"), error.get("message")


where = tempfile.mkdtemp()
model = make_model(os.path.join(where, "lexis"), [
    ({"messages": messages(text), "tools": tools, "chat_template_kwargs": {"enable_thinking": thinks}}, answer)
    for text, (answer, thinks) in SAYS.items() for tools in (TOOLS, STRICT)])
THINK_END = "4"  # the id of </think>
NAMED = {"type": "function", "function": {"name": "aim"}}

for parser in "hermes", "qwen_xml", "mistral", "llama_json", "pythonic":
    s = Server("--tool-call-parser", parser, model=model)
    n_calls = 0
    for seed in range(12):
        got = whole(s, f"Say {seed}.", tool_choice="required", n=2, temperature=1, seed=seed)
        ok(len(got) == 2 and all(calls and not content and all(fits(*c) for c in calls) and finish in ("tool_calls", "length")
                                 for calls, content, finish in got if finish != "length"), f"{parser}: required", got)
        n_calls += sum(len(calls) for calls, *_ in got)
        if seed < 4:
            same([(calls, content or None, finish) for calls, content, finish in got],
                 streamed(s, f"Say {seed}.", tool_choice="required", n=2, temperature=1, seed=seed), f"{parser}: as a stream")
        (calls, content, finish), = whole(s, f"Say {seed}.", tool_choice=NAMED, temperature=1, seed=seed)
        ok(len(calls) == 1 and calls[0][0] == "aim" and fits(*calls[0]) and not content and finish == "tool_calls",
           f"{parser}: a named tool", (calls, content, finish))
        (calls, content, finish), = whole(s, f"Say {seed}.", tool_choice="required", parallel_tool_calls=False, temperature=1, seed=seed)
        ok(len(calls) == 1 and fits(*calls[0]) and finish == "tool_calls", f"{parser}: one call", (calls, content, finish))
    (calls, content, finish), = whole(s, "Think.", tool_choice=NAMED, temperature=1, seed=1, logit_bias={THINK_END: 100},
                                      chat_template_kwargs={"enable_thinking": True})
    ok(len(calls) == 1 and fits(*calls[0]) and not content and finish == "tool_calls", f"{parser}: behind reasoning", (calls, content, finish))
    ok(n_calls >= 24, f"{parser}: {n_calls} calls")
    s.stop(f"{parser}: the server ends")

s = Server(model=model)
# What the model likes, if it may.
same(whole(s, "call"), [([("now", "{}")], "I look.", "tool_calls")], "auto: text and a call")
(calls, content, finish), = whole(s, "call", tool_choice="required")
ok(calls and not content, "required: no text before the call", (calls, content, finish))
same(whole(s, "prose"), [([], "No call.", "stop")], "auto: text")
(calls, content, finish), = whole(s, "prose", tool_choice="required", parallel_tool_calls=False)
ok(len(calls) == 1 and fits(*calls[0]), "a model that would write text calls", calls)

# none: the prompt is that of auto, so all of it is cached, and no call comes
whole(s, "call")
status, body = s.post(CHAT, ask("call", tool_choice="none"))
usage, message = body["usage"], body["choices"][0]["message"]
ok(usage["prompt_tokens"] > 200 and usage["prompt_tokens_details"]["cached_tokens"] == (usage["prompt_tokens"] - 1) // 64 * 64,
   "none behind auto: all whole pages are cached", usage)
ok(not calls_of(message) and message["content"].startswith("I look.\n") and "<tool_call>" not in message["content"],
   "none: the token with which a call begins is not drawn", message)
(calls, content, finish), = streamed(s, "call", tool_choice="none")
same((calls, content), ([], message["content"]), "none: as a stream")
same(whole(s, "prose", tool_choice="none"), [([], "No call.", "stop")], "none: text")
same(whole(s, "thinks", tool_choice="none", chat_template_kwargs={"enable_thinking": True})[0][0], [], "none: thinking")
same(s.post("/apply-template", ask("call", tool_choice="none")), s.post("/apply-template", ask("call")), "none: /apply-template")

# allowed_tools: the same prompt, and calls of some tools alone
def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in names]}}


status, body = s.post(CHAT, ask("call", tool_choice=allowed("auto", "aim", "rest")))
usage, message = body["usage"], body["choices"][0]["message"]
same(usage["prompt_tokens_details"]["cached_tokens"], (usage["prompt_tokens"] - 1) // 64 * 64, "allowed_tools behind auto: all whole pages are cached")
ok(all(name in ("aim", "rest") for name, _ in calls_of(message)), "a tool that is not allowed is not called", message)
same(s.post("/apply-template", ask("call", tool_choice=allowed("auto", "aim"))), s.post("/apply-template", ask("call")), "the prompt has all tools")
same(whole(s, "call", tool_choice=allowed("auto", "now")), [([("now", "{}")], "I look.", "tool_calls")], "one that is allowed is called")
same(whole(s, "call", tool_choice=allowed("auto"))[0][0], [], "none is allowed, none is called")
for seed in range(4):
    (calls, content, finish), = whole(s, f"Say {seed}.", tool_choice=allowed("required", "aim", "now"), temperature=1, seed=seed)
    ok((calls or finish == "length") and not content and all(name in ("aim", "now") and fits(name, text) for name, text in calls if finish != "length"),
       "required of those", (calls, content, finish))

# strict tools: free text, then calls by the schema
same(whole(s, "call", tools=STRICT), [([("now", "{}")], "I look.", "tool_calls")], "strict: text, and a call that fits")
same(streamed(s, "call", tools=STRICT), [([("now", "{}")], "I look.", "tool_calls")], "strict: as a stream")
same(whole(s, "prose", tools=STRICT), [([], "No call.", "stop")], "strict: text alone")
same(whole(s, "free")[0][0], [("aim", '{"x": 1}')], "without strict arguments are the model's")
(calls, content, finish), = whole(s, "free", tools=STRICT, parallel_tool_calls=False)
ok(len(calls) == 1 and calls[0][0] == "aim" and fits(*calls[0]), "strict arguments follow the schema", (calls, content, finish))
one_strict = [STRICT[0], *TOOLS[1:]]
(calls, content, finish), = whole(s, "free", tools=one_strict, tool_choice="auto", parallel_tool_calls=False)
ok(not calls or fits(*calls[0]), "of the one tool that is strict", calls)

# reasoning
thinks = {"chat_template_kwargs": {"enable_thinking": True}}
for more in {"tool_choice": "required"}, {"tools": STRICT}, {"tool_choice": {"function": {"name": "now"}}}:
    status, body = s.post(CHAT, ask("thinks", **more, **thinks))
    message = body["choices"][0]["message"]
    ok(message["reasoning_content"] == "Hm." and calls_of(message)[:1] == [("now", "{}")], f"behind reasoning: {more}"[:60], message)

# JSON or calls
schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 20}}, "required": ["a"]}
json_or = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
same(whole(s, "json", **json_or), [([], '{"a": "<tool_call>"}', "stop")], "JSON, in whose strings there is no call")
same(streamed(s, "json", **json_or), [([], '{"a": "<tool_call>"}', "stop")], "as a stream")
for seed in range(6):
    (calls, content, finish), = whole(s, f"Say {seed}", temperature=1, seed=seed, **json_or)
    ok((finish == "length" or calls) or list(json.loads(content)) == ["a"], "JSON or calls", (calls, content, finish))
(calls, content, finish), = whole(s, "json", tool_choice=NAMED, **json_or)
ok(len(calls) == 1 and calls[0][0] == "aim" and fits(*calls[0]) and not content, "a demanded call wins over JSON", (calls, content))
(calls, content, finish), = whole(s, "call", guided_choice=["yes", "no"])
ok(not calls and content in ("yes", "no"), "another constraint has no calls", (calls, content))

# log-probabilities, cuts
status, body = s.post(CHAT, ask("call", tool_choice="required", logprobs=True, top_logprobs=2))
ok(status == 200 and body["choices"][0]["logprobs"]["content"] == [], "no content, no log-probabilities", body["choices"][0])
(calls, content, finish), = whole(s, "call", tool_choice="required", max_tokens=7)
ok(finish == "length", "cut by max_tokens", (calls, content, finish))

# refusals
bad = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {
    "a": {"contentRules": 1}}}}}]
for params, want in (
        ({"tools": None, "tool_choice": "required"}, (400, None, "tool_choice", "no tools")),
        ({"tool_choice": {"function": {"name": "fly"}}}, (400, None, "tool_choice", "fly")),
        ({"tool_choice": allowed("auto", "now", "fly")}, (400, None, "tool_choice", "fly")),
        ({"tool_choice": "required", "guided_regex": "a"}, (400, None, "tool_choice", "guided_regex")),
        ({"tools": STRICT, "guided_regex": "a"}, (400, None, "guided_regex", "strict")),
        ({"tools": bad}, (400, "unsupported_parameter", "tools", "contentRules")),
        ({"tools": bad, "tool_choice": "required"}, (400, "unsupported_parameter", "tools", '"f"'))):
    got = refused(s, **params)
    ok(got[:3] == want[:3] and want[3] in got[3], f"refused: {str(params)[:60]}", got)
s.stop()
s = Server("--tool-call-parser", "none", model=model)
got = refused(s, tool_choice="required")
ok(got[:3] == (400, "unsupported_parameter", "tool_choice"), "a server that does not know the format", got)
got = refused(s, tools=STRICT)
ok(got[:3] == (400, "unsupported_parameter", "tools") and '"aim"' in got[3], "strict tools there are refused", got)
same(whole(s, "prose"), [([], "No call.", "stop")], "other tools there are a matter of the prompt alone")
same(whole(s, "prose", tools=STRICT, tool_choice="none"), [([], "No call.", "stop")], "with none strict is no matter")
same(whole(s, "prose", tool_choice="none", parallel_tool_calls=False), [([], "No call.", "stop")], "nor are parallel calls")

# a format in which no single token begins a call
s.stop()
s = Server("--tool-call-parser", "llama_json", model=model)
same(whole(s, "llama"), [([("now", "{}")], None, "tool_calls")], "auto: a call")
for answer in whole, streamed:
    same(answer(s, "llama", tool_choice="none"), [([], SAYS["llama"][0], "stop")], "none: a text that looks like a call is text")

# hostile tools
s.stop()
s = Server(model=model)
for name, tools in {
        "many tools": [{"function": {"name": f"t{i}", "parameters": AIM}} for i in range(300)],
        "a wide tool": [{"function": {"name": "f", "parameters": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1500)}}}}],
        "a name of all kinds": [{"function": {"name": "<tool_call>\"\\\n{", "parameters": AIM}}],
        "the same name twice": [TOOLS[1], TOOLS[1]]}.items():
    status, body = s.post(CHAT, ask("Say.", tools=tools, tool_choice="required", max_tokens=30), timeout=40)
    ok(status in (200, 400) and (status == 200 or body["error"]["message"]), f"{name}: {status}", str(body)[:300])

wrong = []


def many(i):
    for k in range(3):
        (calls, content, finish), = whole(s, f"Say {i} {k}.", tool_choice=NAMED if i % 2 else "required", temperature=1, seed=i,
                                          parallel_tool_calls=False)
        if len(calls) != 1 or not fits(*calls[0]):
            wrong.append((calls, content, finish))


threads = [threading.Thread(target=many, args=(i,)) for i in range(12)]
for t in threads:
    t.start()
for t in threads:
    t.join()
ok(not wrong, "many at the same time", wrong[:2])
s.stop()
shutil.rmtree(where)
done()
