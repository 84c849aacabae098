"""anthropic: messages, streams, tools, structured answers and counts, and the SDK's own tool loop."""
import json
from typing import Literal

import anthropic
from pydantic import BaseModel

from client import MODEL, case, done, ok, same

client = anthropic.Anthropic(max_retries=0)
ASK = dict(model=MODEL, max_tokens=200, messages=[{"role": "user", "content": "Define river."}], extra_body={"temperature": 0})
TOOL = {"name": "lookup", "description": "Looks up a word", "input_schema": {
    "type": "object", "required": ["word", "limit"], "additionalProperties": False, "properties": {
        "word": {"type": "string", "enum": ["river", "violin"]}, "limit": {"type": "integer", "minimum": 1, "maximum": 9}}}}


class Entry(BaseModel):
    word: Literal["river", "violin"]
    kind: Literal["noun", "verb"]
    common: bool


def fits(use):
    return (use.type == "tool_use" and use.name == "lookup" and set(use.input) == {"word", "limit"}
            and use.input["word"] in ("river", "violin") and type(use.input["limit"]) is int and 1 <= use.input["limit"] <= 9)


@case
def messages():
    """messages"""
    m = client.messages.create(**ASK)
    ok(m.stop_reason == "end_turn" and m.content[0].text, "messages: a text", m)
    count = client.messages.count_tokens(model=MODEL, messages=ASK["messages"]).input_tokens
    same(m.usage.input_tokens + m.usage.cache_read_input_tokens, count, "count_tokens is the prompt's length")
    with client.messages.stream(**ASK) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    same(("".join(pieces), final.content[0].text), (m.content[0].text, m.content[0].text), "stream: the same text")
    ok(len(pieces) > 5 and final.usage.output_tokens == m.usage.output_tokens, "stream: pieces, the same usage", final)


@case
def tools():
    """tools"""
    for choice in {"type": "tool", "name": "lookup"}, {"type": "any"}:
        m = client.messages.create(**ASK, tools=[TOOL], tool_choice=choice)
        ok(fits(m.content[-1]) and m.stop_reason == "tool_use", f"tools: {choice['type']}", m)
    with client.messages.stream(**ASK, tools=[TOOL], tool_choice={"type": "tool", "name": "lookup"}) as stream:
        events = list(stream)
        final = stream.get_final_message()
    pieces = [e.partial_json for e in events if e.type == "input_json"]
    ok(len(pieces) > 3 and fits(final.content[-1]) and json.loads("".join(pieces)) == final.content[-1].input,
       "tools, streamed: pieces of the arguments", pieces)
    use = final.content[-1]
    answer = client.messages.create(**{**ASK, "messages": [
        *ASK["messages"], {"role": "assistant", "content": final.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "a stream of water"}]}]}, tools=[TOOL])
    before = final.usage.input_tokens + final.usage.cache_read_input_tokens
    ok(answer.usage.input_tokens + answer.usage.cache_read_input_tokens > before + final.usage.output_tokens
       and answer.usage.output_tokens > 0, "tools: the next turn has call and result", answer)


@case
def parsed():
    """messages.parse"""
    m = client.messages.parse(**ASK, output_format=Entry)
    ok(isinstance(m.parsed_output, Entry), "parse: an object of the class", m)
    with client.messages.stream(**ASK, output_format=Entry) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    ok(final.parsed_output == m.parsed_output and "".join(pieces) == final.content[0].text, "parse, streamed: the same object", final)


@case
def runner():
    """the SDK's tool loop"""
    asked = []

    @anthropic.beta_tool
    def lookup(word: Literal["river", "violin"]) -> str:
        """Looks up a word.

        Args:
            word: The word.
        """
        asked.append(word)
        return "a stream of water"

    turns = list(client.beta.messages.tool_runner(
        **ASK, tools=[lookup], tool_choice={"type": "tool", "name": "lookup"}, max_iterations=3))
    same((len(turns), len(asked)), (3, 3), "tool_runner: three turns, each with a call")
    ok(set(asked) <= {"river", "violin"} and all(t.stop_reason == "tool_use" for t in turns), "tool_runner: arguments of the type", asked)


done()
