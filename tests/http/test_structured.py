"""Constraints of answers: JSON, schemas, regular expressions, grammars, choices; biases, allowed tokens and bad words.

The pseudo model says what its golden.json has for a prompt, else a random token; of tokens that may not come, the next one
that may. So without a golden answer an answer is a random text of its constraint.
"""
import json
import os
import re
import shutil
import tempfile
import threading

from harness import Server, done, make_model, messages, ok, same

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
SCHEMA = {"type": "object", "required": ["name", "kind", "n", "list"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12}, "kind": {"enum": ["bow", "arrow", None]},
    "n": {"type": "integer", "minimum": -5, "maximum": 120},
    "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}}}
GRAMMAR = 'root ::= pair ("," pair)? # two at most\npair ::= [a-c]{1,3} "=" ("1" | "0")'


def is_text_of_schema(text):
    try:
        v = json.loads(text)
    except ValueError:
        return False
    return (list(v) == ["name", "kind", "n", "list"] and isinstance(v["name"], str) and 1 <= len(v["name"]) <= 12 and
            v["kind"] in ("bow", "arrow", None) and type(v["n"]) is int and -5 <= v["n"] <= 120 and
            1 <= len(v["list"]) <= 3 and all(type(x) is bool for x in v["list"]))


def is_object(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def matches(pattern):
    return lambda text: re.fullmatch(pattern, text) is not None


# Each way to a constraint: the parameters, and whether a text is one of its own.
SHAPE = {"name": "a", "strict": True, "schema": SCHEMA}
WAYS = {
    "json_schema": ({"response_format": {"type": "json_schema", "json_schema": SHAPE}}, is_text_of_schema),
    "a schema of json_object": ({"response_format": {"type": "json_object", "schema": SCHEMA}}, is_text_of_schema),
    "structured_outputs.json": ({"structured_outputs": {"json": SCHEMA}}, is_text_of_schema),
    "guided_json, as text": ({"guided_json": json.dumps(SCHEMA)}, is_text_of_schema),
    "json_schema of llama.cpp": ({"json_schema": SCHEMA}, is_text_of_schema),
    "structured_outputs.regex": ({"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2,5}"}}, matches("[0-9]{3}-[a-f]{2,5}")),
    "guided_regex": ({"guided_regex": "(yes|no), \\d+ é"}, matches("(yes|no), [0-9]+ é")),
    "structured_outputs.choice": ({"structured_outputs": {"choice": ["yes", "no", "yes or no"]}}, matches("yes|no|yes or no")),
    "guided_choice": ({"guided_choice": ["a longbow", "a crossbow"]}, matches("a longbow|a crossbow")),
    "structured_outputs.grammar": ({"structured_outputs": {"grammar": GRAMMAR}}, matches("[a-c]{1,3}=[01](,[a-c]{1,3}=[01])?")),
    "guided_grammar": ({"guided_grammar": GRAMMAR}, matches("[a-c]{1,3}=[01](,[a-c]{1,3}=[01])?")),
    "grammar of llama.cpp": ({"grammar": 'root ::= "x" | "y" root'}, matches("y*x")),
}

# What the user says -> how the model answers if it may, and whether it thinks.
SAYS = {"object": ('{"a": {"b": [1, 2.5e3, "c\\n"]}, "d": null}', False),
        "thinks": ("A bow.</think>\n\n" + '{"a": 1}', True),
        "short": ("So </thin... </think>" + '{"a": 1}', True),
        "prose": ("An object? No.", False),
        "tags": ('{"a": "<think>b</think> <tool_call>"}', False)}


where = tempfile.mkdtemp()
s = Server(model=make_model(os.path.join(where, "lexis"), [
    ({"messages": messages(text), "chat_template_kwargs": {"enable_thinking": thinks}}, answer)
    for text, (answer, thinks) in SAYS.items()]))


def chat(text="Say.", **more):
    status, body = s.post(CHAT, {"messages": messages(text), "temperature": 0, "max_tokens": 400, **more})
    if status != 200:
        raise RuntimeError(body)
    return body


def said(text="Say.", **more):
    return [(c["message"]["content"], c["finish_reason"]) for c in chat(text, **more)["choices"]]


def streamed(path, body):
    """The text and the finish reason of each choice of a stream."""
    *chunks, end = s.stream(path, body)
    assert end == "[DONE]"
    texts = {}
    for chunk in chunks:
        for c in chunk["choices"]:
            text, finish = texts.get(c["index"], ("", None))
            texts[c["index"]] = (text + (c["text"] if "text" in c else c["delta"].get("content") or ""),
                                 c["finish_reason"] or finish)
    return [texts[i] for i in sorted(texts)]


def refused(**more):
    status, body = s.post(CHAT, {"messages": messages("Say."), "max_tokens": 20, **more})
    error = body.get("error", {})
    return status, error.get("code"), error.get("param"), error.get("message")


ok(any("token masks: a trie of 8192 tokens" in line for line in s.text().splitlines()), "the log has the trie", s.text())

# ---- each way, by chat and completions, whole and streamed, several choices ----
for name, (params, fits) in WAYS.items():
    got = said(**params, n=3, temperature=1, seed=5)
    ok(len(got) == 3 and all(fits(text) and finish == "stop" for text, finish in got), f"{name}: chat", got)
    same(streamed(CHAT, {"messages": messages("Say."), "temperature": 1, "seed": 5, "max_tokens": 400, "n": 3, **params}),
         got, f"{name}: as a stream")
    body = {"prompt": ["One", "Two bows"], "temperature": 0.7, "seed": 3, "max_tokens": 400, "n": 2, **params}
    status, answer = s.post(COMPLETE, body)
    texts = [(c["text"], c["finish_reason"]) for c in answer["choices"]] if status == 200 else answer
    ok(status == 200 and len(texts) == 4 and all(fits(t) and f == "stop" for t, f in texts), f"{name}: completions", texts)
    same(streamed(COMPLETE, body), texts, f"{name}: completions as a stream")

text, finish = said(response_format={"type": "json_object"}, max_tokens=60)[0]
ok(text.startswith("{") and finish == "length", "json_object, cut by max_tokens in the middle", text)
same(said("object", response_format={"type": "json_object"}), [(SAYS["object"][0], "stop")], "json_object: what the model says anyway")
text = said("prose", response_format={"type": "json_object"}, max_tokens=30)[0][0]
ok(text.startswith("{"), "a model that would write prose writes an object", text)
same(said("prose", response_format={"type": "text"}), [("An object? No.", "stop")], "text: what it likes")
same(said("tags", response_format={"type": "json_object"}), [(SAYS["tags"][0], "stop")], "tags in a constrained text are content")

# ---- reasoning ----
thinks = {"chat_template_kwargs": {"enable_thinking": True}}
for text, want in {"thinks": "A bow.", "short": "So </thin... "}.items():
    message = chat(text, response_format={"type": "json_object"}, **thinks)["choices"][0]["message"]
    same((message["reasoning_content"], message["content"]), (want, '{"a": 1}'), f"the constraint begins behind </think>: {text}")
message = chat("thinks", guided_regex="no|yes", **thinks)["choices"][0]["message"]
ok(message["reasoning_content"] == "A bow." and message["content"] in ("yes", "no"), "and holds there", message)
answer = chat("Say.", guided_regex="no|yes", max_tokens=30, **thinks)["choices"][0]
ok(answer["finish_reason"] == "length" and not answer["message"]["content"], "reasoning without end does not end", answer)

# ---- ends of answers ----
same(said(guided_regex="[0-9]{3}", ignore_eos=True), said(guided_regex="[0-9]{3}"), "ignore_eos: where nothing may follow, the answer ends")
text, finish = said(guided_regex="[a-z ]{2,80}", min_tokens=10, return_token_ids=True)[0]
ok(matches("[a-z ]{2,80}")(text) and finish == "stop", "min_tokens", text)
usage = chat(guided_regex="(a|b){1,9}", min_tokens=8, allowed_token_ids=[*range(8192)])["usage"]
ok(usage["completion_tokens"] >= 8, "are counted", usage)
# The bias has the model draw the stop token as soon as it may.
stop = s.post("/tokenize", {"prompt": "a", "add_special_tokens": False})[1]["tokens"]
early = {"logit_bias": {str(stop[0]): 100}, "stop_token_ids": stop, "min_tokens": 5}
for name, more in {"no constraint": {}, "a constraint": {"guided_regex": "[ab]{90}"},
                   "a constraint, in the reasoning": {"guided_regex": "no|yes", **thinks},
                   "allowed tokens": {"allowed_token_ids": [*stop, 500, 600]},
                   "bad words": {"bad_words": ["one two three"]}}.items():
    answer = chat(**early, **more)
    same((answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (6, "stop"),
         f"no stop token before min_tokens: {name}")
for name, more in {"a constraint": {"guided_regex": "[ab]{9}", "allowed_token_ids": stop},
                   "allowed tokens": {"allowed_token_ids": stop}}.items():
    answer = chat(**early, **more)
    same((answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (1, "stop"),
         f"but where nothing else may come: {name}")
text, finish = said("object", response_format={"type": "json_object"}, stop=["2.5"])[0]
same((text, finish), ('{"a": {"b": [1, ', "stop"), "a stop string ends a constrained text")

# ---- log-probabilities, penalties ----
body = chat("object", response_format={"type": "json_object"}, logprobs=True, top_logprobs=3, frequency_penalty=0.5)
tokens = body["choices"][0]["logprobs"]["content"]
same("".join(t["token"] for t in tokens), SAYS["object"][0], "log-probabilities of a constrained text")
ok(all(len(t["top_logprobs"]) == 3 for t in tokens), "with the best tokens beside", tokens)

# ---- biases, allowed tokens, bad words ----
word = s.post("/tokenize", {"prompt": " bow", "add_special_tokens": False})[1]["tokens"]
ids = {"return_token_ids": True, "max_tokens": 5}
same(chat(logit_bias={str(word[0]): 100}, **ids)["choices"][0]["token_ids"], word[:1] * 5, "a bias")
free = chat(**ids)["choices"][0]["token_ids"]
got = chat(logit_bias={str(free[0]): -100, str(free[1]): 0}, **ids)["choices"][0]["token_ids"]
ok(free[0] not in got, "a token that a bias bans", (free, got))
got = [c["token_ids"] for c in chat(allowed_token_ids=[500, 600, 700], n=2, temperature=1, **ids)["choices"]]
ok(len(got) == 2 and all(set(g) <= {500, 600, 700} and len(g) == 5 for g in got), "allowed tokens", got)
got = chat(allowed_token_ids=[500, 600, 700], bad_words=[s.post("/detokenize", {"tokens": [600]})[1]["prompt"]], **ids)
ok(set(got["choices"][0]["token_ids"]) <= {500, 700}, "less a bad word", got)
plain = said("prose")[0][0]
for bad in "object", "No", "object? No", "An object":
    text = said("prose", bad_words=[bad], max_tokens=40)[0][0]
    ok(bad in plain and bad not in text, f"a bad word: {bad}", text)
same(said("prose", bad_words=["crossbow", "An arrow"]), [(plain, "stop")], "bad words that do not come change nothing")
got = said("object", response_format={"type": "json_object"}, bad_words=["null", "2.5"])
ok(is_object(got[0][0]) and "null" not in got[0][0] or got[0][1] == "length", "bad words within a constraint", got)

# ---- refusals and failures ----
for params, want in {
        '{"guided_json": {"type": "object", "ifX": {}}}': (400, "unsupported_parameter", "guided_json", '"ifX"'),
        '{"guided_regex": "a", "guided_choice": ["b"]}': (400, None, "guided_choice", "both given"),
        '{"guided_regex": "a", "response_format": {"type": "json_object"}}': (400, None, "guided_regex", "both given"),
        '{"structured_outputs": {"json": {"$ref": "http://a/b"}}}': (400, "unsupported_parameter", "structured_outputs.json", "$ref"),
        '{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "thing"}}}}':
            (400, None, "response_format.json_schema.schema", "not the name of a type"),
        '{"guided_grammar": "root ::= root \\"a\\" | \\"b\\""}': (400, None, "guided_grammar", "recurs"),
        '{"guided_regex": "((a{1,999}){1,999}){1,999}"}': (400, None, "guided_regex", "too large"),
        '{"bad_words": [""]}': (400, None, "bad_words[0]", "not empty"),
        '{"bad_words": ["' + "a b " * 60 + '"]}': (400, None, "bad_words", "tokens"),
        '{"logit_bias": {"8192": 1}}': (400, None, "logit_bias", "8192"),
        '{"logit_bias": {"1": 1e9}}': (400, None, "logit_bias.1", "100"),
        '{"allowed_token_ids": [9999]}': (400, None, "allowed_token_ids[0]", "9999")}.items():
    got = refused(**json.loads(params))
    ok(got[:3] == want[:3] and want[3] in got[3], f"refused: {params[:60]}", got)
got = refused(guided_regex="yes", allowed_token_ids=[500])
ok(got[:2] == (400, "constraint_failed"), "no token can begin the answer", got)
yes = s.post("/tokenize", {"prompt": "yes", "add_special_tokens": False})[1]["tokens"]
got = refused(guided_regex="yes!", allowed_token_ids=yes)
ok(got[:2] == (400, "constraint_failed") and "no token" in got[3], "nor go on", got)
*chunks, error, end = s.stream(CHAT, {"messages": messages("Say."), "guided_regex": "yes!", "allowed_token_ids": yes})
ok(error["error"]["code"] == "constraint_failed" and end == "[DONE]", "in a stream: an error before its end", error)

# ---- hostile constraints: each ends soon, with an answer or one sentence, and the server goes on ----
deep = {"type": "array", "items": {}}
for _ in range(150):
    deep = {"type": "array", "items": deep}
wide = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(3000)}}
recursive = {"$defs": {"t": {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}, "u": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}
for name, params in {
        "a deep schema": {"guided_json": deep}, "a wide schema": {"guided_json": wide}, "a recursive one": {"guided_json": recursive},
        "a thousand choices": {"guided_choice": [f"number {i} of many" for i in range(20000)]},
        "an ambiguous expression": {"guided_regex": "((a|a)*|(a|aa)*)*b"},
        "an ambiguous grammar": {"guided_grammar": 'root ::= s+ "!"\ns ::= "a" | "a" s | s2 s2\ns2 ::= "a" | "aa" | "a" s2'},
        "counted loops": {"guided_regex": "(a?){800}(b?){800}c"},
        "any code point": {"guided_regex": "[^a]{1,5000}"},
        "no text": {"guided_regex": "[^\\x00-\\U0010ffff]"}, "a zero byte": {"guided_regex": "a\0b"},
        "half a pair": {"guided_choice": ["\ud800"]},
        "the empty text": {"guided_choice": [""]}}.items():
    status, body = s.post(CHAT, {"messages": messages("Say."), "temperature": 1, "seed": 1, "max_tokens": 50, **params}, timeout=30)
    ok(status in (200, 400), f"{name}: {status}", body)
    if status == 400:
        ok(body["error"]["message"] and body["error"]["code"] in (None, "unsupported_parameter", "constraint_failed"),
           f"{name}: one sentence", body)

# ---- clients that leave, and many at once ----
before = s.metrics()
c = s.connect()
c.request("POST", CHAT, json.dumps({"messages": messages("Say."), "response_format": {"type": "json_object"}, "stream": True,
                                    "ignore_eos": True}), {"Content-Type": "application/json"})
c.getresponse().read(200)
c.close()
ok(s.wait_metric("num_requests_running", 0) is not None, "a client that leaves ends its constrained answer")

# More prompts than are submitted at once: each begins at its constraint's beginning.
status, answer = s.post(COMPLETE, {"prompt": [f"Say {i}." for i in range(300)], "n": 2, "temperature": 1, "guided_choice": ["yes", "no"]})
same((status, {c["text"] for c in answer["choices"]}, len(answer["choices"])), (200, {"yes", "no"}, 600), "a batch")

wrong = []


def many(i):
    name = list(WAYS)[i % len(WAYS)]
    params, fits = WAYS[name]
    for k in range(4):
        if i % 3:
            got = said(f"Say {i} {k}.", **params, temperature=1, seed=i, n=1 + i % 3)
            if not all(fits(text) and finish == "stop" for text, finish in got):
                wrong.append((name, got))
        elif said("object") != [(SAYS["object"][0], "stop")]:
            wrong.append("object")


threads = [threading.Thread(target=many, args=(i,)) for i in range(24)]
for t in threads:
    t.start()
for t in threads:
    t.join()
ok(not wrong, "constrained and free answers at the same time", wrong[:3])
s.stop()
shutil.rmtree(where)
done()
