"""litellm: tigond as a server of OpenAI's, of Anthropic's and of Ollama's API, and of the Responses API."""
import json
from typing import Annotated, Literal

import litellm
from pydantic import BaseModel, Field

from client import MODEL, URL, V1, case, done, ok, same

WAYS = {"openai": dict(model=f"openai/{MODEL}", api_base=V1), "anthropic": dict(model=f"anthropic/{MODEL}", api_base=URL)}
ASK = dict(api_key="any", temperature=0, max_tokens=200, max_retries=0, messages=[{"role": "user", "content": "Define river."}])
TOOL = {"type": "function", "function": {"name": "lookup", "description": "Looks up a word", "strict": True, "parameters": {
    "type": "object", "required": ["word", "limit"], "additionalProperties": False, "properties": {
        "word": {"type": "string", "enum": ["river", "violin"]}, "limit": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
NAMED = {"type": "function", "function": {"name": "lookup"}}


class Entry(BaseModel):
    word: Literal["river", "violin"]
    common: bool
    senses: Annotated[int, Field(ge=1, le=9)]


def fits(call):
    a = json.loads(call.function.arguments)
    return (call.function.name == "lookup" and set(a) == {"word", "limit"} and a["word"] in ("river", "violin")
            and type(a["limit"]) is int and 1 <= a["limit"] <= 9)


@case
def texts():
    """texts"""
    answers = set()
    for way, where in WAYS.items():
        r = litellm.completion(**where, **ASK)
        text = r.choices[0].message.content
        answers.add(text)
        ok(text and r.choices[0].finish_reason == "stop" and r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens,
           f"{way}: a text", r)
        chunks = list(litellm.completion(**where, **ASK, stream=True, stream_options={"include_usage": True}))
        whole = litellm.stream_chunk_builder(chunks)
        same((whole.choices[0].message.content, whole.usage.completion_tokens), (text, r.usage.completion_tokens),
             f"{way}: streamed, the same text and usage")
    same(len(answers), 1, "both ways give one answer")
    r = litellm.text_completion(model=f"text-completion-openai/{MODEL}", api_base=V1, api_key="any", prompt="A river is", max_tokens=8,
                                temperature=0)
    ok(r.choices[0].text and r.usage.completion_tokens == 8, "completions", r)


@case
def tools():
    """tools"""
    for way, where in WAYS.items():
        r = litellm.completion(**where, **ASK, tools=[TOOL], tool_choice=NAMED)
        call = r.choices[0].message.tool_calls[0]
        ok(fits(call) and r.choices[0].finish_reason == "tool_calls", f"{way}: a call", r)
        chunks = list(litellm.completion(**where, **ASK, tools=[TOOL], tool_choice=NAMED, stream=True))
        whole = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls[0]
        same(json.loads(whole.function.arguments), json.loads(call.function.arguments), f"{way}: a call, streamed")
        answer = litellm.completion(**{**where, **ASK, "messages": [
            *ASK["messages"], r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "a stream of water"}]},
            tools=[TOOL])
        ok(answer.usage.prompt_tokens > r.usage.total_tokens and answer.usage.completion_tokens > 0,
           f"{way}: the next turn has call and result", answer)


@case
def structured():
    """response_format"""
    for way, where in WAYS.items():
        r = litellm.completion(**where, **ASK, response_format=Entry)
        ok(isinstance(Entry.model_validate_json(r.choices[0].message.content), Entry), f"{way}: response_format", r)


@case
def ollama():
    """Ollama's API"""
    ask = dict(model=f"ollama_chat/{MODEL}", api_base=URL, temperature=0, max_tokens=200, messages=ASK["messages"])
    text = litellm.completion(**WAYS["openai"], **ASK).choices[0].message.content
    r = litellm.completion(**ask)
    same((r.choices[0].message.content, r.choices[0].finish_reason), (text, "stop"), "ollama: the same text as by OpenAI's API")
    whole = litellm.stream_chunk_builder(list(litellm.completion(**ask, stream=True)))
    same(whole.choices[0].message.content, text, "ollama: streamed, the same text")
    r = litellm.completion(**ask, response_format=Entry)
    ok(isinstance(Entry.model_validate_json(r.choices[0].message.content), Entry), "ollama: response_format", r)


@case
def responses():
    """responses"""
    ask = dict(**WAYS["openai"], api_key="any", input="Define river.", temperature=0, max_output_tokens=200)
    r = litellm.responses(**ask)
    text = r.output[0].content[0].text
    ok(text and r.usage.output_tokens > 3, "responses: a text", r)
    pieces = [e.delta for e in litellm.responses(**ask, stream=True) if e.type == "response.output_text.delta"]
    ok("".join(pieces) == text and len(pieces) > 5, "responses: streamed, the same", pieces)


done()
