"""/v1/responses: answers and streams, tools, reasoning, structured text, usage, and the responses that are kept.

The pseudo model says what its golden.json has for a prompt, so the test makes a model whose answers have calls and reasoning.
With the openai SDK it is asked as clients ask.
"""
import http.client
import json
import os
import shutil
import tempfile
import typing

from harness import Server, done, make_model, messages, ok, same, wait_for

try:
    import openai
except ImportError:
    openai = None

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [{"type": "function", "name": "look_up", "description": "Looks up.", "parameters": PARAMETERS},
         {"type": "function", "name": "now"}]
CHAT_TOOLS = [{"type": "function", "function": {k: v for k, v in t.items() if k != "type"}} for t in TOOLS]


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


BOW, NOW = call("look_up", '{"word": "bow é", "n": 2}'), call("now", "{}")
# What the user says -> what the model answers, whether it thinks, whether it has tools.
SAYS = {"plain": ("A \"bow\" é.", False, False),
        "thought": ("Hm.\nA bow?</think>\n\nYes.", True, False),
        "one": (BOW, False, True),
        "two": ("I look.\n" + BOW + "\n" + NOW, False, True),
        "behind": (NOW + "\nDone.", False, True),
        "both": ("Hm.</think>\n\nI look.\n" + BOW, True, True)}


def user(text):
    return {"role": "user", "content": text}


def thinks(text):
    return {"reasoning": {"effort": "low"}} if SAYS[text][1] else {}


def tools(text):
    return {"tools": TOOLS} if SAYS[text][2] else {}


where = tempfile.mkdtemp()
model = make_model(os.path.join(where, "lexis"), [
    ({"messages": messages(text), "tools": CHAT_TOOLS if with_tools else None, "reasoning_effort": "low" if think else None}, answer)
    for text, (answer, think, with_tools) in SAYS.items()])
s = Server(model=model)


def ask(say, **more):
    known = {"max_output_tokens": 200, **thinks(say), **tools(say)} if say in SAYS else {"max_output_tokens": 20}
    return {"input": say, "temperature": 0, **known, **more}


def whole(say="plain", server=s, **more):
    status, body = server.post(RESPONSES, ask(say, **more))
    if status != 200:
        raise RuntimeError(body)
    return body


def summary(body):
    """(type, text or name and arguments) of each item."""
    out = []
    for item in body["output"]:
        if item["type"] == "function_call":
            out.append(("function_call", item["name"], item["arguments"]))
        else:
            out.append((item["type"], "".join(part["text"] for part in item["content"])))
    return out


def events(body, server=s):
    c = server.connect()
    c.request("POST", RESPONSES, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        raise RuntimeError(r.read())
    got = []
    for part in r.read().decode().split("\n\n"):
        lines = [line for line in part.split("\n") if line and not line.startswith(":")]
        if lines:
            assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "), part
            event = json.loads(lines[1].removeprefix("data: "))
            assert event["type"] == lines[0].removeprefix("event: ")
            got.append(event)
    c.close()
    return got


def comparable(body):
    """A response without what differs between two equal requests."""
    names = {}

    def rename(v):
        if isinstance(v, dict):
            return {k: names.setdefault(x, f"{k} {len(names)}") if k in ("id", "call_id") else rename(x)
                    for k, x in v.items() if k not in ("created_at", "usage")}
        return [rename(x) for x in v] if isinstance(v, list) else v

    return rename(body)


# ---- whole answers ----
first = whole()
same(summary(first), [("message", SAYS["plain"][0])], "a text")
ok(first["id"].startswith("resp_") and first["object"] == "response" and first["status"] == "completed" and
   first["error"] is None and first["incomplete_details"] is None and first["output"][0]["id"].startswith("msg_") and
   first["model"] == "lexis" and first["store"] and first["tools"] == [] and first["text"] == {"format": {"type": "text"}},
   "what stands beside it", first)
usage = first["usage"]
chat = s.post(CHAT, {"messages": [user("plain")], "temperature": 0, "max_tokens": 200})[1]
same((usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]),
     tuple(chat["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")), "usage as in chat")
again = whole("plain", instructions="Words " * 100)
again = whole("plain", instructions="Words " * 100)
ok(again["usage"]["input_tokens_details"]["cached_tokens"] > 0, "cached tokens", again["usage"])
same(summary(whole("thought")), [("reasoning", "Hm.\nA bow?"), ("message", "Yes.")], "reasoning is an item")
ok(whole("thought")["usage"]["output_tokens_details"]["reasoning_tokens"] > 0, "whose tokens are counted")
LOOK = ("function_call", "look_up", '{"word": "bow é", "n": 2}')
same(summary(whole("one")), [LOOK], "a call")
same(summary(whole("two")), [("message", "I look."), LOOK, ("function_call", "now", "{}")], "a text and two calls")
same(summary(whole("two", parallel_tool_calls=False)), [("message", "I look."), LOOK], "parallel_tool_calls false")
same(summary(whole("both")), [("reasoning", "Hm."), ("message", "I look."), LOOK], "reasoning, a text and a call")
same(summary(whole("behind"))[:2], [("function_call", "now", "{}"), ("message", "Done.")], "text behind a call")
for choice, names in (("required", {"look_up", "now"}), ({"type": "function", "name": "now"}, {"now"}),
                      ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]}, {"now"})):
    forced = whole("plain", tools=TOOLS, tool_choice=choice)
    ok(forced["output"][0]["type"] == "function_call" and forced["output"][0]["name"] in names and
       forced["tool_choice"] == choice, f"tool_choice {choice}", forced)
ok(all(item["type"] == "message" for item in whole("one", tool_choice="none")["output"]), "tool_choice none")
cut = whole("plain", max_output_tokens=2)
ok(cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"} and
   cut["output"][-1]["status"] == "incomplete" and SAYS["plain"][0].startswith(summary(cut)[0][1]), "max_output_tokens", cut)
text = whole("plain", text={"format": {"type": "json_schema", "name": "n", "schema": {
    "type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}}})
ok(json.loads(summary(text)[0][1])["a"] in (1, 2), "a schema", text)
probable = whole("plain", include=["message.output_text.logprobs"], top_logprobs=2)["output"][0]["content"][0]
ok("".join(t["token"] for t in probable["logprobs"]) == probable["text"] and len(probable["logprobs"][0]["top_logprobs"]) == 2,
   "log-probabilities", probable)
same(whole("thought", include=["reasoning.encrypted_content"])["output"][0]["encrypted_content"], "tigon:Hm.\nA bow?",
     "encrypted_content")

# ---- streams ----
for text in SAYS:
    body = ask(text, include=["message.output_text.logprobs"])
    got = events(body)
    same([e["sequence_number"] for e in got], list(range(len(got))), f"{text}: sequence numbers")
    same([e["type"] for e in got[:2]] + [got[-1]["type"]],
         ["response.created", "response.in_progress", "response.completed"], f"{text}: first and last")
    same(comparable(got[-1]["response"]), comparable(whole(text, include=["message.output_text.logprobs"])),
         f"{text}: the response of a stream is the whole one")
    same([e["item"] for e in got if e["type"] == "response.output_item.done"], got[-1]["response"]["output"],
         f"{text}: its items are complete before")
types = [e["type"].removeprefix("response.") for e in events(ask("both"))]
shown = [t for i, t in enumerate(types) if not t.endswith("delta") or types[i - 1] != t]
same(shown, ["created", "in_progress", *(
    x for kind in ("reasoning_text", "output_text") for x in (
        "output_item.added", "content_part.added", kind + ".delta", kind + ".done", "content_part.done", "output_item.done")),
    "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done", "completed"],
     "the events, in order")
got = events(ask("plain", max_output_tokens=2))
ok(got[-1]["type"] == "response.incomplete" and got[-1]["response"]["status"] == "incomplete", "a stream that is cut", got[-1])

wide = {"user": "y" * 200000}
got = events(ask("plain", **wide))
same((got[-1]["type"], got[-1]["response"]["user"], summary(got[-1]["response"])),
     ("response.completed", wide["user"], [("message", SAYS["plain"][0])]), "events of 200 KB")

# ---- earlier responses ----
answer = whole("one")
output = [{"type": "function_call_output", "call_id": answer["output"][0]["call_id"], "output": "a weapon"}]
by_id = whole("?", input=output, previous_response_id=answer["id"], tools=TOOLS)
by_hand = whole("?", input=[user("one"), *answer["output"], *output], tools=TOOLS)
by_chat = s.post(CHAT, {"temperature": 0, "max_tokens": 20, "tools": CHAT_TOOLS, "messages": [
    user("one"), {"role": "assistant", "content": None, "tool_calls": [
        {"id": answer["output"][0]["call_id"], "type": "function", "function": {
            "name": "look_up", "arguments": answer["output"][0]["arguments"]}}]},
    {"role": "tool", "tool_call_id": answer["output"][0]["call_id"], "content": "a weapon"}]})[1]
same({r["usage"]["input_tokens"] for r in (by_id, by_hand)}, {by_chat["usage"]["prompt_tokens"]},
     "previous_response_id, the items by hand, and chat have one prompt")
same(summary(by_id), summary(by_hand), "and one answer")
third = whole("?", input="And?", previous_response_id=by_id["id"], tools=TOOLS)
ok(third["usage"]["input_tokens"] > by_id["usage"]["input_tokens"] and third["previous_response_id"] == by_id["id"],
   "a third turn", third["usage"])
same(s.post(RESPONSES + "/input_tokens", {"input": "And?", "previous_response_id": by_id["id"], "tools": TOOLS,
                                          "tool_choice": "required"}),
     (200, {"object": "response.input_tokens", "input_tokens": third["usage"]["input_tokens"]}), "/input_tokens counts it")
status, items = s.post(RESPONSES, {"input": "x", "previous_response_id": "resp_none"})
same((status, items["error"]["code"], items["error"]["param"]), (400, "previous_response_not_found", "previous_response_id"),
     "an unknown earlier response")


def get(path, server=s, method="GET", **headers):
    status, _, body = server.request(method, path, headers=headers)
    return status, json.loads(body)


same(get(f"{RESPONSES}/{first['id']}"), (200, first), "GET gives the response")
streamed = events(ask("both"))[-1]["response"]
same(get(f"{RESPONSES}/{got[-1]['response']['id']}"), (200, got[-1]["response"]), "also a long one")
same(get(f"/responses/{streamed['id']}"), (200, streamed), "also one that was streamed")
same(get(f"{RESPONSES}/{cut['id']}")[1]["status"], "incomplete", "and one that is incomplete")
status, items = get(f"{RESPONSES}/{third['id']}/input_items?order=asc")
same([i["type"] for i in items["data"]], ["message", "function_call", "function_call_output", "message", "message"],
     "input_items: the whole conversation")
ok(all(i["id"] for i in items["data"]) and not items["has_more"] and items["first_id"] == items["data"][0]["id"], "with ids", items)
status, page = get(f"{RESPONSES}/{third['id']}/input_items?limit=2&after={items['data'][2]['id']}")
same(([i["id"] for i in page["data"]], page["has_more"]), ([i["id"] for i in items["data"][1::-1]], False), "a page of them")
long = whole("?", input=[{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "y" * 2000000}]},
                         *[user(f"Say {i}.") for i in range(50)]])
status, page = get(f"{RESPONSES}/{long['id']}/input_items?limit=5")
same(([i["content"][0]["text"] for i in page["data"]], page["has_more"], page["last_id"]),
     ([f"Say {i}." for i in range(49, 44, -1)], True, page["data"][-1]["id"]), "a page of a long conversation")
same(len(get(f"{RESPONSES}/{long['id']}/input_items")[1]["data"]), 20, "has 20 items")
behind = whole("?", input="And?", previous_response_id=long["id"])
ok(behind["usage"]["input_tokens"] > long["usage"]["input_tokens"], "which goes on", behind["usage"])
page = get(f"{RESPONSES}/{behind['id']}/input_items?limit=100&order=asc")[1]
same((len(page["data"]), len(page["data"][0]["content"][0]["text"]), page["data"][-1]["content"][0]["text"]),
     (51 + len(long["output"]) + 1, 2000000, "And?"), "to its end")
same(get(f"{RESPONSES}/{third['id']}/input_items?limit=0")[0], 400, "a bad limit")
same(get(f"{RESPONSES}/{third['id']}/input_items?after=x")[0], 400, "a bad after")
same(get(f"{RESPONSES}/{third['id']}?stream=true")[0], 400, "no stream of what is kept")
same(get(f"{RESPONSES}/{answer['id']}", method="DELETE"), (200, {"id": answer["id"], "object": "response", "deleted": True}),
     "DELETE")
same((get(f"{RESPONSES}/{answer['id']}")[0], get(f"{RESPONSES}/{answer['id']}", method="DELETE")[0]), (404, 404), "it is gone")
same(get(f"{RESPONSES}/{answer['id']}")[1]["error"]["code"], "response_not_found", "with its code")
same(len(get(f"{RESPONSES}/{third['id']}/input_items")[1]["data"]), 5, "and the conversation behind it is whole")
same(get(f"{RESPONSES}/{whole('plain', store=False)['id']}")[0], 404, "store false keeps nothing")
same(get(f"{RESPONSES}/{first['id']}", method="PUT")[0], 405, "no PUT")
status, headers, _ = s.request("OPTIONS", f"{RESPONSES}/{first['id']}")
same((status, headers["Allow"]), (200, "GET, HEAD, DELETE, OPTIONS"), "OPTIONS")
same(get(f"{RESPONSES}/{first['id']}", method="DELETE", **{"Sec-Fetch-Site": "cross-site"})[0], 403,
     "web pages delete nothing")
same(get(f"{RESPONSES}/{first['id']}/cancel", method="POST"), (200, first), "cancel of a complete response gives it")
same(get(f"{RESPONSES}/resp_none/cancel", method="POST")[0], 404, "cancel of an unknown one")

# ---- refusals ----
for name, body, want in (
        ("no input", {}, (400, "input")),
        ("another tool", {"input": "x", "tools": [{"type": "web_search"}]}, (400, "tools[0]")),
        ("an image", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         (400, "input[0].content[0]")),
        ("background", {"input": "x", "background": True}, (400, "background")),
        ("another model", {"input": "x", "model": "gpt-9"}, (404, "model")),
        ("too long", {"input": "word " * 9000}, (400, "input"))):
    status, body = s.post(RESPONSES, body)
    same((status, body["error"]["param"]), want, f"refused: {name}")
turns = [x for i in range(400) for x in (user(f"Turn {i} " + "word " * 20), {"role": "assistant", "content": "Yes."})]
status, body = s.post(RESPONSES, {"input": [*turns, user("plain")], "max_output_tokens": 5})
same((status, body.get("error", {}).get("code")), (400, "context_length_exceeded"), "truncation disabled")
status, body = s.post(RESPONSES, {"input": [*turns, user("plain")], "max_output_tokens": 5, "truncation": "auto"})
ok(status == 200 and body["truncation"] == "auto" and body["usage"]["input_tokens"] > 100, "truncation auto", body)

# ---- the SDK ----
if openai:
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    common = dict(model="lexis", temperature=0, max_output_tokens=200)
    r = client.responses.create(input="plain", **common)
    same((r.output_text, r.status, r.id.startswith("resp_"), r.output[0].id.startswith("msg_")),
         (SAYS["plain"][0], "completed", True, True), "SDK: create")
    r = client.responses.create(input=[{"role": "system", "content": "Book"}, user("What is the best book?")], model="lexis",
                                max_output_tokens=8, temperature=0.8)
    ok(r.output[0].id.startswith("msg_") and r.output_text, "SDK: a list", r)
    text, ids, kinds = "", set(), []
    for event in client.responses.create(input="plain", stream=True, **common):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
        if hasattr(event, "item_id"):
            ids.add(event.item_id)
        if event.type == "response.completed":
            last = event.response
    same((text, ids, last.output_text), (SAYS["plain"][0], {last.output[0].id}, SAYS["plain"][0]), "SDK: a stream")
    same(sorted({k for k in kinds if "done" in k}),
         ["response.content_part.done", "response.output_item.done", "response.output_text.done"], "SDK: its events")
    with client.responses.stream(input="both", tools=TOOLS, reasoning={"effort": "low"}, **common) as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_response()
    same([item.type for item in final.output], ["reasoning", "message", "function_call"], "SDK: stream() adds up")
    ok("response.reasoning_text.delta" in seen and "response.function_call_arguments.delta" in seen, "SDK: its deltas", seen)
    r = client.responses.create(input="one", tools=TOOLS, **common)
    found = r.output[0]
    same((found.type, found.name, json.loads(found.arguments)), ("function_call", "look_up", {"word": "bow é", "n": 2}),
         "SDK: a call")
    output = [{"type": "function_call_output", "call_id": found.call_id, "output": "a weapon"}]
    two = client.responses.create(input=output, previous_response_id=r.id, tools=TOOLS, **common)
    same(client.responses.create(input=[user("one"), *r.output, *output], tools=TOOLS, **common).usage.input_tokens,
         two.usage.input_tokens, "SDK: its items go back")
    try:
        import pydantic

        class Answer(pydantic.BaseModel):
            n: typing.Literal[1, 2]
            kind: typing.Literal["bow", "arrow"]

        parsed = client.responses.parse(input="Say.", text_format=Answer, model="lexis", max_output_tokens=400).output_parsed
        ok(isinstance(parsed, Answer), "SDK: parse", parsed)
        with client.responses.stream(input="Say.", text_format=Answer, model="lexis", max_output_tokens=400) as stream:
            parsed = [e.parsed for e in stream if e.type == "response.output_text.done"]
        ok(len(parsed) == 1 and isinstance(parsed[0], Answer), "SDK: parse of a stream", parsed)
    except pydantic.ValidationError as e:
        ok(False, "SDK: parse", e)
    same(client.responses.retrieve(r.id).id, r.id, "SDK: retrieve")
    same([i.type for i in client.responses.input_items.list(two.id, order="asc")],
         ["message", "function_call", "function_call_output"], "SDK: input_items")
    client.responses.delete(r.id)
    try:
        client.responses.retrieve(r.id)
        ok(False, "SDK: a deleted response")
    except openai.NotFoundError as e:
        ok(e.code == "response_not_found", "SDK: a deleted response", e)
    client.close()
ok(s.metrics()["responses_stored"] > 5 and s.metrics()["responses_stored_bytes"] > 1000, "metrics")
s.stop()

# ---- keys, bounds ----
keys = os.path.join(where, "keys")
with open(keys, "w") as f:
    f.write("sk-a\nsk-b\n")
os.chmod(keys, 0o600)
s = Server("--api-key-file", keys, "--response-store-memory", "20K", model=model)
a, b = {"Authorization": "Bearer sk-a"}, {"Authorization": "Bearer sk-b"}
mine = s.post(RESPONSES, ask("plain"), a)[1]
same([get(f"{RESPONSES}/{mine['id']}", s, **key)[0] for key in (a, b, {})], [200, 404, 401], "another key gets 404, none 401")
same(get(f"{RESPONSES}/{mine['id']}", s, "DELETE", **b)[0], 404, "and deletes nothing")
same(get(f"{RESPONSES}/{mine['id']}/cancel", s, "POST", **b)[0], 404, "nor cancels it")
same(s.post(RESPONSES, ask("plain", previous_response_id=mine["id"]), b)[0], 400, "nor goes on from it")
same(s.post(RESPONSES, ask("plain", previous_response_id=mine["id"]), a)[0], 200, "its own key does")
other = s.post(RESPONSES, ask("plain"), b)[1]["id"]
made = [s.post(RESPONSES, ask("plain", instructions="x" * 2000), a)[1]["id"] for _ in range(12)]
there = [get(f"{RESPONSES}/{i}", s, **a)[0] for i in [mine["id"], *made]]
ok(there[0] == 404 and there[-1] == 200 and there == sorted(there, reverse=True), "the oldest make room", there)
same(get(f"{RESPONSES}/{other}", s, **b)[0], 200, "but not one of a key that has few")
for _ in range(12):
    s.post(RESPONSES, ask("plain", instructions="x" * 2000), b)
same((get(f"{RESPONSES}/{made[-1]}", s, **a)[0], get(f"{RESPONSES}/{made[-3]}", s, **a)[0], get(f"{RESPONSES}/{other}", s, **b)[0]),
     (200, 200, 404), "each has its half")
large = s.post(RESPONSES, ask("plain", user="y" * 30000), a)
ok(large[0] == 200 and get(f"{RESPONSES}/{large[1]['id']}", s, **a)[0] == 404, "one that is too large is not kept", large[0])
s.stop()


def from_address(address, method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60, source_address=(address, 0))
    c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
    r = c.getresponse()
    status, body = r.status, json.loads(r.read())
    c.close()
    return status, body


s = Server("--response-store-memory", "20K", model=model)
mine = from_address("127.0.0.2", "POST", RESPONSES, ask("plain"))[1]["id"]
for _ in range(12):
    from_address("127.0.0.3", "POST", RESPONSES, ask("plain", instructions="x" * 2000))
same([from_address(address, "GET", f"{RESPONSES}/{mine}")[0] for address in ("127.0.0.2", "127.0.0.3")], [200, 404],
     "without keys an address has its share")
s.stop()
s = Server("--response-store-seconds", "1", model=model)
mine = whole("plain", s)
same(get(f"{RESPONSES}/{mine['id']}", s)[0], 200, "kept for a second")
ok(wait_for(lambda: get(f"{RESPONSES}/{mine['id']}", s)[0] == 404, 10), "and not longer")
s.stop()

# ---- cancel ----
s = Server(model=model, env={"FAKE_STEP_US": "4000"})  # 3000 tokens take 12 s or more
LONG = {"input": "Go on.", "max_output_tokens": 3000, "ignore_eos": True}
c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
c.request("POST", RESPONSES, json.dumps({**LONG, "stream": True}), {"Content-Type": "application/json"})
r = c.getresponse()
running = r.headers["X-Request-Id"]
# A client may name its request by the id of the one that it ends.
status, body = get(f"{RESPONSES}/{running}/cancel", s, "POST", **{"X-Request-Id": running})
same((status, body["id"], body["status"]), (200, running, "cancelled"), "cancel")
rest = [json.loads(part.split("data: ")[1]) for part in r.read().decode().strip().split("\n\n")]
c.close()
same([(e["type"], e.get("response", {}).get("status")) for e in rest[-2:]], [("error", None), ("response.failed", "cancelled")],
     "ends the stream")
same([e["sequence_number"] for e in rest], list(range(len(rest))), "with numbers to the end")
same(get(f"{RESPONSES}/{running}", s)[0], 404, "and nothing is kept of it")
s.stop()
s = Server("--response-store-memory", "0", model=model)
same(get(f"{RESPONSES}/{whole('plain', s)['id']}", s)[0], 404, "without memory nothing is kept")
s.stop()
shutil.rmtree(where)
done()
