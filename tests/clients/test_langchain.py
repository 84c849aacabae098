"""langchain-openai: bind_tools, with_structured_output in its three modes, streams, over chat and responses."""
import json
from typing import Annotated, Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

from client import MODEL, V1, case, done, ok, runs_example, same

SETTINGS = dict(model=MODEL, base_url=V1, api_key="any", temperature=0, max_tokens=200, max_retries=0)
CHAT = ChatOpenAI(**SETTINGS, seed=1, stream_usage=True)
ASK = "Define river as JSON."


class Entry(BaseModel):
    """A word of a dictionary"""
    word: Literal["river", "violin"]
    common: bool
    senses: Annotated[int, Field(ge=1, le=9)]


class Definition(BaseModel):
    """The JSON that the model was taught"""
    word: str
    pos: str
    definition: str


@tool
def lookup(word: Literal["river", "violin"], limit: Annotated[int, Field(ge=1, le=9)]) -> str:
    """Looks up a word"""
    return f"{word}: {limit} senses"


@case
def texts():
    """texts"""
    whole = CHAT.invoke("What is a river?")
    ok(whole.content and whole.usage_metadata["output_tokens"] > 3, "invoke", whole)
    chunks = list(CHAT.stream("What is a river?"))
    added = chunks[0]
    for c in chunks[1:]:
        added += c
    same((added.content, added.usage_metadata["output_tokens"]), (whole.content, whole.usage_metadata["output_tokens"]),
         "stream: the same text and usage")
    ok(len(chunks) > 5, "stream: pieces", chunks)
    same([m.content for m in CHAT.batch(["What is a river?"] * 3)], [whole.content] * 3, "batch")
    ok(len(OpenAI(**{**SETTINGS, "max_tokens": 8}).invoke("A river is")) > 3, "completions")


@case
def tools():
    """tools"""
    for choice in "lookup", "required":
        bound = CHAT.bind_tools([lookup], tool_choice=choice, strict=True)
        m = bound.invoke("Look up river.")
        call = m.tool_calls[0]
        result = lookup.invoke(call)  # validates the arguments
        ok(call["name"] == "lookup" and isinstance(result, ToolMessage) and "senses" in result.content, f"bind_tools: {choice}", m)
    chunks = list(bound.stream("Look up river."))
    added = chunks[0]
    for c in chunks[1:]:
        added += c
    pieces = [p["args"] or "" for c in chunks for p in c.tool_call_chunks]
    ok(added.tool_calls[0]["args"] == call["args"] == json.loads("".join(pieces)) and len(pieces) > 3, "bind_tools: streamed", pieces)
    answer = CHAT.bind_tools([lookup]).invoke([HumanMessage("Look up river."), m, result])
    ok(answer.usage_metadata["input_tokens"] > m.usage_metadata["total_tokens"] and (answer.content or answer.tool_calls),
       "bind_tools: the next turn has call and result", answer)


@case
def structured():
    """structured output"""
    for method, kind, more in (("json_schema", Entry, {"strict": True}), ("function_calling", Entry, {}),
                               ("json_mode", Definition, {})):
        r = CHAT.with_structured_output(kind, method=method, include_raw=True, **more).invoke(ASK)
        ok(isinstance(r["parsed"], kind) and r["parsing_error"] is None, f"with_structured_output: {method}", r)
        last = list(CHAT.with_structured_output(kind, method=method, **more).stream(ASK))[-1]
        same(last, r["parsed"], f"with_structured_output: {method}, streamed")


@case
def responses():
    """the Responses API"""
    model = ChatOpenAI(**SETTINGS, use_responses_api=True)
    whole = model.invoke("What is a river?")
    ok(whole.text and whole.usage_metadata["output_tokens"] > 3, "responses: a text", whole)
    same("".join(c.text for c in model.stream("What is a river?")), whole.text, "responses: streamed")
    m = model.bind_tools([lookup], tool_choice="lookup", strict=True).invoke("Look up river.")
    ok(m.tool_calls[0]["name"] == "lookup" and "senses" in lookup.invoke(m.tool_calls[0]).content, "responses: a call", m)
    ok(isinstance(model.with_structured_output(Entry).invoke(ASK), Entry), "responses: with_structured_output")


@case
def embeddings():
    """embeddings"""
    # With check_embedding_ctx_length it would cut texts by tiktoken's tables, which are not at PyPI.
    model = OpenAIEmbeddings(model=MODEL, base_url=V1, api_key="any", check_embedding_ctx_length=False)
    texts = model.embed_documents(["a river", "a violin"])
    ok(len(texts) == 2 and len(texts[0]) == len(texts[1]) > 3 and texts[0] != texts[1], "embeddings: of documents", texts)
    query = model.embed_query("a river")
    ok(all(abs(a - b) < 1e-5 for a, b in zip(query, texts[0])), "embeddings: of a query, the same")


@case
def example():
    """docs/examples"""
    runs_example(["{}/with_langchain.py"], "senses=")


done()
