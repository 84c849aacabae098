"""ollama: chat, generate, schemas, tools and lists, whole and streamed."""
import json
from typing import Annotated, Literal

import ollama
from pydantic import BaseModel, Field

from client import MODEL, URL, case, done, ok, same

client = ollama.Client(host=URL)
OPTIONS = {"temperature": 0, "seed": 1, "num_predict": 200}
ASK = dict(model=MODEL, messages=[{"role": "user", "content": "What is a river?"}], options=OPTIONS)


class Entry(BaseModel):
    word: Literal["river", "violin"]
    common: bool
    senses: Annotated[int, Field(ge=1, le=9)]


def lookup(word: str) -> str:
    """Look up a word in the dictionary.

    Args:
        word: The word to look up.
    """
    return "a thing used for testing"


@case
def lists():
    """lists"""
    ok(MODEL in [m.model.split(":")[0] for m in client.list().models], "list")
    ok("completion" in client.show(MODEL).capabilities, "show")


@case
def chat():
    """chat"""
    whole = client.chat(**ASK)
    ok(whole.done and whole.message.content and whole.prompt_eval_count > 3 and whole.eval_count > 3, "chat: a text", whole)
    pieces = list(client.chat(**ASK, stream=True))
    same("".join(p.message.content or "" for p in pieces), whole.message.content, "chat, streamed: the same text")
    ok(len(pieces) > 5 and [p.done for p in pieces] == [False] * (len(pieces) - 1) + [True], "chat, streamed: in pieces", pieces)
    same(pieces[-1].eval_count, whole.eval_count, "chat, streamed: the same count of tokens")


@case
def structured():
    """format"""
    whole = client.chat(**ASK, format=Entry.model_json_schema())
    entry = Entry.model_validate_json(whole.message.content)
    pieces = list(client.chat(**ASK, format=Entry.model_json_schema(), stream=True))
    same(Entry.model_validate_json("".join(p.message.content or "" for p in pieces)), entry, "format: an object of the schema")


@case
def tools():
    """tools"""
    ask = {**ASK, "messages": [{"role": "user", "content": "Look up feather in the dictionary."}], "tools": [lookup]}
    whole = client.chat(**ask)
    call = whole.message.tool_calls[0].function
    same((call.name, call.arguments), ("lookup", {"word": "feather"}), "tools: a call")
    calls = [c for p in client.chat(**ask, stream=True) for c in p.message.tool_calls or []]
    same([(c.function.name, c.function.arguments) for c in calls], [(call.name, call.arguments)], "tools, streamed: the same call")
    answer = client.chat(**{**ask, "messages": [*ask["messages"], whole.message,
                                                {"role": "tool", "tool_name": "lookup", "content": lookup(**call.arguments)}]})
    ok(answer.message.content and answer.prompt_eval_count > whole.prompt_eval_count, "tools: the answer after its result", answer)


@case
def generate():
    """generate"""
    whole = client.generate(model=MODEL, prompt="What is a river?", options=OPTIONS)
    ok(whole.done and whole.response, "generate: a text", whole)
    pieces = list(client.generate(model=MODEL, prompt="What is a river?", options=OPTIONS, stream=True))
    same("".join(p.response for p in pieces), whole.response, "generate, streamed: the same text")
    answer = client.generate(model=MODEL, prompt="Define river as JSON.", format="json", options=OPTIONS)
    ok(isinstance(json.loads(answer.response), dict), "generate: JSON", answer)


@case
def errors():
    """errors"""
    try:
        client.chat(**{**ASK, "model": "nothing"})
        ok(False, "an unknown model raises the SDK's exception")
    except ollama.ResponseError as e:
        same(e.status_code, 404, "an unknown model raises the SDK's exception")


done()
