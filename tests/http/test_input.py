"""Answers to bad input: status, type, code and the parameter at fault, and never a header of a stream."""
from harness import Server, done, ok, same

s = Server()
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "define river"}], "max_tokens": 1}
PROMPT = {"prompt": "violin", "max_tokens": 1}


def refused(path, body, param, name, status=400, code=None):
    for stream in (False, True):
        got, answer = s.post(path, {**body, "stream": stream} if isinstance(body, dict) else body)
        e = answer.get("error") or {}
        good = (got == status and e.get("type") == "invalid_request_error" and e.get("message")
                and set(e) == {"message", "type", "param", "code"} and e["code"] == code
                and (param is None or (e["param"] or "").startswith(param)))
        ok(good, f"{name}{', stream' if stream else ''}: {status}", (got, answer))


for key, value in (
        ("temperature", -0.1), ("temperature", 2.1), ("temperature", "hot"), ("top_p", 0), ("top_p", 1.1),
        ("top_p", []), ("min_p", -1), ("min_p", 2), ("top_k", -5), ("n", 0), ("n", 65), ("n", 1.5), ("n", "1"),
        ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", "x"), ("min_tokens", -1), ("seed", "x"),
        ("stop", 5), ("stop", ["a"] * 65), ("stop", [1]), ("presence_penalty", 3),
        ("frequency_penalty", -3), ("repetition_penalty", 0), ("logprobs", "yes"), ("stream_options", 1),
        ("stop_token_ids", [8192]), ("stop_token_ids", "x"), ("ignore_eos", 1), ("model", 5)):
    refused(CHAT, {**HELLO, key: value}, key, f"chat: {key} = {value!r}")
refused(CHAT, {**HELLO, "stop": ["a", "b" * 1025]}, "stop[1]", "chat: a stop string of 1025 bytes")
refused(CHAT, {**HELLO, "top_logprobs": 3}, "top_logprobs", "chat: top_logprobs without logprobs")
refused(CHAT, {**HELLO, "logprobs": True, "top_logprobs": 21}, "top_logprobs", "chat: too many log-probabilities")
got, answer = s.post(CHAT, {**HELLO, "stream_options": {"include_usage": True}})
ok(got == 400 and answer["error"]["param"].startswith("stream_options"), "stream_options without stream: 400", answer)
for messages, name in (
        (None, "no messages"), ([], "an empty list"), ("x", "a string"), ([1], "a number in the list"),
        ([{"content": "x"}], "no role"), ([{"role": "king", "content": "x"}], "an unknown role"),
        ([{"role": "user", "content": 5}], "content a number"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "an image")):
    refused(CHAT, {**HELLO, "messages": messages}, "messages", f"chat: {name}")
for prompt, name in ((None, "no prompt"), ([], "an empty list"), ([[]], "an empty prompt in a list"),
                     ([8192], "an id outside the vocabulary"), ([-1], "a negative id"), ([1.5], "half an id"),
                     ([["x"]], "a list of lists of texts"), (5, "a number"), ([1, "x"], "a mixed list")):
    refused(COMPLETE, {**PROMPT, "prompt": prompt}, "prompt", f"completions: {name}")
refused(COMPLETE, {**PROMPT, "prompt": ""}, "prompt", "completions: an empty prompt")
refused(COMPLETE, {**PROMPT, "logprobs": 21}, "logprobs", "completions: too many log-probabilities")
refused(COMPLETE, {**PROMPT, "best_of": 0}, "best_of", "completions: best_of out of range")
refused(COMPLETE, {**PROMPT, "prompt": ["a"] * 100, "n": 64}, "n", "completions: too many answers in all")
refused(CHAT, {**HELLO, "model": "gpt-9"}, "model", "chat: unknown model", 404, "model_not_found")
refused(COMPLETE, {**PROMPT, "model": "gpt-9"}, "model", "completions: unknown model", 404, "model_not_found")

# context
got, answer = s.post(CHAT, {"messages": [{"role": "user", "content": "word " * 5000}]})
ok(got == 400 and answer["error"]["code"] == "context_length_exceeded" and "4096" in answer["error"]["message"]
   and any(int(w) > 4096 for w in answer["error"]["message"].replace(":", " ").split() if w.isdigit()),
   "a prompt longer than the context: 400 with both numbers", answer)
refused(CHAT, {**HELLO, "max_tokens": 5000}, None, "max_tokens beyond the context", 400, "context_length_exceeded")
refused(COMPLETE, {"prompt": [5] * 4096, "max_tokens": 1}, None, "a prompt that fills the context", 400,
        "context_length_exceeded")
got, answer = s.post(COMPLETE, {"prompt": [5] * 4095, "temperature": 0})
ok(got == 200 and answer["usage"]["completion_tokens"] == 1, "a prompt that leaves one token", answer)

# null is absent, unknown is ignored
got, answer = s.post(CHAT, {**HELLO, "temperature": None, "top_p": None, "n": None, "stop": None, "seed": None,
                            "stream": None, "stream_options": None, "logprobs": None, "tools": None, "model": None,
                            "frequency_penalty": None, "user": None, "frobnicate": {"a": [1]}})
same(got, 200, "null is absent, unknown members are ignored")
got, answer = s.post(CHAT, {"messages": [
    {"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "developer", "content": "c"},
    {"role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None},
    {"role": "user", "content": [{"type": "text", "text": "d"}]}], "max_tokens": 1})
same(got, 200, "late system messages, null content and parts")

# schemas of unsigned 64-bit numbers
tool = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}}}}
same(s.post(CHAT, {**HELLO, "tools": [tool]})[0], 200, "a whole number beyond 64 bits in a tool")

# an answer can be sent back as input; a model may have generated a NUL
for text in ("a\0b", "\ud7ff\uffff", "\U0001f3bb"):
    got, answer = s.post(CHAT, {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text},
                                             {"role": "user", "content": "x"}], "max_tokens": 1})
    same(got, 200, f"content {text!r}")
a, b = (s.post("/tokenize", {"prompt": p})[1]["tokens"] for p in ("a\0b", "a"))
ok(len(a) > len(b) and s.post("/detokenize", {"tokens": a})[1]["prompt"] == "a\0b", "NUL is a character", (a, b))
ask = {"role": "user", "content": "define violin"}
got, answer = s.post(CHAT, {"messages": [ask], "temperature": 0})
message = answer["choices"][0]["message"]
got, answer = s.post(CHAT, {"messages": [ask, message, {"role": "user", "content": "why?"}], "max_tokens": 1})
same(got, 200, "an answer's message is accepted back as it is")
s.stop()
done()
