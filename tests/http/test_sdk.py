"""The openai Python SDK drives chat, completions, streams, log-probabilities, n and stop.

Every golden prompt that the model comes with has its recorded answer here too: the texts are exact.
"""
import asyncio

from harness import Server, done, goldens, ok, same, skip_all

try:
    import openai
except ImportError:
    skip_all("the openai package is not installed")

s = Server()
client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
case = next(c for c in goldens() if c["name"] == "define-violin")
TEXT, IDS = case["output"], case["output_ids"]
ASK = dict(model="lexis", messages=case["messages"], temperature=0)


def collect(stream):
    """What a stream adds up to: texts, finish reasons and roles by choice; the chunks."""
    chunks = list(stream)
    texts, finishes, roles = {}, {}, {}
    for c in chunks:
        for ch in c.choices:
            piece = ch.delta.content if hasattr(ch, "delta") else ch.text
            texts[ch.index] = texts.get(ch.index, "") + (piece or "")
            if getattr(getattr(ch, "delta", None), "role", None):
                roles[ch.index] = roles.get(ch.index, 0) + 1
            if ch.finish_reason:
                finishes.setdefault(ch.index, []).append(ch.finish_reason)
    return texts, finishes, roles, chunks


same([m.id for m in client.models.list()], ["lexis"], "models.list")
same(client.models.retrieve("lexis").id, "lexis", "models.retrieve")

# chat
r = client.chat.completions.create(**ASK)
same(r.choices[0].message.content, TEXT, "chat: the golden answer")
same((r.choices[0].finish_reason, r.choices[0].message.role, r.choices[0].message.refusal, r.choices[0].logprobs),
     ("stop", "assistant", None, None), "chat: what stands beside it")
same((r.usage.prompt_tokens, r.usage.completion_tokens, r.usage.total_tokens,
      r.usage.prompt_tokens_details.cached_tokens),
     (len(case["prompt_ids"]), len(IDS), len(case["prompt_ids"]) + len(IDS), 0), "chat: usage")
ok(r.id.startswith("chatcmpl-") and r.object == "chat.completion" and r.model == "lexis", "chat: head")

texts, finishes, roles, chunks = collect(client.chat.completions.create(**ASK, stream=True))
same((texts, finishes, roles), ({0: TEXT}, {0: ["stop"]}, {0: 1}), "chat stream: text, one finish, one role")
ok(len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1, "chat stream: id and created stay")
ok(chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == "",
   "chat stream: the first chunk has the role")
ok(all(c.usage is None and c.choices for c in chunks), "chat stream: no usage unless asked for")
texts, finishes, roles, chunks = collect(client.chat.completions.create(
    **ASK, stream=True, stream_options={"include_usage": True}))
ok(chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == len(IDS)
   and all(c.usage is None for c in chunks[:-1]), "chat stream: usage comes last, when asked for")

# length
r = client.chat.completions.create(**ASK, max_tokens=5)
ok(r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 5 and TEXT.startswith(
    r.choices[0].message.content), "max_tokens", r)
r = client.chat.completions.create(**ASK, max_completion_tokens=5)
same(r.usage.completion_tokens, 5, "max_completion_tokens")

# stop
for stop, want in (("stringed", TEXT.split("stringed")[0]), (["zzz", " four strings"], TEXT.split(" four strings")[0]),
                   ("v", ""), (TEXT[-1], TEXT[:-1]), ("zzz", TEXT), (TEXT + "x", TEXT)):
    r = client.chat.completions.create(**ASK, stop=stop)
    texts, finishes, _, chunks = collect(client.chat.completions.create(
        **ASK, stop=stop, stream=True, stream_options={"include_usage": True}))
    same((r.choices[0].message.content, r.choices[0].finish_reason), (want, "stop"), f"stop {str(stop)[:20]!r}")
    same((texts, finishes), ({0: want}, {0: ["stop"]}), f"stop {str(stop)[:20]!r}, stream")
    same(chunks[-1].usage.completion_tokens, r.usage.completion_tokens, "with the same usage")
r = client.chat.completions.create(**ASK, stop="stringed")
ok(r.usage.completion_tokens < len(IDS) / 2, "usage ends at the stop string", r.usage)

# log-probabilities
r = client.chat.completions.create(**ASK, logprobs=True, top_logprobs=5)
content = r.choices[0].logprobs.content
same("".join(t.token for t in content), TEXT, "logprobs: the tokens are the text")
same(bytes(b for t in content for b in t.bytes).decode(), TEXT, "logprobs: so are the bytes")
ok(all(len(t.top_logprobs) == 5 and t.logprob <= 0 for t in content), "logprobs: five best each")
_, _, _, chunks = collect(client.chat.completions.create(**ASK, logprobs=True, top_logprobs=5, stream=True))
streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
same([t.model_dump() for t in streamed], [t.model_dump() for t in content], "logprobs: the same in a stream")
ok(all("".join(t.token for t in c.choices[0].logprobs.content) == c.choices[0].delta.content
       for c in chunks if c.choices[0].logprobs and c.choices[0].logprobs.content),
   "logprobs: each rides with its text")
r = client.chat.completions.create(**ASK, logprobs=True, stop="stringed")
same("".join(t.token for t in r.choices[0].logprobs.content), r.choices[0].message.content,
     "logprobs: none behind a stop string")

# n
r = client.chat.completions.create(**ASK, n=3)
same([(c.index, c.message.content) for c in r.choices], [(i, TEXT) for i in range(3)], "n = 3, greedy")
same((r.usage.prompt_tokens, r.usage.completion_tokens), (len(case["prompt_ids"]), 3 * len(IDS)), "n = 3: usage")
texts, finishes, roles, chunks = collect(client.chat.completions.create(**ASK, n=3, stream=True))
same((texts, finishes, roles), ({i: TEXT for i in range(3)}, {i: ["stop"] for i in range(3)}, {i: 1 for i in range(3)}),
     "n = 3, stream")
ok(all(len(c.choices) == 1 for c in chunks), "n = 3: one choice a chunk")
# At this temperature two draws without a seed hardly ever agree.
hot = dict(ASK, temperature=2.0, seed=7, n=4, max_tokens=16)
a, b = client.chat.completions.create(**hot), client.chat.completions.create(**hot)
same([c.message.content for c in a.choices], [c.message.content for c in b.choices], "a seed repeats the choices")
ok(len({c.message.content for c in a.choices}) > 1, "which differ from each other", a)
c = client.chat.completions.create(**dict(hot, seed=8))
ok([x.message.content for x in c.choices] != [x.message.content for x in a.choices], "another seed, another answer")
c = client.chat.completions.create(**dict(hot, seed=None))
d = client.chat.completions.create(**dict(hot, seed=None))
ok([x.message.content for x in c.choices] != [x.message.content for x in d.choices], "no seed: a new one each time")
c = client.chat.completions.create(**dict(hot, n=1))
same(c.choices[0].message.content, a.choices[0].message.content, "a draw does not depend on n")

# completions
raw = next(c for c in goldens() if c["name"] == "raw-1")
r = client.completions.create(model="lexis", prompt=raw["prompt"], temperature=0, max_tokens=raw.get("max_tokens", 64))
same((r.choices[0].text, r.choices[0].finish_reason), (raw["output"], raw["finish_reason"]), "completions: golden")
r2 = client.completions.create(model="lexis", prompt=raw["prompt_ids"], temperature=0,
                               max_tokens=raw.get("max_tokens", 64))
same(r2.choices[0].text, raw["output"], "completions: a prompt of ids")
texts, finishes, _, chunks = collect(client.completions.create(
    model="lexis", prompt=raw["prompt"], temperature=0, max_tokens=raw.get("max_tokens", 64), stream=True))
same((texts, finishes), ({0: raw["output"]}, {0: [raw["finish_reason"]]}), "completions: stream")
r = client.completions.create(model="lexis", prompt=[raw["prompt"], "A"], temperature=0, max_tokens=8, n=2)
same([c.index for c in r.choices], [0, 1, 2, 3], "completions: index is prompt * n + choice")
ok(r.choices[0].text == r.choices[1].text and r.choices[2].text == r.choices[3].text
   and raw["output"].startswith(r.choices[0].text), "completions: two prompts, two choices each", r)
r = client.completions.create(model="lexis", prompt=[raw["prompt_ids"], [5, 6]], temperature=0, max_tokens=8)
same(len(r.choices), 2, "completions: a list of lists of ids")
r = client.completions.create(model="lexis", prompt=raw["prompt"], temperature=0, max_tokens=4, echo=True)
ok(r.choices[0].text.startswith(raw["prompt"]) and len(r.choices[0].text) > len(raw["prompt"]), "completions: echo", r)
r = client.completions.create(model="lexis", prompt=raw["prompt"], temperature=0, max_tokens=0, echo=True, logprobs=2)
said = r.choices[0].logprobs
ok(r.choices[0].text == raw["prompt"] and said.token_logprobs[0] is None and max(said.token_logprobs[1:]) <= 0 and
   "".join(said.tokens) == raw["prompt"] and len(said.tokens) == r.usage.prompt_tokens, "completions: how likely a text is", r)
r = client.completions.create(model="lexis", prompt=raw["prompt"], temperature=0, max_tokens=8, logprobs=3)
lp = r.choices[0].logprobs
ok("".join(lp.tokens) == r.choices[0].text and len(lp.token_logprobs) == len(lp.tokens) == len(lp.text_offset)
   == len(lp.top_logprobs), "completions: logprobs", lp)

# token ids
r = client.chat.completions.create(**ASK, extra_body={"return_token_ids": True})
same((r.model_extra["prompt_token_ids"], r.choices[0].model_extra["token_ids"]), (case["prompt_ids"], IDS),
     "return_token_ids")
_, _, _, chunks = collect(client.chat.completions.create(**ASK, stream=True, extra_body={"return_token_ids": True}))
ids = [i for c in chunks for ch in c.choices for i in (ch.model_extra or {}).get("token_ids") or []]
same(ids, IDS, "return_token_ids: stream")

# limits of generation
r = client.chat.completions.create(**ASK, max_tokens=60, extra_body={"ignore_eos": True})
same((r.choices[0].finish_reason, r.usage.completion_tokens), ("length", 60), "ignore_eos")
r = client.chat.completions.create(**ASK, max_tokens=60, extra_body={"min_tokens": 60})
same(r.usage.completion_tokens, 60, "min_tokens")
r = client.chat.completions.create(**ASK, extra_body={"stop_token_ids": [IDS[9]]})
same((r.choices[0].finish_reason, r.usage.completion_tokens), ("stop", IDS.index(IDS[9]) + 1), "stop_token_ids")

# errors are the SDK's own
for kind, call in ((openai.BadRequestError, lambda: client.chat.completions.create(**dict(ASK, temperature=9))),
                   (openai.NotFoundError, lambda: client.chat.completions.create(**dict(ASK, model="gpt-9"))),
                   (openai.BadRequestError, lambda: client.chat.completions.create(**ASK, max_tokens=100000,
                                                                                  stream=True))):
    try:
        call()
        ok(False, kind.__name__)
    except kind as e:
        ok(bool(e.body and e.body["message"]), f"{kind.__name__}: {e.body['message'][:60]}")


# tool calls
tool = next(c for c in goldens() if c["name"] == "tool-feather")
ASK_TOOL = dict(model="lexis", messages=tool["messages"], tools=tool["tools"], temperature=0)
r = client.chat.completions.create(**ASK_TOOL)
call = r.choices[0].message.tool_calls[0]
same((call.type, call.function.name, call.function.arguments, r.choices[0].message.content, r.choices[0].finish_reason),
     ("function", "lookup", '{"word": "feather"}', None, "tool_calls"), "tool calls")
with client.chat.completions.stream(**ASK_TOOL) as stream:
    events = list(stream)
    final = stream.get_final_completion()
got = final.choices[0]
same((got.message.tool_calls[0].function.name, got.message.tool_calls[0].function.arguments, got.message.content,
      got.finish_reason, len(got.message.tool_calls)), ("lookup", '{"word": "feather"}', None, "tool_calls", 1),
     "tool calls: a stream, as the SDK adds it up")
ok([e for e in events if e.type == "tool_calls.function.arguments.delta"], "whose arguments come bit by bit", events)
same(len([e for e in events if e.type == "tool_calls.function.arguments.done"]), 1, "and are complete once")
answers = [client.chat.completions.create(**dict(ASK_TOOL, messages=[
    *tool["messages"], message, {"role": "tool", "tool_call_id": call.id, "content": "a light thing"}]))
    for message in (r.choices[0].message, {"role": "assistant", "content": None, "tool_calls": [
        {"id": call.id, "type": "function", "function": {"name": "lookup", "arguments": '{"word": "feather"}'}}]})]
same(*((a.usage.prompt_tokens, a.choices[0].message.content) for a in answers), "tool calls: the SDK's message goes back")
ok(answers[0].usage.prompt_tokens > r.usage.prompt_tokens + r.usage.completion_tokens, "with its call", answers[0].usage)

# embeddings: the SDK asks for base64 unless told otherwise
r = client.embeddings.create(model="lexis", input=["a violin", "a bow"])
one = client.embeddings.create(model="lexis", input="a bow", encoding_format="float").data[0].embedding
same([(d.index, d.object, len(d.embedding)) for d in r.data], [(i, "embedding", len(one)) for i in (0, 1)], "embeddings: two vectors")
ok(max(abs(a - b) for a, b in zip(r.data[1].embedding, one)) < 1e-7, "embeddings: base64 and floats are the same", (one[:4], r.data[1].embedding[:4]))
same((r.object, r.model, r.usage.prompt_tokens == r.usage.total_tokens > 2), ("list", "lexis", True), "embeddings: what stands beside them")
same(len(client.embeddings.create(model="lexis", input=[[5, 6, 7]], dimensions=16).data[0].embedding), 16, "embeddings: dimensions")

# golden chats without tools or thinking, all at the same time
plain = [c for c in goldens() if "messages" in c and not c.get("tools") and "</think>" not in c["output"]]


async def many():
    async with openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0) as c:
        async def one(case):
            r = await c.chat.completions.create(model="lexis", messages=case["messages"], temperature=0,
                                                max_tokens=case.get("max_tokens", 64))
            return r.choices[0].message.content
        return await asyncio.gather(*[one(c) for c in plain])


same(asyncio.run(many()), [c["output"] for c in plain], f"{len(plain)} golden chats at the same time")
client.close()
s.stop()
done()
