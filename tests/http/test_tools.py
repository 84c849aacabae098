"""Tool calls: whole and streamed answers, their ids, what ends them, and the way of a call back into the prompt.

The pseudo model says what its golden.json has for a prompt, so the test makes a model whose answers have calls.
"""
import json
import os
import re
import shutil
import tempfile

from harness import END, MODEL, Server, done, make_model, messages, ok, same

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {
             "type": "object", "properties": {"word": {"type": "string"}, "n": {"type": "integer"}}}}},
         {"type": "function", "function": {"name": "now"}}]


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


BOW, NOW = call("look_up", '{"word": "bow é", "n": 2}'), call("now", "{}")
XML = ("<tool_call>\n<function=look_up>\n<parameter=word>\nbow\n</parameter>\n<parameter=n>\n2\n</parameter>\n"
       "</function>\n</tool_call>")
# What the user says -> what the model answers, and whether it thinks.
SAYS = {
    "one": (BOW, False),
    "two": ("I look.\n" + BOW + "\n" + NOW, False),
    "behind": (NOW + "\nDone.", False),
    "malformed": ('<tool_call>\n{"name": "look_up", oh', False),
    "unknown": (call("fly", "{}"), False),
    "inside": ("I need it.\n" + BOW, True),
    "thought": ("Hm.\n</think>\n\n" + BOW, True),
    "xml": (XML, False),
    "plain": ("A bow.", False),
}


def thinking(text):
    return {"chat_template_kwargs": {"enable_thinking": SAYS[text][1]}}


def make_mistral(path):
    """A model that writes the first answer as Mistral's do, with special tokens."""
    marks = {"<tool_response>": "[TOOL_CALLS]", "</tool_response>": "[ARGS]"}
    os.mkdir(path)
    for name in os.listdir(model):
        if name not in ("golden.json", "tokenizer.json", "chat_template.jinja"):
            os.symlink(os.path.join(model, name), os.path.join(path, name))
    with open(os.path.join(MODEL, "tokenizer.json")) as f:
        tokenizer = json.load(f)
    for token in tokenizer["added_tokens"]:
        if token["content"] in marks:
            mark = marks[token["content"]]
            tokenizer["model"]["vocab"].pop(token["content"], None)
            tokenizer["model"]["vocab"][mark] = token["id"]
            token.update(content=mark, special=True)
    template = ("{% if tools %}[TOOL_CALLS]{% endif %}{% for m in messages %}{{ m.content }}"
                "{% for c in m.tool_calls or [] %}{{ c.function.arguments | items | list }}{% endfor %}{% endfor %}")
    for name, text in (("tokenizer.json", json.dumps(tokenizer)), ("chat_template.jinja", template),
                       ("golden.json", '{"cases": []}')):
        with open(os.path.join(path, name), "w") as f:
            f.write(text)
    s = Server(model=path)

    def tokens(**body):
        return s.post("/tokenize", {"add_special_tokens": False, **body})[1]["tokens"]

    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    answer = [ids["[TOOL_CALLS]"], *tokens(prompt="look_up"), ids["[ARGS]"], *tokens(prompt=BOW_ARGUMENTS), END]
    cases = [{"prompt_ids": tokens(messages=messages("one"), tools=t), "output_ids": answer} for t in (TOOLS, None)]
    s.stop()
    with open(os.path.join(path, "golden.json"), "w") as f:
        json.dump({"cases": cases}, f)
    return path


def ask(text, **more):
    return {"messages": messages(text), "tools": TOOLS, "temperature": 0, "max_tokens": 200, **thinking(text), **more}


def whole(s, text, **more):
    status, body = s.post(CHAT, ask(text, **more))
    if status != 200:
        raise RuntimeError(body)
    return body


def summary(message, finish):
    """Content, reasoning, calls as (name, arguments), finish reason."""
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
    return message["content"], message.get("reasoning_content"), calls, finish


def add_up(chunks):
    """The message of each choice of a stream, as clients put it together, and its finish reason."""
    sums = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message, _ = sums.setdefault(choice["index"], ({"content": None}, None))
            for member in "content", "reasoning_content":
                if delta.get(member) is not None:
                    message[member] = (message.get(member) or "") + delta[member]
            for piece in delta.get("tool_calls", []):
                calls = message.setdefault("tool_calls", [])
                if piece["index"] == len(calls):
                    calls.append({"id": piece["id"], "type": piece["type"], "function": dict(piece["function"])})
                    assert piece["function"]["name"] and piece["function"]["arguments"] == ""
                else:
                    assert set(piece) == {"index", "function"} and set(piece["function"]) == {"arguments"}
                    calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
            sums[choice["index"]] = message, choice["finish_reason"]
    return [sums[i] for i in sorted(sums)]


def streamed(s, text, **more):
    *chunks, end = s.stream(CHAT, ask(text, **more))
    assert end == "[DONE]"
    return chunks


where = tempfile.mkdtemp()
# A prompt without tools has these answers, too.
model = make_model(os.path.join(where, "lexis"), [({"messages": messages(text), "tools": tools, **thinking(text)}, answer)
                                                  for text, (answer, _) in SAYS.items() for tools in (TOOLS, None)])
s = Server(model=model)

# whole answers and streams
BOW_ARGUMENTS = '{"word": "bow é", "n": 2}'
for text, want in {
        "one": (None, None, [("look_up", BOW_ARGUMENTS)], "tool_calls"),
        "two": ("I look.", None, [("look_up", BOW_ARGUMENTS), ("now", "{}")], "tool_calls"),
        "behind": ("Done.", None, [("now", "{}")], "tool_calls"),
        "malformed": (SAYS["malformed"][0], None, [], "stop"),
        "unknown": (SAYS["unknown"][0], None, [], "stop"),
        "inside": (None, "I need it.", [("look_up", BOW_ARGUMENTS)], "tool_calls"),
        "thought": (None, "Hm.\n", [("look_up", BOW_ARGUMENTS)], "tool_calls"),
        "plain": ("A bow.", None, [], "stop")}.items():
    for n in 1, 2:
        choices = whole(s, text, n=n)["choices"]
        same([summary(c["message"], c["finish_reason"]) for c in choices], [want] * n, f"{text}: {n} whole")
        got = [summary(*m) for m in add_up(streamed(s, text, n=n))]
        # A stream's first chunk may have "" where a whole answer, which has no text, has null.
        same([(c or want[0], *rest) for c, *rest in got], [want] * n, f"{text}: {n} streamed")
same(whole(s, "two")["usage"]["completion_tokens"],
     whole(s, "two", tools=None)["usage"]["completion_tokens"], "the usage counts the tokens of calls")

# the first chunk, and those behind it
first, second, *_ = streamed(s, "one")
delta = first["choices"][0]["delta"]
ok(delta["role"] == "assistant" and delta["content"] is None and delta["tool_calls"][0]["function"] == {
    "name": "look_up", "arguments": ""}, "a call that nothing comes before is in the first chunk", delta)
ok("role" not in second["choices"][0]["delta"], "which is the only one with a role", second)
first = streamed(s, "two")[0]["choices"][0]["delta"]
ok(first["content"] == "" and "tool_calls" not in first, "behind text the first chunk is as ever", first)
pieces = [c["choices"][0]["delta"].get("tool_calls", []) for c in streamed(s, "one")]
ok(all(len(p) <= 1 for p in pieces) and sum(map(len, pieces)) > 4, "arguments come bit by bit, one piece a chunk", pieces)

# ids
ids = [c["id"] for choice in whole(s, "two", n=3)["choices"] for c in choice["message"]["tool_calls"]]
ok(len(set(ids)) == 6 and all(re.fullmatch("call_[0-9A-Za-z]{24}", i) for i in ids), "each call has an id of its own", ids)

# how calls end
answer = whole(s, "one", max_tokens=18)["choices"][0]
got = summary(answer["message"], answer["finish_reason"])
ok(got[3] == "length" and len(got[2]) == 1 and BOW_ARGUMENTS.startswith(got[2][0][1]) and got[0] is None and
   0 < len(got[2][0][1]) < len(BOW_ARGUMENTS), "max_tokens within arguments: the call has those that were there", got)
same(summary(*add_up(streamed(s, "one", max_tokens=18))[0])[2:], got[2:], "and so has the stream")
got = whole(s, "one", max_tokens=3)["choices"][0]
ok(got["message"]["content"] and BOW.startswith(got["message"]["content"]) and "tool_calls" not in got["message"] and
   got["finish_reason"] == "length", "max_tokens before its name: the text is content", got)
answer = whole(s, "one", stop="bow")["choices"][0]
same(summary(answer["message"], answer["finish_reason"]), (None, None, [("look_up", '{"word": "')], "stop"),
     "a stop string within a call")
answer = whole(s, "two", parallel_tool_calls=False)
same(summary(answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]),
     ("I look.", None, [("look_up", BOW_ARGUMENTS)], "tool_calls"), "parallel_tool_calls false: one call")
ok(answer["usage"]["completion_tokens"] < whole(s, "two")["usage"]["completion_tokens"], "and no token behind it")
same(summary(*add_up(streamed(s, "two", parallel_tool_calls=False))[0]),
     ("I look.", None, [("look_up", BOW_ARGUMENTS)], "tool_calls"), "and so in a stream")

slow = Server(model=model, env={"FAKE_STEP_US": "1000"})
whole(slow, "two", parallel_tool_calls=False, ignore_eos=True, max_tokens=1500)
slow.wait_metric("num_requests_running", 0)
ok(slow.metrics()["generation_tokens_total"] < 200, "and the model stops", slow.metrics()["generation_tokens_total"])
slow.stop()

# log-probabilities and token ids
for text, content in ("two", "I look."), ("one", ""), ("malformed", SAYS["malformed"][0]):
    choice = whole(s, text, logprobs=True)["choices"][0]
    same("".join(t["token"] for t in choice["logprobs"]["content"]), content, f"{text}: log-probabilities of the content alone")
    tokens = [t["token"] for c in streamed(s, text, logprobs=True) if c["choices"][0]["logprobs"]
              for t in c["choices"][0]["logprobs"]["content"]]
    same("".join(tokens), content, "and so in a stream")
ids = whole(s, "one", return_token_ids=True)["choices"][0]["token_ids"]
same(sum((c["choices"][0]["token_ids"] for c in streamed(s, "one", return_token_ids=True)
          if "token_ids" in c["choices"][0]), []), ids, "the chunks have all token ids")

# without tools nothing is a call
for more in {"tools": None}, {"tools": []}:
    choice = whole(s, "two", **more)["choices"][0]
    same((choice["message"]["content"], choice["finish_reason"], "tool_calls" in choice["message"]),
         (SAYS["two"][0], "stop", False), f"{more}: the text as it is")

# the way back: the prompt of the next turn begins with this prompt and the answer
for text in "one", "two":
    message = whole(s, text)["choices"][0]["message"]
    answers = [{"role": "tool", "tool_call_id": c["id"], "content": "42"} for c in message["tool_calls"]]
    before = s.post("/apply-template", {"messages": messages(text), "tools": TOOLS})[1]["prompt"]
    after = s.post("/apply-template", {"messages": [*messages(text), message, *answers], "tools": TOOLS})[1]["prompt"]
    ok(after.startswith(before + SAYS[text][0]) and after.count("42") == len(answers),
       f"{text}: the call is rendered as the model wrote it", f"{before}{SAYS[text][0]}\n----\n{after}")
s.stop()

# --tool-call-parser
s = Server("--tool-call-parser", "none", model=model)
same(whole(s, "one")["choices"][0]["message"]["content"], BOW, "--tool-call-parser none: calls stay in the content")
status, body = s.post(CHAT, ask("one", parallel_tool_calls=False))
same((status, body["error"]["param"], body["error"]["code"]), (400, "parallel_tool_calls", "unsupported_parameter"),
     "and none of them can end an answer")
same([s.post(CHAT, ask("one", parallel_tool_calls=p, tools=t))[0] for p, t in ((True, TOOLS), (False, None))], [200, 200],
     "which matters only with tools")
s.stop()
s = Server("--tool-call-parser", "qwen_xml", model=model)
for got in (whole(s, "xml")["choices"][0], None), (None, add_up(streamed(s, "xml"))[0]):
    choice, sums = got
    got = summary(choice["message"], choice["finish_reason"]) if choice else summary(*sums)
    same((got[2], got[3]), ([("look_up", '{"word": "bow", "n": 2}')], "tool_calls"), "--tool-call-parser qwen_xml")
same(whole(s, "one")["choices"][0]["message"]["content"], BOW, "another format stays in the content")
s.stop()

# Mistral's calls, whose marks are special tokens and whose ids are brief
s = Server(model=make_mistral(os.path.join(where, "mistral")))
choice = whole(s, "one")["choices"][0]
same(summary(choice["message"], choice["finish_reason"]), (None, None, [("look_up", BOW_ARGUMENTS)], "tool_calls"),
     "mistral: special tokens mark a call")
ok(re.fullmatch("[0-9A-Za-z]{9}", choice["message"]["tool_calls"][0]["id"]), "whose id is brief", choice)
message, finish = add_up(streamed(s, "one"))[0]
same(summary({"content": None, **message}, finish)[2:], ([("look_up", BOW_ARGUMENTS)], "tool_calls"), "and so in a stream")
ok(re.fullmatch("[0-9A-Za-z]{9}", message["tool_calls"][0]["id"]), "with a brief id", message)
choice = whole(s, "one", tools=None)["choices"][0]
same((choice["message"]["content"], choice["finish_reason"]), ("look_up" + BOW_ARGUMENTS, "stop"),
     "without tools special tokens do not show")
for arguments, want, name in ('{"word": 5}', 200, "whole arguments come back"), ('{"word": "bo', 400, "and cut ones do not"):
    back = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "abcdefghi", "type": "function", "function": {"name": "look_up", "arguments": arguments}}]}
    status, body = s.post("/apply-template", {"messages": [*messages("one"), back]})
    ok(status == want and (want == 200 or body["error"]["message"].startswith(
        'the arguments of a call of "look_up" are not the JSON of an object: ')), f"a template that needs members: {name}", body)
s.stop()
shutil.rmtree(where)
done()
