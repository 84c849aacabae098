"""openai: structured answers and tools of pydantic classes, over chat and responses, whole and streamed."""
import json
from typing import Literal

import openai
from pydantic import BaseModel, Field

from client import MODEL, case, done, ok, same

client = openai.OpenAI(max_retries=0)
ASK = [{"role": "user", "content": "Define river."}]


class Sense(BaseModel):
    kind: Literal["noun", "verb"]
    letters: int = Field(ge=1, le=20)


class Entry(BaseModel):
    word: Literal["river", "violin"]
    common: bool
    senses: list[Sense] = Field(min_length=1, max_length=2)


class Lookup(BaseModel):
    """Looks up a word"""
    word: Literal["river", "violin"]
    limit: int = Field(ge=1, le=9)


TOOL = openai.pydantic_function_tool(Lookup)
NAMED = {"type": "function", "function": {"name": "Lookup"}}
PLAIN = {"type": "function", "name": "Lookup", "parameters": TOOL["function"]["parameters"], "strict": True}
CHAT = dict(model=MODEL, messages=ASK, temperature=0, seed=1, max_tokens=200)
RESPONSE = dict(model=MODEL, input=ASK, temperature=0, max_output_tokens=200)


@case
def parsed_chat():
    """chat.completions.parse"""
    r = client.chat.completions.parse(**CHAT, response_format=Entry)
    entry = r.choices[0].message.parsed
    ok(isinstance(entry, Entry) and entry.senses, "parse: an object of the class", r)
    same(Entry.model_validate_json(r.choices[0].message.content), entry, "parse: its text is the object")
    ok(r.usage.completion_tokens > 10 and r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, "parse: usage", r)

    with client.chat.completions.stream(**CHAT, response_format=Entry, stream_options={"include_usage": True}) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    pieces = [e.delta for e in events if e.type == "content.delta"]
    same(final.choices[0].message.parsed, entry, "parsed stream: the same object")
    ok(len(pieces) > 5 and "".join(pieces) == r.choices[0].message.content, "parsed stream: pieces of the same text", pieces)
    same(final.usage.completion_tokens, r.usage.completion_tokens, "parsed stream: the same usage")


@case
def length():
    """a parsed answer that is cut raises the SDK's exception"""
    try:
        client.chat.completions.parse(**dict(CHAT, max_tokens=3), response_format=Entry)
        ok(False, "a cut answer is not parsed")
    except openai.LengthFinishReasonError as e:
        same(e.completion.usage.completion_tokens, 3, "a cut answer is not parsed")


@case
def tools_of_chat():
    """tools over chat"""
    r = client.chat.completions.parse(**CHAT, tools=[TOOL], tool_choice=NAMED)
    call = r.choices[0].message.tool_calls[0]
    ok(isinstance(call.function.parsed_arguments, Lookup), "tools: arguments are an object of the class", r)
    same((call.function.name, r.choices[0].finish_reason), ("Lookup", "tool_calls"), "tools: its name")

    with client.chat.completions.stream(**CHAT, tools=[TOOL], tool_choice="required", parallel_tool_calls=False) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    got = final.choices[0].message.tool_calls[0].function
    pieces = [e.arguments_delta for e in events if e.type == "tool_calls.function.arguments.delta"]
    ok(isinstance(got.parsed_arguments, Lookup), "tools, streamed: an object of the class", final)
    ok(len(pieces) > 3 and "".join(pieces) == got.arguments, "tools, streamed: pieces of the arguments", pieces)

    answer = client.chat.completions.create(**{**CHAT, "messages": [
        *ASK, r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": '{"river": "a stream of water"}'}]}, tools=[TOOL])
    ok(answer.usage.prompt_tokens > r.usage.prompt_tokens + 20 and answer.usage.completion_tokens > 0,
       "tools: the next turn has call and result", answer)
    none = client.chat.completions.create(**CHAT, tools=[TOOL], tool_choice="none")
    ok(none.choices[0].message.tool_calls is None and none.choices[0].message.content, "tools: none", none)


@case
def responses():
    """responses"""
    r = client.responses.create(**RESPONSE)
    ok(r.status == "completed" and r.output_text, "responses: a text", r)
    with client.responses.stream(**RESPONSE) as stream:
        pieces = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    same(("".join(pieces), final.output_text), (r.output_text, r.output_text), "responses, streamed: the same text")
    same(final.usage.output_tokens, r.usage.output_tokens, "responses, streamed: the same usage")
    again = client.responses.create(**{**RESPONSE, "input": "And a violin?"}, previous_response_id=r.id)
    ok(again.usage.input_tokens > r.usage.input_tokens + r.usage.output_tokens - 1, "responses: a second turn by id", again)


@case
def structured_responses():
    """responses.parse"""
    r = client.responses.parse(**RESPONSE, text_format=Entry)
    ok(isinstance(r.output_parsed, Entry), "responses.parse: an object of the class", r)
    with client.responses.stream(**RESPONSE, text_format=Entry) as stream:
        pieces = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    same(final.output_parsed, r.output_parsed, "responses.parse, streamed: the same object")
    ok(len(pieces) > 5 and "".join(pieces) == final.output_text, "responses.parse, streamed: pieces", pieces)


@case
def tools_of_responses():
    """tools over responses"""
    named = {"type": "function", "name": "Lookup"}
    r = client.responses.create(**RESPONSE, tools=[PLAIN], tool_choice=named)
    call = next(o for o in r.output if o.type == "function_call")
    Lookup.model_validate_json(call.arguments)
    with client.responses.stream(**RESPONSE, tools=[PLAIN], tool_choice=named) as stream:
        pieces = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    streamed = next(o for o in final.output if o.type == "function_call")
    same((streamed.name, json.loads(streamed.arguments)), (call.name, json.loads(call.arguments)), "responses: a call, streamed and whole")
    same("".join(pieces), streamed.arguments, "responses: pieces of its arguments")
    answer = client.responses.create(**{**RESPONSE, "tools": [PLAIN], "input": [
        {"type": "function_call_output", "call_id": call.call_id, "output": "a stream of water"}]}, previous_response_id=r.id)
    ok(answer.status in ("completed", "incomplete") and answer.output and answer.usage.input_tokens > r.usage.input_tokens,
       "responses: the next turn has the result", answer)


@case
def embeddings():
    """embeddings"""
    r = client.embeddings.create(model=MODEL, input=["a river", "a violin", "a river"])  # the SDK asks for base64
    vectors = [d.embedding for d in r.data]
    ok(len(vectors) == 3 and vectors[0] == vectors[2] != vectors[1] and all(isinstance(x, float) for x in vectors[0]), "embeddings", r.usage)
    floats = client.embeddings.create(model=MODEL, input="a river", encoding_format="float").data[0].embedding
    ok(len(floats) == len(vectors[0]) and all(abs(a - b) < 1e-5 for a, b in zip(floats, vectors[0])), "embeddings: floats are base64's")
    ok(r.usage.prompt_tokens == r.usage.total_tokens > 3, "embeddings: usage", r.usage)


done()
