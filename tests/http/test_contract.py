"""Details of the API that clients of other servers rely on: the model's names, paths, usage in every chunk, old roles, parts."""
import json
import signal
import time

from harness import Server, done, ok, parallel, same, wait_for

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "define river"}], "max_tokens": 3, "temperature": 0}


def names(s):
    return [m["id"] for m in json.loads(s.get("/v1/models")[1])["data"]]


s = Server("--served-model-name", "words", "--served-model-name", "a/dictionary", "--clamp-max-tokens", "--max-model-len", "256")

# the model's names
same(names(s), ["words", "a/dictionary"], "/v1/models lists every --served-model-name")
same([s.chat("x", model=m, max_tokens=1)[0] for m in ("words", "a/dictionary", "lexis", "other", "*")],
     [200, 200, 200, 404, 404], "each of them is answered, and so is the base name")
same(json.loads(s.get("/v1/models/a/dictionary")[1])["id"], "a/dictionary", "a name's own path")
same(s.chat("x", model="a/dictionary", max_tokens=1)[1]["model"], "words", "answers have the first name")

# paths
same(s.post("/chat/completions", HELLO)[0], 200, "/chat/completions")
same(s.post("/completions", {"prompt": "a", "max_tokens": 1})[0], 200, "/completions")
same((s.get("/models"), s.get("/models/words")), (s.get("/v1/models"), s.get("/v1/models/words")), "/models")
same([s.get(p)[0] for p in ("/v1", "/v1/v1/models", "/v1/health", "/modelsx")], [404] * 4, "but no others")
same([s.get(p) for p in ("/ping", "/livez", "/readyz")], [s.get("/health")] * 3, "/ping, /livez and /readyz")
same(s.request("HEAD", "/ping")[0], 200, "HEAD /ping")

# usage in every chunk
for path, body in (CHAT, HELLO), (COMPLETE, {"prompt": "define river", "max_tokens": 3, "n": 2, "temperature": 0}):
    *chunks, last, end = s.stream(path, {**body, "ignore_eos": True, "stream_options": {
        "include_usage": True, "continuous_usage_stats": True}})
    counts = [c["usage"]["completion_tokens"] for c in chunks]
    ok(counts == sorted(counts) and counts[0] <= 1 and counts[-1] == last["usage"]["completion_tokens"] == 3 * body.get("n", 1)
       and {c["usage"]["prompt_tokens"] for c in chunks} == {last["usage"]["prompt_tokens"]} and last["choices"] == [],
       f"{path}: every chunk has the usage so far", counts)
chunks = s.stream(CHAT, {**HELLO, "stream_options": {"include_usage": True}})[:-2]
same({c["usage"] for c in chunks}, {None}, "only with continuous_usage_stats")

# parameters that are refused, and not ignored
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
for member, body in (
        ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "look_up"}}}),
        ("function_call", {"function_call": "none"}),
        ("functions", {"functions": [{"name": "f"}], "function_call": "auto"})):
    status, answer = s.post(CHAT, {**HELLO, **body})
    ok(status == 400 and answer["error"]["param"].split(".")[0] in body and answer["error"]["code"] == "unsupported_parameter",
       f"{member} {json.dumps(body[member])} is refused", answer)
same([s.post(CHAT, {**HELLO, "tools": TOOLS, "tool_choice": c, "parallel_tool_calls": p})[0]
      for c in ("auto", "none", None) for p in (True, False)], [200] * 6, "values that demand no call are not")
status, answer = s.post(CHAT, {**HELLO, "messages": []})
same((status, answer["error"]["message"]), (400, "messages is empty, but must have at least one message"), "messages []")


# roles and parts
def prompt(*messages):
    return s.post("/apply-template", {"messages": [{"role": "user", "content": "q"}, *messages]})


same(prompt({"role": "function", "name": "f", "content": "42"}), prompt({"role": "tool", "name": "f", "content": "42"}),
     "the role function is rendered as tool")
ok("42" in prompt({"role": "function", "name": "f", "content": "42"})[1]["prompt"], "with its content")
same(prompt({"role": "assistant", "content": [{"type": "text", "text": "a "}, {"type": "refusal", "refusal": "no"}]}),
     prompt({"role": "assistant", "content": "a no"}), "a refusal part is text")
same(prompt({"role": "assistant", "content": [{"type": "thinking", "thinking": "why"}, {"type": "text", "text": "a"}]}),
     prompt({"role": "assistant", "content": "a", "reasoning_content": "why"}), "a thinking part is reasoning")

# --clamp-max-tokens
status, answer = s.complete([5] * 100, max_tokens=100000, ignore_eos=True)
same((status, answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (200, 156, "length"),
     "a max_tokens beyond the context: as many as fit")
same(s.complete([5] * 100, max_tokens=7, ignore_eos=True)[1]["usage"]["completion_tokens"], 7, "a small one is as asked")
status, answer = s.complete([5] * 256, max_tokens=1)
same((status, answer["error"]["code"]), (400, "context_length_exceeded"), "a prompt that fills the context is refused")
s.stop()

s = Server("--served-model-name", "*", "--max-model-len", "256",
           "--default-chat-template-kwargs", '{"enable_thinking": true}')
same(names(s), ["lexis"], "with '*' alone the base name is listed")
chat = {"messages": [{"role": "user", "content": "A bow"}]}
ends = [s.post("/apply-template", {**chat, **more})[1]["prompt"].rpartition("assistant\n")[2]
        for more in ({}, {"chat_template_kwargs": {"enable_thinking": False}})]
same(ends, ["<think>\n", "<think>\n\n</think>\n\n"], "--default-chat-template-kwargs, and a request that says otherwise")
same(s.post("/tokenize", chat), s.post("/tokenize", {**chat, "enable_thinking": True}), "/tokenize has them, too")
same([s.chat("x", model=m, max_tokens=1)[0] for m in ("gpt-4o", "lexis", None)], [200] * 3, "and every name is answered")
same(s.complete([5] * 100, max_tokens=100000)[1]["error"]["code"], "context_length_exceeded", "without the option: 400")
same(json.loads(s.get("/v1/models/gpt-4o")[1])["id"], "lexis", "/v1/models/NAME of any name")
s.stop()

# While the model is loaded, and while the daemon drains, /livez says that it lives and /readyz that it is not ready.
def probes():
    return s.get("/livez")[0], s.get("/readyz")[0]


s = Server(wait=False, env={"FAKE_LOAD_MS": "500", "FAKE_STEP_US": "20000"})
same(probes(), (200, 503), "while loading: /livez 200, /readyz 503")
ok(wait_for(lambda: probes() == (200, 200)), "then both 200")
answer, seen = parallel([lambda: s.complete([5] * 9, max_tokens=60, ignore_eos=True)[0],
                         lambda: (time.sleep(0.3), s.process.send_signal(signal.SIGTERM), time.sleep(0.1), probes())[-1]])
same((answer, seen), (200, (200, 503)), "while it drains: 200 and 503")
same(s.process.wait(25), 0, "and it ends")
done()
