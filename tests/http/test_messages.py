"""/v1/messages and /v1/messages/count_tokens, Anthropic's API: answers, streams, errors, and what is cached of an agent's
next turn.

The pseudo model says what its golden.json has for a prompt, so the test makes a model whose answers have calls.
"""
import json
import os
import re
import shutil
import tempfile

from harness import Server, done, make_model, messages, ok, same, wait_for

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
VERSION = {"anthropic-version": "2023-06-01"}
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [{"name": "look_up", "description": "Looks a word up.", "input_schema": SCHEMA},
         {"name": "now", "input_schema": {"type": "object"}}]
CHAT_TOOLS = [{"type": "function", "function": {
    "name": t["name"], **({"description": t["description"]} if "description" in t else {}),
    "parameters": t["input_schema"]}} for t in TOOLS]


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


BOW, NOW = call("look_up", '{"word": "bow é", "n": 2}'), call("now", "{}")
# What the user says -> what the model answers, and whether it thinks.
SAYS = {
    "plain": ("A bow.", False),
    "one": (BOW, False),
    "two": ("I look.\n" + BOW + "\n" + NOW, False),
    "behind": (NOW + "\nDone.", False),
    "thought": ("Hm.\n</think>\n\n" + BOW, True),
    "thinks": ("Hm.\n</think>\n\nA bow.", True),
}


def ask(text, **more):
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if SAYS.get(text, ("", False))[1] else {}
    return {"model": "lexis", "max_tokens": 200, "temperature": 0, "messages": [{"role": "user", "content": text}],
            "tools": TOOLS, **thinking, **more}


def whole(text, **more):
    status, body = s.post(MESSAGES, ask(text, **more), VERSION)
    if status != 200:
        raise RuntimeError(body)
    return body


def events(body, server=None):
    """The events of a stream, as pairs of name and data."""
    status, headers, data = (server or s).request("POST", MESSAGES, json.dumps({**body, "stream": True}),
                                                  {"Content-Type": "application/json", **VERSION})
    if status != 200:
        raise RuntimeError(data)
    assert headers["Content-Type"].startswith("text/event-stream")
    got = []
    for part in data.decode().split("\n\n")[:-1]:
        name, text = re.fullmatch(r"event: (\w+)\ndata: (.*)", part).groups()
        got.append((name, json.loads(text)))
        assert got[-1][1]["type"] == name
    return got


def add_up(stream):
    """The message that a client puts together."""
    message = inputs = None
    for name, data in stream:
        if name == "message_start":
            message, inputs = data["message"], {}
        elif name == "content_block_start":
            assert data["index"] == len(message["content"])
            message["content"].append(data["content_block"])
            inputs[data["index"]] = ""
        elif name == "content_block_delta":
            block, delta = message["content"][data["index"]], data["delta"]
            if delta["type"] == "input_json_delta":
                inputs[data["index"]] += delta["partial_json"]
            else:
                member = delta["type"].removesuffix("_delta")
                block[member] += delta[member]
        elif name == "content_block_stop" and message["content"][data["index"]]["type"] == "tool_use":
            message["content"][data["index"]]["input"] = json.loads(inputs[data["index"]])
        elif name == "message_delta":
            message.update(data["delta"])
            message["usage"] = data["usage"]
    return message


def blocks(message):
    """The blocks without ids and signatures."""
    return [{k: v for k, v in b.items() if k not in ("id", "signature")} for b in message["content"]]


def text(t):
    return {"type": "text", "text": t}


def thought(t):
    return {"type": "thinking", "thinking": t}


def use(name, **arguments):
    return {"type": "tool_use", "name": name, "input": arguments}


where = tempfile.mkdtemp()
model = make_model(os.path.join(where, "lexis"), [
    ({"messages": messages(text), "tools": tools, "chat_template_kwargs": {"enable_thinking": thinks}}, answer)
    for text, (answer, thinks) in SAYS.items() for tools in (CHAT_TOOLS, None)])
s = Server(model=model)
BOW_USE = use("look_up", word="bow é", n=2)

# whole answers and streams
for says, want, reason in (("plain", [text("A bow.")], "end_turn"),
                           ("one", [BOW_USE], "tool_use"),
                           ("two", [text("I look."), BOW_USE, use("now")], "tool_use"),
                           ("behind", [use("now"), text("Done.")], "tool_use"),
                           ("thought", [thought("Hm.\n"), BOW_USE], "tool_use"),
                           ("thinks", [thought("Hm.\n"), text("A bow.")], "end_turn")):
    m = whole(says)
    same((blocks(m), m["stop_reason"], m["stop_sequence"]), (want, reason, None), f"{says}: whole")
    got = events(ask(says))
    m = add_up(got)
    same((blocks(m), m["stop_reason"], m["stop_sequence"]), (want, reason, None), f"{says}: streamed")
    names = [name for name, _ in got]
    same((names[0], names[-2:], names.count("content_block_start"), names.count("content_block_stop")),
         ("message_start", ["message_delta", "message_stop"], len(want), len(want)), f"{says}: the order of events")

m = whole("two")
ok(re.fullmatch("msg_[0-9a-f]+", m["id"]) and m["type"] == "message" and m["role"] == "assistant" and m["model"] == "lexis"
   and set(m) == {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}, "the message", m)
ids = [b["id"] for b in m["content"] if b["type"] == "tool_use"]
ok(len(set(ids)) == 2 and all(re.fullmatch("toolu_[0-9A-Za-z]{24}", i) for i in ids), "each call has an id", ids)
m = whole("thinks")
same(m["content"][0]["signature"], m["id"], "thinking is signed")
got = events(ask("thinks"))
ok(any(d.get("delta", {}).get("type") == "signature_delta" for _, d in got), "in a stream, too", got)
start = got[0][1]["message"]
same((start["content"], start["stop_reason"]), ([], None), "message_start has no content")
ok(start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"] > 10, "but the prompt's tokens", start)
ok(set(got[-2][1]) == {"type", "delta", "usage"} and got[-2][1]["usage"]["output_tokens"] > 3, "message_delta", got[-2])
same(set(got[-1][1]), {"type"}, "message_stop")

# edits of the conversation
edits = {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}}
none = {"applied_edits": []}
same((whole("plain", **edits)["context_management"], events(ask("plain", **edits))[-2][1]["context_management"]), (none, none),
     "none is made, and the answer says so")
same(blocks(whole("plain", **edits)), [text("A bow.")], "to the whole conversation")

# how answers end
m = whole("plain", max_tokens=2)
same((m["stop_reason"], m["usage"]["output_tokens"]), ("max_tokens", 2), "max_tokens")
m = whole("plain", stop_sequences=["zzz", " bow"])
same((blocks(m), m["stop_reason"], m["stop_sequence"]), ([text("A")], "stop_sequence", " bow"), "stop_sequences")
m = add_up(events(ask("plain", stop_sequences=["zzz", " bow"])))
same((blocks(m), m["stop_reason"], m["stop_sequence"]), ([text("A")], "stop_sequence", " bow"), "in a stream, too")
m = whole("two", tool_choice={"type": "auto", "disable_parallel_tool_use": True})
same((blocks(m), m["stop_reason"]), ([text("I look."), BOW_USE], "tool_use"), "disable_parallel_tool_use: one call")
m = whole("two", tool_choice={"type": "none"})
ok([b["type"] for b in m["content"]] == ["text"] and m["content"][0]["text"].startswith("I look.\n") and
   "<tool_call>" not in m["content"][0]["text"], "tool_choice none: no calls", m)
none, auto = (s.post(COUNT, {"tools": TOOLS, "messages": [{"role": "user", "content": "two"}], "tool_choice": {"type": t}})
              for t in ("none", "auto"))
ok(none == auto and none[0] == 200, "the prompt is that of other turns", (none, auto))
for choice, names in ({"type": "any"}, {"look_up", "now"}), ({"type": "tool", "name": "now"}, {"now"}):
    m = whole("plain", tool_choice=choice, max_tokens=300)
    uses = [b for b in m["content"] if b["type"] == "tool_use"]
    ok(uses and {b["name"] for b in uses} <= names and m["stop_reason"] in ("tool_use", "max_tokens"), f"tool_choice {choice}", m)
m = whole("one", max_tokens=18)
same((blocks(m), m["stop_reason"]), ([use("look_up")], "max_tokens"), "a call that is cut has no input")
m = whole("plain", max_tokens=10**6)
same(blocks(m), [text("A bow.")], "max_tokens beyond the context: as many as fit are enough")
m = whole("plain", ignore_eos=True, max_tokens=10**6)
ok(m["stop_reason"] == "model_context_window_exceeded" and m["usage"]["output_tokens"] > 1000, "which can end the answer", m["usage"])
m = whole("plain", max_tokens=0)
same((m["content"], m["stop_reason"]), ([], "max_tokens"), "max_tokens 0: the prompt is cached, and that is all")
m = whole("thinks", thinking={"type": "disabled"})
ok(all(b["type"] != "thinking" for b in m["content"]), "thinking is off unless it is asked for", m)

# the answer goes on
status, chat = s.post("/apply-template", {"messages": [{"role": "user", "content": "plain"}]})
ids = s.post("/tokenize", {"prompt": chat["prompt"] + "A b", "add_special_tokens": False})[1]["tokens"]
prefilled = {"messages": [{"role": "user", "content": "plain"}, {"role": "assistant", "content": "A b"}]}
same(s.post(COUNT, prefilled)[1], {"input_tokens": len(ids)}, "a last message of the assistant is the prompt's end")
same(s.post(MESSAGES, {**prefilled, "max_tokens": 3})[0], 200, "and is gone on with")

# counting
for body in ({"messages": [{"role": "user", "content": "Hello world"}]},
             {"system": "You are a dictionary.", "tools": TOOLS, "messages": [{"role": "user", "content": "hi"}]},
             {"tools": TOOLS, "tool_choice": {"type": "any"}, "messages": [{"role": "user", "content": "hi"}]}):
    m = s.post(MESSAGES, {**body, "max_tokens": 1})[1]["usage"]
    n = s.post(COUNT, body)[1]
    same(n, {"input_tokens": m["input_tokens"] + m["cache_read_input_tokens"]}, "count_tokens counts what the prompt has")

# An agent's turns: its first line changes, and the prompt is found all the same.
words = " ".join(f"rule {i}" for i in range(300))


def turn(n, messages):
    return {"max_tokens": 4, "temperature": 0, "tools": TOOLS, "messages": messages, "system": [
        text(f"x-anthropic-billing-header: cc_version=2.1.{n}; cch={n:05x};"),
        {**text(words), "cache_control": {"type": "ephemeral"}}]}


first = [{"role": "user", "content": "say something"}]
before = s.metrics()["billing_lines_dropped_total"]
one = s.post(MESSAGES, turn(1, first))[1]
second = [*first, {"role": "assistant", "content": one["content"]}, {"role": "user", "content": "and more"}]
two = s.post(MESSAGES, turn(2, second))[1]
usage = one["usage"]
ok(usage["cache_read_input_tokens"] == 0 and usage["input_tokens"] > 600 and usage["cache_creation_input_tokens"] == 0,
   "nothing is cached of the first turn", usage)
ok(two["usage"]["cache_read_input_tokens"] >= usage["input_tokens"] - 64 and two["usage"]["input_tokens"] < 128,
   "and the next turn finds it", (usage, two["usage"]))
same(s.metrics()["billing_lines_dropped_total"] - before, 2, "the lines that were dropped are counted")
start = events(turn(3, second))[0][1]["message"]["usage"]
ok(start["cache_read_input_tokens"] >= two["usage"]["cache_read_input_tokens"], "a stream's first event has it, too", start)

# Thinking that comes back is where the template wants it.
back = [{"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "I should look.", "signature": "x"},
                                          {"type": "tool_use", "id": "t", "name": "look_up", "input": {"word": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [text("42")]}]}]
counts = [s.post(COUNT, {"tools": TOOLS, "messages": back})[1]["input_tokens"]]
back[1]["content"].pop(0)
counts.append(s.post(COUNT, {"tools": TOOLS, "messages": back})[1]["input_tokens"])
ok(counts[0] > counts[1], "thinking that a client sends back is in the prompt", counts)

# errors
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def error(body, path=MESSAGES, headers=None):
    status, answer = s.post(path, body, headers)
    assert answer["type"] == "error" and set(answer["error"]) == {"type", "message"}, answer
    return status, answer["error"]["type"], answer["error"]["message"]


for name, body, want, says in (
        ("no max_tokens", {"messages": [{"role": "user", "content": "a"}]}, (400, "invalid_request_error"), "max_tokens is missing"),
        ("bad JSON", b"{", (400, "invalid_request_error"), "not valid JSON"),
        ("an image", ask("plain", messages=[{"role": "user", "content": [IMAGE]}]), (400, "invalid_request_error"),
         'messages[0].content[0].type is "image"'),
        ("an image in a result", ask("plain", messages=[*back[:2], {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}]}]), (400, "invalid_request_error"), '"image"'),
        ("a result without its call", ask("plain", messages=[{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "42"}]}]), (400, "invalid_request_error"),
         'messages[0].content[0].tool_use_id is "t", but must be the id of a tool call before it'),
        ("results that are cleared", ask("plain", context_management={"edits": [{"type": "clear_tool_uses_20250919"}]}),
         (400, "invalid_request_error"), "context_management.edits[0]: clear_tool_uses_20250919 is not supported"),
        ("a server's tool", ask("plain", tools=[{"type": "web_search_20250305", "name": "web_search"}]),
         (400, "invalid_request_error"), "tools[0].type"),
        ("an unknown model", ask("plain", model="claude"), (404, "not_found_error"), "claude"),
        ("a prompt that is too long", ask("plain", messages=[{"role": "user", "content": "a b " * 20000}]),
         (400, "invalid_request_error"), "prompt is too long: ")):
    status, kind, message = error(body)
    ok((status, kind) == want and says in message, f"{name}: {want}", (status, kind, message))
    status, kind, message = error({**body, "stream": True} if isinstance(body, dict) else body)
    ok((status, kind) == want, f"{name}: the same before a stream", (status, kind, message))
same(error(b"{}", headers={"Content-Type": "text/plain"})[:2], (415, "invalid_request_error"), "another content type")
same(error({"messages": []}, COUNT)[:2], (400, "invalid_request_error"), "count_tokens: its errors")
status, headers, data = s.request("GET", MESSAGES)
same((status, headers["Allow"], json.loads(data)["error"]["type"]), (405, "POST, OPTIONS", "invalid_request_error"), "GET")
for path in MESSAGES + "/batches", "/messages/batches":
    status, headers, data = s.request("GET", path)
    same((status, headers["request-id"], json.loads(data)["type"], json.loads(data)["error"]),
         (404, headers["X-Request-Id"], "error", {"type": "not_found_error", "message": f"there is nothing at {path}"}), path)

# headers
for body in ask("plain"), {}:
    _, headers, _ = s.request("POST", MESSAGES + "?beta=true", json.dumps(body), {
        "Content-Type": "application/json", "anthropic-beta": "x", **VERSION})
    ok(headers["request-id"] and headers["request-id"] == headers["X-Request-Id"], "request-id", headers)
for method, path, headers in ("POST", MESSAGES, {"Content-Type": "text/plain"}), ("GET", MESSAGES, {}), \
        ("POST", MESSAGES, {"Content-Type": "application/json", "Host": "elsewhere.example"}):
    status, headers, _ = s.request(method, path, "{}" if method == "POST" else None, {**VERSION, **headers})
    ok(status in (403, 405, 415) and headers["request-id"].startswith("req_") and headers["request-id"] == headers["X-Request-Id"],
       f"request-id of an answer with status {status}", headers)
    ok(wait_for(lambda: headers["request-id"] in s.text()), "which is in the log")
same(s.request("POST", "/v1/chat/completions", "{}", {"Content-Type": "application/json"})[1]["request-id"], None,
     "which the other API does not have")

# models
status, body = s.get("/v1/models")
same((json.loads(body)["object"], [m["object"] for m in json.loads(body)["data"]]), ("list", ["model"]), "/v1/models as ever")
status, _, body = s.request("GET", "/v1/models", headers=VERSION)
body = json.loads(body)
ok(status == 200 and body["has_more"] is False and body["first_id"] == body["last_id"] == "lexis" and
   body["data"][0]["type"] == "model" and body["data"][0]["id"] == body["data"][0]["display_name"] == "lexis" and
   re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", body["data"][0]["created_at"]), "/v1/models with anthropic-version", body)
status, _, one = s.request("GET", "/v1/models/lexis", headers=VERSION)
same((status, json.loads(one)), (200, body["data"][0]), "/v1/models/lexis")
status, _, one = s.request("GET", "/v1/models/claude", headers=VERSION)
same((status, json.loads(one)["type"], json.loads(one)["error"]["type"]), (404, "error", "not_found_error"), "an unknown one")
s.stop()

# keys
keys = os.path.join(where, "keys")
with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
    f.write("sk-one\n")
s = Server("--api-key-file", keys, "--served-model-name", "*", model=model)
same([s.post(MESSAGES, ask("plain", model="claude-opus"), h)[0] for h in
      ({"x-api-key": "sk-one"}, {"Authorization": "Bearer sk-one"})], [200, 200], "either header has the key")
same(error(ask("plain"), headers={"x-api-key": "sk-two"})[:2], (401, "authentication_error"), "a wrong key")
s.stop()

# a server that does not know the format of calls
s = Server("--tool-call-parser", "none", model=model)
got = error(ask("plain", tool_choice={"type": "auto", "disable_parallel_tool_use": True}))
ok(got[0] == 400 and got[2].startswith("tool_choice.disable_parallel_tool_use "), "an error names the parameter as this API has it", got)
s.stop()

# a failure within a stream, and a sign of life before it
s = Server(model=model, env={"FAKE_FAIL_STEP": "3", "FAKE_STEP_US": "200000"})
got = events(ask("plain", ignore_eos=True))
same((got[0][0], got[-1][0], got[-1][1]["error"]["type"]), ("message_start", "error", "api_error"), "a failure ends the stream")
shutil.rmtree(where)
done()
