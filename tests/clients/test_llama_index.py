"""llama-index-llms-openai-like: chat and completions, predict_and_call, structured predictions, streams."""
from typing import Annotated, Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field

from client import MODEL, V1, case, done, ok, same

SETTINGS = dict(model=MODEL, api_base=V1, api_key="any", temperature=0, max_tokens=200, context_window=4096, max_retries=0)
LLM = OpenAILike(**SETTINGS, is_chat_model=True, is_function_calling_model=True, strict=True)
ASK = [ChatMessage(role="user", content="What is a river?")]
called = []


class Entry(BaseModel):
    """A word of a dictionary"""
    word: Literal["river", "violin"]
    common: bool
    senses: Annotated[int, Field(ge=1, le=9)]


def lookup(word: Literal["river", "violin"], limit: Literal[1, 2, 3]) -> str:
    """Looks up a word"""
    called.append((word in ("river", "violin"), limit in (1, 2, 3)))
    return f"{word}: {limit} senses"


TOOL = FunctionTool.from_defaults(lookup)


@case
def texts():
    """texts"""
    whole = LLM.chat(ASK)
    ok(whole.message.content and whole.raw.usage.completion_tokens > 3, "chat", whole)
    pieces = list(LLM.stream_chat(ASK))
    ok("".join(p.delta or "" for p in pieces) == whole.message.content == pieces[-1].message.content and len(pieces) > 5,
       "chat, streamed: the same text in pieces", pieces[-1])
    completions = OpenAILike(**{**SETTINGS, "max_tokens": 8}, is_chat_model=False)
    text = completions.complete("A river is").text
    same("".join(p.delta for p in completions.stream_complete("A river is")), text, "completions: streamed and whole")
    ok(text, "completions: a text")


@case
def predict_and_call():
    """predict_and_call"""
    r = LLM.predict_and_call([TOOL], "Look up river.", tool_choice="lookup", error_on_tool_error=True)
    same(called, [(True, True)], "predict_and_call: the tool is called with arguments of its types")
    ok("senses" in r.response and len(r.sources) == 1, "predict_and_call: its result", r)
    r = LLM.chat_with_tools([TOOL], "Look up river.", tool_required=True)
    call = LLM.get_tool_calls_from_response(r)[0]
    ok(call.tool_name == "lookup" and "senses" in lookup(**call.tool_kwargs), "chat_with_tools: required", call)
    streamed = list(LLM.stream_chat_with_tools([TOOL], "Look up river.", tool_required=True))[-1]
    same(LLM.get_tool_calls_from_response(streamed)[0].tool_kwargs, call.tool_kwargs, "chat_with_tools: streamed, the same arguments")
    answer = LLM.chat_with_tools([TOOL], chat_history=[
        ChatMessage(role="user", content="Look up river."), r.message,
        ChatMessage(role="tool", content="a stream of water", additional_kwargs={"tool_call_id": call.tool_id})])
    ok(answer.raw.usage.prompt_tokens > r.raw.usage.total_tokens and answer.raw.usage.completion_tokens > 0,
       "chat_with_tools: the next turn has call and result", answer)


@case
def structured():
    """structured predictions"""
    prompt = PromptTemplate("Define {word} as JSON.")
    for by_schema in False, True:
        llm = OpenAILike(**SETTINGS, is_chat_model=True, is_function_calling_model=True, strict=True,
                         should_use_structured_outputs=by_schema)
        entry = llm.structured_predict(Entry, prompt, word="river")
        ok(isinstance(entry, Entry), f"structured_predict: {'schema' if by_schema else 'tool'}", entry)
        last = list(llm.stream_structured_predict(Entry, prompt, word="river"))[-1]
        same(Entry.model_validate(last.model_dump()), entry, "structured_predict: streamed, the same")


done()
