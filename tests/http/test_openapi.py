"""docs/openapi.json against a server: its ranges, defaults and refusals, and the schemas of its answers."""
import json
import os
import re
import shutil
import sys
import tempfile

from harness import ROOT, Server, done, make_model, messages, ok, same, skip_all

sys.path.insert(0, os.path.join(ROOT, "tests"))
from openapi import DOCUMENT, bodies, members, operations, resolve, strict, whole  # noqa: E402

try:
    from jsonschema import Draft202012Validator as Validator
    from jsonschema.exceptions import best_match
except ImportError:
    skip_all("the jsonschema package is not installed")

CHAT, COMPLETE, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
COUNT, TOKENIZE, DETOKENIZE, TEMPLATE = "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/apply-template"
FUNCTION = {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "bow"}}\n</tool_call>'


def prompt(text, thinks=False, tools=False):
    """A chat, as the body of /tokenize; the model of this test has answers to three."""
    return {"messages": messages(text), "enable_thinking": thinks, **({"tools": TOOLS} if tools else {})}


folder = tempfile.mkdtemp(prefix="tigon-openapi-")
model = make_model(os.path.join(folder, "model"), [
    (prompt("plain"), "A \"bow\" é."), (prompt("thought", True), "Hm.</think>\n\nYes."), (prompt("call", tools=True), CALL)])
s = Server("--clamp-max-tokens", "--served-model-name", "*", "--served-model-name", "words", "--max-model-len", "512", model=model)
connection = s.connect()


def ask(method, path, body=None, **headers):
    """(status, headers, text) over one connection."""
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **headers})
    r = connection.getresponse()
    return r.status, r.headers, r.read().decode()


status, headers, text = ask("GET", "/openapi.json")
same((status, json.loads(text), headers["Content-Type"].split(";")[0]), (200, DOCUMENT, "application/json"), "/openapi.json is the document")
same(json.loads(ask("GET", "/version")[2])["version"], DOCUMENT["info"]["version"], "it has the program's version")

# ---- ranges and types: the server refuses what a parameter's schema forbids, and nothing else ----

# Path of which a body is about -> the path that reads it, and a body that is good.
HELLO = messages("plain")
GOOD = {CHAT: (TEMPLATE, {"messages": HELLO}), COMPLETE: (COMPLETE, {"prompt": "plain", "max_tokens": 1}),
        RESPONSES: (RESPONSES, {"input": "plain", "max_output_tokens": 1, "store": False}),
        "/v1/embeddings": ("/v1/embeddings", {"input": "plain"}), "/v1/score": ("/v1/score", {"text_1": "a", "text_2": "b"}),
        "/v1/rerank": ("/v1/rerank", {"query": "a", "documents": ["b"]}), MESSAGES: (COUNT, {"messages": HELLO}), TOKENIZE: (TOKENIZE, {"messages": HELLO}), DETOKENIZE: (DETOKENIZE, {"tokens": [300]}),
        "/api/chat": ("/api/chat", {"model": "words", "messages": HELLO, "options": {"num_predict": 1}, "stream": False}),
        "/api/generate": ("/api/generate", {"model": "words", "prompt": "plain", "options": {"num_predict": 1}, "stream": False}),
        "/api/embed": ("/api/embed", {"model": "words", "input": "plain"}),
        "/api/embeddings": ("/api/embeddings", {"model": "words", "prompt": "plain"}),
        "/api/show": ("/api/show", {"model": "words"})}
# Members that a parameter needs beside it, so that its range alone decides.
BESIDE = {"stream_options": {"stream": True}, "top_logprobs": {"logprobs": True, "include": ["message.output_text.logprobs"]},
          "continue_final_message": {"add_generation_prompt": False,
          "messages": [*HELLO, {"role": "assistant", "content": "A"}]}}
# What these may be, or whether they have to be there, depends on others. So they are not asked for with good values, or with none.
RELATED = {"best_of", "n", "min_tokens", "input", "documents", "texts", "previous_response_id", "tool_choice", "max_tokens", "stream", "store", "prompt", "content", "messages"}
CONSTRAINTS = {"structured_outputs", "guided_json", "json_schema", "guided_regex", "regex", "guided_choice", "guided_grammar", "grammar",
               "ebnf", "format", "response_format", "output_format", "output_config", "text"}
# The parameters that a chat has, too, are asked for there.
shared = set(members({"$ref": "#/components/schemas/Drawing"})) | set(members({"$ref": "#/components/schemas/Several"}))


def values(schema):
    """Values at and beyond the edges of what a schema allows, and of other types."""
    schema = resolve(schema)
    found = ["x", "", 5.5, -7, 0, 1, True, False, [], ["x"], [0], {}, {"x": 1}, None, *schema.get("enum", [])]
    for name in ("minimum", "maximum", "exclusiveMinimum"):
        if name in schema:
            found += [schema[name] - 1, schema[name], schema[name] + 1]
    if "maxItems" in schema:
        found += [["x"] * (schema["maxItems"] + 1), [0] * (schema["maxItems"] + 1)]
    if "maxLength" in schema:
        found += ["x" * schema["maxLength"], "x" * (schema["maxLength"] + 1)]
    for part in schema.get("anyOf", []):
        found += values(part)
    return found + ([schema["default"]] if "default" in schema else [])


def complaint(text):
    """What an error is about: its parameter or, where the API has none, its sentence, which begins with it."""
    error = json.loads(text)["error"]
    return error if isinstance(error, str) else str(error["param"] if "param" in error else error["message"])


def faults(path, name, schema):
    """The values with which server and schema disagree."""
    target, good = GOOD[path]
    validator, found = Validator(whole(schema)), []
    for value in values(schema):
        allowed = validator.is_valid(value)
        if (allowed and (name in RELATED or name in CONSTRAINTS)) or (value in (None, [], "") and name in RELATED):
            continue
        answer = ask("POST", target, {**good, **BESIDE.get(name, {}), name: value})
        wrong = answer[0] == 400 and re.match(rf"{name}\b", complaint(answer[2])) is not None
        if allowed == wrong or (allowed and answer[0] != 200):
            found.append((name, str(value)[:80], "allowed" if allowed else "forbidden", answer[0], answer[2][:200]))
    return found


for path in GOOD:
    own = {n: schema for n, schema in members(bodies()[path]).items() if path == CHAT or n not in shared}
    wrong = [f for n, schema in own.items() for f in faults(path, n, schema)]
    ok(not wrong and own, f"{path}: the ranges of {len(own)} parameters", "\n".join(map(str, wrong)))

# ---- what is refused ----

for path, (target, good) in GOOD.items():
    wrong = []
    for name in members(bodies()[path], "x-refused"):
        outer, _, inner = name.partition(".")
        value = 1 if name.endswith("logprobs") else True
        status, _, text = ask("POST", target, {**good, outer: {inner: value} if inner else value})
        error = json.loads(text).get("error", "")
        code = error.get("code", "unsupported_parameter") if isinstance(error, dict) else "unsupported_parameter"
        if (status, code) != (400, "unsupported_parameter") or name not in text:
            wrong.append(f"{name}: {status} {text}")
    ok(not wrong, f"{path}: what it refuses", "\n".join(wrong))

# ---- what several members decide together ----

for path, allowed in ((CHAT, lambda mode, names: {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
        {"type": "function", "function": {"name": n}} for n in names]}}),
        (RESPONSES, lambda mode, names: {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": n} for n in names]})):
    validator = Validator(whole(bodies()[path]))
    good = {"input": "plain", "max_output_tokens": 1, "store": False} if path == RESPONSES else {"messages": HELLO, "max_tokens": 1}
    tools = [{"type": "function", **FUNCTION}] if path == RESPONSES else TOOLS
    for tool_choice, given in ((allowed("auto", []), None), (allowed("auto", []), tools), (allowed("auto", ["look_up"]), None),
                               (allowed("required", []), None), (allowed("required", []), tools), (allowed("required", ["look_up"]), tools),
                               ("required", None), ("required", tools), ("auto", None)):
        body = {**good, "tool_choice": tool_choice, **({"tools": given} if given else {})}
        status, _, text = ask("POST", path, body)
        same(status == 200, validator.is_valid(body), f"{path}: {json.dumps(tool_choice)}, {'with' if given else 'without'} tools: {text[:80]}")

# ---- defaults ----


def defaults(schema):
    return {n: v["default"] for n, v in members(schema).items() if "default" in v}


def answer_of(path, body):
    """An answer without its id and times."""
    status, _, text = ask("POST", path, body)
    found = json.loads(text)
    for name in ("id", "created", "created_at", "usage"):
        found.pop(name, None)
    for item in found.get("output", []):
        item.pop("id")
    return status, found


for path, body in ((CHAT, {"messages": HELLO}), (COMPLETE, {"prompt": "plain"}), (RESPONSES, {"input": "plain"}), (TEMPLATE, {"messages": HELLO}),
                   (MESSAGES, {"messages": HELLO, "max_tokens": 9}), (TOKENIZE, {"prompt": "plain"})):
    given = defaults(bodies()[path])
    body = {"seed": 1, "max_tokens": 9, "top_logprobs": 0, **body}
    same(answer_of(path, {**given, **body}), answer_of(path, body), f"{path}: {len(given)} defaults change nothing")
response = answer_of(RESPONSES, {"input": "plain"})[1]
given = {n: v for n, v in defaults(bodies()[RESPONSES]).items() if n in response}
ok({"temperature", "top_p", "store", "truncation", "top_logprobs", "parallel_tool_calls"} <= set(given), "a response repeats parameters", given)
same({n: response[n] for n in given}, given, "with the defaults of the document")

# ---- answers ----

OPERATIONS = {(path, method): o for path, method, o in operations()}
seen = {}


def content(operation, status):
    found = operation["responses"]
    return resolve(found.get(str(status)) or found.get(f"{status // 100}XX") or {})["content"]


def check(name, path, body=None, method=None, place=None, **headers):
    """Checks an answer against the schema of its path, which is `place` if it differs from `path`. Returns the answer."""
    method = method or ("GET" if body is None else "POST")
    operation = OPERATIONS[place or path.split("?")[0], method.lower()]
    if body is not None and "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        Validator(whole(schema)).validate(body)
    status, answered, text = ask(method, path, body, **headers)
    kinds = content(operation, status)
    kind = answered["Content-Type"].split(";")[0]
    schema = kinds[kind].get("x-event") or kinds[kind]["schema"]
    parts = {"text/event-stream": [p.split("data: ", 1)[1] for p in text.split("\n\n") if "data: " in p],
             "application/x-ndjson": text.splitlines()}.get(kind, [text])
    parts = [p if p == "[DONE]" or kind == "text/plain" else json.loads(p) for p in parts]
    validator = Validator(strict(schema))
    wrong = [f"{e.json_path}: {e.message[:300]} in {json.dumps(p)[:700]}" for p in parts for e in [best_match(validator.iter_errors(p))] if e]
    ok(parts and not wrong, f"{method} {place or path}: {name}, status {status}", "\n".join(wrong[:3]))
    seen.setdefault((place or path.split("?")[0], method.lower()), set()).add(status // 100)
    return parts[-1]


TOP = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
for stream in False, True:
    chunks = {"stream": True, "stream_options": {"include_usage": True}} if stream else {"prompt_logprobs": 2}
    check("a text", CHAT, {"messages": HELLO, "n": 2, "temperature": 0, **TOP, **chunks})
    check("reasoning", CHAT, {**prompt("thought", True), "temperature": 0, "stream": stream})
    check("a call", CHAT, {**prompt("call", tools=True), "temperature": 0, "stream": stream})
    check("texts", COMPLETE, {"prompt": ["plain", "plain"], "max_tokens": 3, "echo": True, "logprobs": 2, "return_token_ids": True, **chunks})
    include = {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "top_logprobs": 2}
    check("a text", RESPONSES, {"input": "plain", "temperature": 0, "stream": stream, "metadata": {"a": "b"}, **include})
    check("reasoning", RESPONSES, {"input": "thought", "temperature": 0, "stream": stream, "reasoning": {"effort": "low"}, **include})
    check("a call", RESPONSES, {"input": "call", "temperature": 0, "stream": stream, "tools": [{"type": "function", **FUNCTION}]})
    check("cut", RESPONSES, {"input": "plain", "max_output_tokens": 2, "temperature": 0, "stream": stream})
    check("a text", MESSAGES, {"messages": HELLO, "max_tokens": 99, "temperature": 0, "stream": stream})
    check("thinking", MESSAGES, {"messages": messages("thought"), "max_tokens": 99, "temperature": 0, "stream": stream, "thinking": {"type": "enabled"}})
    check("a call", MESSAGES, {"messages": messages("call"), "max_tokens": 99, "temperature": 0, "stream": stream,
                               "tools": [{"name": "look_up", "input_schema": FUNCTION["parameters"]}]})
    options = {"model": "words", "options": {"temperature": 0}, "stream": stream, "logprobs": True, "top_logprobs": 1}
    check("a text", "/api/chat", {"messages": HELLO, **options})
    check("a text", "/api/generate", {"prompt": "plain", **options})
    check("thinking", "/api/chat", {"messages": messages("thought"), "think": True, **options})
    check("thinking", "/api/generate", {"prompt": "thought", "think": True, **options})
    check("a call", "/api/chat", {"messages": messages("call"), "tools": TOOLS, **options})
check("vectors", "/api/embed", {"model": "words", "input": ["a", "bow"], "dimensions": 4})
check("loaded", "/api/embed", {"model": "words"})
check("a vector", "/api/embeddings", {"model": "words", "prompt": "a"})
check("loaded", "/api/embeddings", {"model": "words"})
check("loaded", "/api/chat", {"model": "words"})
check("unloaded", "/api/generate", {"model": "words", "keep_alive": 0})
check("the model", "/api/show", {"name": "words:latest"})
for encoding in "float", "base64":
    check(encoding, "/v1/embeddings", {"input": ["a", "bow"], "encoding_format": encoding, "dimensions": 4})
check("a number", CHAT + "/input_tokens", {"messages": HELLO})
check("a number", RESPONSES + "/input_tokens", {"input": "plain"})
check("pairs", "/v1/score", {"text_1": "a", "text_2": ["bow", "river"]})
check("documents", "/v1/rerank", {"query": "a", "documents": ["bow", {"text": "river"}], "return_documents": True, "top_n": 1})
for path, body in ((CHAT, {"messages": []}), (COMPLETE, {}), (RESPONSES, {"input": "x", "background": True}), (MESSAGES, {}), (COUNT, {}),
                   (TOKENIZE, {}), (DETOKENIZE, {"tokens": [-1]}), (TEMPLATE, {}), ("/api/chat", {}), ("/api/generate", {}), ("/api/embed", {}), ("/api/embeddings", {}),
                   ("/api/show", {})):
    status, _, text = ask("POST", path, body)
    wrong = [e.message for e in Validator(strict(content(OPERATIONS[path, "post"], status)["application/json"]["schema"])).iter_errors(json.loads(text))]
    same((status, wrong), (400, []), f"POST {path}: an error")

made = check("to keep", RESPONSES, {"input": [{"role": "user", "content": "plain"}], "temperature": 0})["id"]
check("kept", f"/v1/responses/{made}", place="/v1/responses/{id}")
check("its items", f"/v1/responses/{made}/input_items?limit=1&order=asc", place="/v1/responses/{id}/input_items")
check("complete", f"/v1/responses/{made}/cancel", {}, place="/v1/responses/{id}/cancel")
check("forgotten", f"/v1/responses/{made}", method="DELETE", place="/v1/responses/{id}")
check("unknown", f"/v1/responses/{made}", place="/v1/responses/{id}")
check("names", "/v1/models")
check("names", "/v1/models", **{"anthropic-version": "2023-06-01"})
check("a name", "/v1/models/words", place="/v1/models/{model}")
check("a name", "/v1/models/words", place="/v1/models/{model}", **{"anthropic-version": "2023-06-01"})
check("a number", COUNT, {"messages": HELLO})
check("tokens", TOKENIZE, {"prompt": "a bow", "return_token_strs": True})
check("tokens", TOKENIZE, prompt("plain"))
check("tokens", TOKENIZE, {"content": "a bow"})
check("tokens", TOKENIZE, {"content": "a bow 🎻", "with_pieces": True})
check("a text", DETOKENIZE, {"tokens": [300, 301]})
check("a prompt", TEMPLATE, {"messages": HELLO})
check("a tree", "/cache?tokens=1")
check("too many", "/cache?limit=0")
check("empty", "/cache/flush", {})
check("unknown", "/abort?id=none", {})
for path in ("/", "/api/tags", "/api/ps", "/api/version", "/tokenizer_info", "/health", "/readyz", "/ping", "/livez", "/version", "/openapi.json", "/metrics"):
    check("well", path)
same({o for o, kinds in seen.items() if 2 in kinds} ^ set(OPERATIONS), {("/abort", "post")}, "every operation has been answered here but /abort")

connection.close()
s.stop()
shutil.rmtree(folder)
done()
