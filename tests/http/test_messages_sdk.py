"""The anthropic Python SDK drives messages, streams, tools, thinking and token counts."""
import os
import shutil
import tempfile

from harness import Server, done, goldens, make_model, messages, ok, same, skip_all

try:
    import anthropic
except ImportError:
    skip_all("the anthropic package is not installed")

CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "bow"}}\n</tool_call>'
TOOL = {"name": "look_up", "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}}}
case = next(c for c in goldens() if c["name"] == "define-violin")
ASK = dict(model="lexis", messages=case["messages"], extra_body={"temperature": 0}, max_tokens=200)


where = tempfile.mkdtemp()
CHAT_TOOL = {"type": "function", "function": {"name": TOOL["name"], "parameters": TOOL["input_schema"]}}
# The model also answers "call" with a call and "think" with thinking and a text.
s = Server(model=make_model(os.path.join(where, "lexis"), [
    ({"messages": messages("call"), "tools": [CHAT_TOOL], "chat_template_kwargs": {"enable_thinking": False}}, CALL),
    ({"messages": messages("think"), "chat_template_kwargs": {"enable_thinking": True}}, "Hm.\n</think>\n\nA bow.")],
    goldens()))
client = anthropic.Anthropic(base_url=s.url, api_key="none", max_retries=0)

same([m.id for m in client.models.list()], ["lexis"], "models.list")
same(client.models.retrieve("lexis").display_name, "lexis", "models.retrieve")

m = client.messages.create(**ASK)
same((m.content[0].type, m.content[0].text, m.stop_reason, m.role), ("text", case["output"], "end_turn", "assistant"),
     "the golden answer")
same((m.usage.input_tokens + m.usage.cache_read_input_tokens, m.usage.output_tokens),
     (len(case["prompt_ids"]), len(case["output_ids"])), "its usage")
ok(m._request_id, "its request id")
same(client.messages.count_tokens(model="lexis", messages=case["messages"]).input_tokens, len(case["prompt_ids"]), "count_tokens")

with client.messages.stream(**ASK) as stream:
    pieces = list(stream.text_stream)
    m = stream.get_final_message()
ok("".join(pieces) == case["output"] == m.content[0].text and len(pieces) > 10, "a stream", pieces)
same(m.usage.output_tokens, len(case["output_ids"]), "its usage")
kinds = [e.type for e in client.messages.create(**ASK, stream=True)]
same((kinds[:2], kinds[-3:]), (["message_start", "content_block_start"],
                               ["content_block_stop", "message_delta", "message_stop"]), "its events")

m = client.messages.create(**ASK, stop_sequences=[" four strings"])
same((m.stop_reason, m.stop_sequence, m.content[0].text), ("stop_sequence", " four strings", case["output"].split(" four strings")[0]),
     "stop_sequences")

for streamed in False, True:
    ask = dict(model="lexis", max_tokens=100, extra_body={"temperature": 0}, tools=[TOOL], messages=[{"role": "user", "content": "call"}])
    if streamed:
        with client.messages.stream(**ask) as stream:
            m = stream.get_final_message()
    else:
        m = client.messages.create(**ask)
    use = m.content[0]
    same((use.type, use.name, use.input, m.stop_reason), ("tool_use", "look_up", {"word": "bow"}, "tool_use"), "a call")
    back = [*ask["messages"], {"role": "assistant", "content": m.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "42"}]}]
    ok(client.messages.create(**{**ask, "messages": back, "max_tokens": 3}).usage.output_tokens, "and its result")

    ask = dict(model="lexis", max_tokens=2000, messages=[{"role": "user", "content": "think"}], extra_body={"temperature": 0},
               thinking={"type": "enabled", "budget_tokens": 1024})
    if streamed:
        with client.messages.stream(**ask) as stream:
            m = stream.get_final_message()
    else:
        m = client.messages.create(**ask)
    same([(b.type, getattr(b, "text", None) or b.thinking) for b in m.content], [("thinking", "Hm.\n"), ("text", "A bow.")], "thinking")
    ok(m.content[0].signature, "is signed")
    back = [*ask["messages"], {"role": "assistant", "content": m.content}, {"role": "user", "content": "more"}]
    ok(client.messages.create(**{**ask, "messages": back, "max_tokens": 1025}).usage.output_tokens, "and comes back")

for error, status, more in ((anthropic.NotFoundError, 404, {"model": "claude"}),
                            (anthropic.BadRequestError, 400, {"extra_body": {"temperature": 9}})):
    try:
        client.messages.create(**{**ASK, **more})
        ok(False, f"{more} is refused")
    except error as e:
        ok(e.status_code == status and e.body["error"]["message"] and e.request_id, f"{error.__name__}", e.body)
client.close()
s.stop()
shutil.rmtree(where)
done()
