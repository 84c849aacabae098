"""Ollama's API: /api/chat and /api/generate, whole and as streams of lines; vectors, errors, models.

The pseudo model says what its golden.json has for a prompt, so the test makes a model whose answers have calls.
"""
import datetime
import glob
import json
import math
import os
import re
import shutil
import struct
import tempfile
import time

from harness import MODEL, Server, done, make_model, messages, ok, same

CHAT, GENERATE = "/api/chat", "/api/generate"
TOOLS = [{"type": "function", "function": {
    "name": "look_up", "description": "Looks a word up.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}, "n": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


BOW, NOW = call("look_up", '{"word": "bow é",\n "n": 2}'), call("now", "{}")
# What the user says -> what the model answers, and whether it thinks.
SAYS = {
    "plain": ("A bow.", False),
    "one": (BOW, False),
    "two": ("I look.\n" + BOW + "\n" + NOW, False),
    "broken": ('<tool_call>\n{"name": "look_up", "arguments": {"word": ' + NOW, False),
    "behind": (NOW + "\nDone.", False),
    "thought": ("Hm.\n</think>\n\n" + BOW, True),
    "thinks": ("Hm.\n</think>\n\nA bow.", True),
}
NUMBERS = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}


def ask(text, path=CHAT, **more):
    body = {"model": "lexis", **({"think": True} if SAYS.get(text, ("", False))[1] else {}), **more,
            "options": {"temperature": 0, "num_predict": 200, **more.get("options", {})}}
    if path == GENERATE:
        return {**body, "prompt": text}
    return {"messages": [{"role": "user", "content": text}], "tools": TOOLS, **body}


def whole(text, path=CHAT, **more):
    status, body = s.post(path, ask(text, path, **more, stream=False))
    if status != 200:
        raise RuntimeError(body)
    return body


def stream(body, path=CHAT):
    """The lines of a stream, parsed."""
    status, headers, data = s.request("POST", path, json.dumps(body))  # a stream is the default; no type is needed
    if status != 200:
        raise RuntimeError(data)
    assert headers["Content-Type"] == "application/x-ndjson" and data.endswith(b"\n"), (headers, data)
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def add_up(lines):
    """The object that a client puts together: the last line with the texts and calls of all."""
    sums = {"content": "", "thinking": "", "response": "", "tool_calls": []}
    for line in lines:
        message = line.get("message", line)
        for name in sums:
            sums[name] += message.get(name, sums[name][:0])
    message = lines[-1].get("message", lines[-1])
    message.update({k: v for k, v in sums.items() if v})
    return lines[-1]


def without_times(body):
    return {k: v for k, v in body.items() if k not in ("created_at",) and not k.endswith("_duration")}


def use(name, **arguments):
    return name, arguments


def parts(message):
    return (message["content"], message.get("thinking", ""),
            [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])])


where = tempfile.mkdtemp()
model = make_model(os.path.join(where, "lexis"), [
    ({"messages": messages(text), "tools": tools, "chat_template_kwargs": {"enable_thinking": thinks}}, answer)
    for text, (answer, thinks) in SAYS.items() for tools in (TOOLS, None)] + [
    ({"messages": [{"role": "system", "content": "Be brief."}, *messages("plain")]}, "Bow.")])
s = Server(model=model)
BOW_USE, NOW_USE = use("look_up", word="bow é", n=2), use("now")

# whole answers and streams
for says, want in (("plain", ("A bow.", "", [])), ("one", ("", "", [BOW_USE])), ("two", ("I look.", "", [BOW_USE, NOW_USE])),
                   ("broken", ("", "", [use("look_up"), NOW_USE])), ("behind", ("Done.", "", [NOW_USE])), ("thought", ("", "Hm.\n", [BOW_USE])), ("thinks", ("A bow.", "Hm.\n", []))):
    m, lines = whole(says), stream(ask(says))
    same((parts(m["message"]), m["done"], m["done_reason"]), (want, True, "stop"), f"{says}: whole")
    same([line["done"] for line in lines], [False] * (len(lines) - 1) + [True], f"{says}: the last line is marked")
    calls = [c for line in lines for c in line["message"].get("tool_calls", [])]
    same([c["function"]["index"] for c in calls], list(range(len(want[2]))), f"{says}: calls are whole and have numbers")
    m2 = add_up(lines)
    for c in (*m["message"].get("tool_calls", []), *m2["message"].get("tool_calls", [])):
        ok(re.fullmatch("call_[0-9A-Za-z]{24}", c.pop("id")), f"{says}: a call has an id")
    same(without_times(m2), without_times(m), f"{says}: the stream adds up to the same")

m = whole("plain")
ok(set(m) == {"model", "created_at", "message", "done", "done_reason"} | NUMBERS and m["model"] == "lexis"
   and all(type(m[n]) is int and m[n] >= 0 for n in NUMBERS), "the members of an answer", m)
when = datetime.datetime.fromisoformat(re.sub(r"\.(\d{6})\d*Z$", r".\1+00:00", m["created_at"])).timestamp()
ok(abs(when - time.time()) < 60, "created_at is the server's time", m["created_at"])
ok(m["eval_duration"] + m["prompt_eval_duration"] + m["load_duration"] <= m["total_duration"], "durations fit", m)
same(whole("plain", model="lexis:latest")["model"], "lexis:latest", "the tag latest, and the name is the request's")
same(whole("plain", options={"num_predict": 2})["done_reason"], "length", "num_predict")
m = whole("plain", options={"num_predict": 0})
same((m["message"]["content"], m["done_reason"]), ("A bow.", "stop"), "num_predict 0 is no limit")
same(whole("plain", options={"stop": [" bow"]})["message"]["content"], "A", "stop")
same(whole("plain", options={"stop": " bow", "num_ctx": 9, "num_predict": -1})["message"]["content"], "A", "one stop string")
m = whole("one", options={"num_predict": 12})
same((m["message"]["tool_calls"][0]["function"]["arguments"], m["done_reason"]) if m["message"].get("tool_calls") else m["done_reason"],
     ({}, "length") if m["message"].get("tool_calls") else "length", "a call that is cut has no arguments")
status, headers, data = s.request("POST", CHAT, json.dumps(ask("plain", stream=False)), {"Content-Type": "application/x-www-form-urlencoded"})
same((status, headers["Content-Type"], json.loads(data)["message"]["content"]), (200, "application/json", "A bow."), "any type is JSON")

# what one answers goes into the next prompt
m = whole("one")["message"]
same(set(m["tool_calls"][0]), {"id", "function"}, "a call")
next_turn = [{"role": "user", "content": "one"}, m, {"role": "tool", "content": "42", "tool_name": "look_up"}]
chat_turn = [next_turn[0], {"role": "assistant", "content": "", "tool_calls": [{**m["tool_calls"][0], "type": "function"}]},
             {"role": "tool", "name": "look_up", "content": "42"}]
status, a = s.post(CHAT, ask("", messages=next_turn, stream=False, options={"num_predict": 1}))
status, b = s.post("/v1/chat/completions", {"messages": chat_turn, "tools": TOOLS, "max_tokens": 1})
same((a["prompt_eval_count"], b["usage"]["prompt_tokens_details"]["cached_tokens"]), (b["usage"]["prompt_tokens"], b["usage"]["prompt_tokens"] // 64 * 64),
     "the prompt is that of the same chat, and shares the cache")

# /api/generate
for says, response, thinking in (("plain", "A bow.", ""), ("thinks", "A bow.", "Hm.\n")):
    m, m2 = whole(says, GENERATE), add_up(stream(ask(says, GENERATE), GENERATE))
    same((m["response"], m.get("thinking", ""), m["done_reason"]), (response, thinking, "stop"), f"generate: {says}")
    same(without_times(m2), without_times(m), "and as a stream")
same(whole("plain", GENERATE, system="Be brief.")["response"], "Bow.", "a system message")
status, prompt = s.post("/apply-template", {"messages": messages("plain")})
same(whole(prompt["prompt"], GENERATE, raw=True)["response"], "A bow.", "a raw prompt")

# format
schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
for form in ("json", schema):
    m = whole("x", format=form, tools=None)
    try:
        value = json.loads(m["message"]["content"]) if m["done_reason"] == "stop" else {}
    except ValueError:
        value = None
    ok(isinstance(value, dict) and m["message"]["content"].lstrip().startswith("{"), f"format {form}", m)
m = whole("plain", logprobs=True, top_logprobs=2)
ok("".join(t["token"] for t in m["logprobs"]) == "A bow." and len(m["logprobs"][0]["top_logprobs"]) == 2, "logprobs", m)

# loading
for path, text in ((CHAT, {"messages": []}), (GENERATE, {})):
    for more, reason in (({}, "load"), ({"keep_alive": 0}, "unload"), ({"keep_alive": "5m", "stream": False}, "load")):
        status, headers, data = s.request("POST", path, json.dumps({"model": "lexis", **text, **more}))
        m = json.loads(data)
        same((status, headers["Content-Type"], m["done"], m["done_reason"], m["model"]), (200, "application/json", True, reason, "lexis"),
             f"{path}: {more}")

# vectors
EMBED, EMBEDDINGS = "/api/embed", "/api/embeddings"
LONG = "word " * 20000
status, b = s.post("/v1/embeddings", {"input": ["a bow", "a violin"], "dimensions": 16})
want = [d["embedding"] for d in b["data"]]
status, headers, data = s.request("POST", EMBED, json.dumps({"model": "lexis:latest", "input": ["a bow", "a violin"], "dimensions": 16}))
m = json.loads(data)
same((status, headers["Content-Type"], m["model"], m["embeddings"], m["prompt_eval_count"]),
     (200, "application/json", "lexis:latest", want, b["usage"]["prompt_tokens"]), "embed: the vectors of /v1/embeddings")
ok(set(m) == {"model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"}
   and 0 < m["load_duration"] <= m["total_duration"] < 60e9, "embed: members and durations", m)
status, m = s.post(EMBED, {"model": "lexis", "input": "a bow", "dimensions": 16, "options": {"num_ctx": 9}})
same((status, m["embeddings"]), (200, want[:1]), "embed: a text alone")
status, m = s.post(EMBEDDINGS, {"model": "lexis", "prompt": "a violin"})
status, b = s.post("/v1/embeddings", {"input": "a violin"})
same(m, {"embedding": b["data"][0]["embedding"]}, "embeddings: one vector")
status, m = s.post(EMBED, {"model": "lexis", "input": LONG, "dimensions": 16})
status, b = s.post("/v1/embeddings", {"input": LONG, "dimensions": 16, "truncate_prompt_tokens": -1})
same((m["embeddings"], m["prompt_eval_count"]), ([b["data"][0]["embedding"]], 4096), "embed: a text that is too long is cut")
same(s.post(EMBED, {"model": "lexis", "input": []}), (200, {"model": "lexis", "embeddings": []}), "embed: no text")
same(s.post(EMBEDDINGS, {"model": "lexis", "keep_alive": 0}), (200, {"embedding": []}), "embeddings: no text")

# errors
for path, body, status, text in (
        (EMBED, {"model": "lexis", "input": LONG, "truncate": False}, 400, "this server's context is"),
        (EMBED, {"model": "lexis", "input": "a", "dimensions": 1 << 20}, 400, "dimensions is 1048576"),
        (EMBED, {"model": "other", "input": "a"}, 404, "model 'other' not found"),
        (EMBEDDINGS, {"model": "lexis", "prompt": ["a"]}, 400, "prompt is"),
        (CHAT, ask("x", model="other"), 404, "model 'other' not found"),
        (GENERATE, {"model": "other"}, 404, "model 'other' not found"),
        ("/api/show", {"model": "other"}, 404, "model 'other' not found"),
        (CHAT, {"messages": []}, 400, "model is missing"),
        (CHAT, ask("x", messages=[{"role": "user", "content": "x", "images": ["aa"]}]), 400, "messages[0].images is not supported"),
        (CHAT, ask("x", options={"temperature": 9}), 400, "options.temperature is 9"),
        (CHAT, ask("x", format={"type": "number", "multipleOf": 0.1}), 400, "format: "),
        (GENERATE, ask("x", GENERATE, suffix="y"), 400, "suffix is not supported"),
        (GENERATE, ask("word " * 20000, GENERATE), 400, "are in the prompt"),
        (CHAT, ask("", messages=[{"role": "user", "content": ""}] * 999 + [{"role": "user", "content": "word " * 20000}]), 400, "are in the messages"),
        (CHAT, b"{", 400, "JSON")):
    got, answer = s.post(path, body)
    ok(got == status and list(answer) == ["error"] and text in answer["error"], f"{path}: {text}", answer)
got, answer = s.post("/api/pull", {"model": "x"})
same((got, answer), (404, {"error": "there is nothing at /api/pull"}), "another path")
status, headers, data = s.request("GET", CHAT)
ok(status == 405 and isinstance(json.loads(data)["error"], str), "another method", data)
long_chat = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word " * 700} for i in range(9)]
m = whole("", messages=long_chat, options={"num_predict": 1})
ok(m["prompt_eval_count"] > 700, "of a chat that is too long the oldest messages are left out", m)
got, answer = s.post(CHAT, ask("", messages=long_chat, truncate=False))
ok(got == 400 and "this server's context is" in answer["error"], "unless truncate is false", answer)

# models
status, tags = s.get("/api/tags")
m = json.loads(tags)["models"]
same(len(m), 1, "/api/tags has the model")
m = m[0]
ok(m["name"] == m["model"] == "lexis:latest" and re.fullmatch("[0-9a-f]{64}", m["digest"])
   and m["details"]["family"] == "qwen3_5_moe" and re.fullmatch(r"[\d.]+[MB]", m["details"]["parameter_size"])
   and m["capabilities"] == ["completion", "embedding", "tools", "thinking"], "with its details", m)
same(s.request("HEAD", "/api/tags")[0], 200, "HEAD /api/tags")
p = json.loads(s.get("/api/ps")[1])["models"][0]
ok((p["name"], p["digest"]) == (m["name"], m["digest"]) and p["expires_at"] > "2200" and p["context_length"] > 0
   and type(p["size_vram"]) is int, "/api/ps", p)
status, show = s.post("/api/show", {"model": m["name"]})
with open(os.path.join(MODEL, "chat_template.jinja")) as f:
    same(show["template"], f.read(), "/api/show: the template")
info = show["model_info"]
n_parameters = 0
for name in glob.glob(os.path.join(MODEL, "*.safetensors")):
    with open(name, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    n_parameters += sum(math.prod(t["shape"]) for k, t in head.items() if k != "__metadata__" and not k.startswith("mtp."))
same(info["general.parameter_count"], n_parameters, "the number of its parameters")
same(s.post("/api/embed", {"model": "lexis", "input": "a"})[0], 200, "embedding is a capability that it has")
ok(show["details"] == m["details"] and show["capabilities"] == m["capabilities"] and info["general.architecture"] == "qwen3_5_moe"
   and info["qwen3_5_moe.context_length"] == p["context_length"], "and the rest", info)
same(s.post("/api/show", {"name": "lexis"})[1], show, "by the older name of the member")
ok(re.fullmatch(r"\d+\.\d+\.\d+", json.loads(s.get("/api/version")[1])["version"]), "/api/version")
status, headers, data = s.request("GET", "/")
same((status, data, headers["Content-Type"]), (200, b"Ollama is running", "text/plain; charset=utf-8"), "/")
same(s.request("HEAD", "/")[0], 200, "HEAD /")
s.stop()

# A stream that fails ends with a line that says so.
s = Server(model=model, env={"FAKE_FAIL_STEP": "6"})
lines = stream(ask("two"))
ok(len(lines) > 1 and not lines[0]["done"] and list(lines[-1]) == ["error"] and lines[-1]["error"], "a stream that fails", lines[-1])
s.kill()
shutil.rmtree(where)
done()
