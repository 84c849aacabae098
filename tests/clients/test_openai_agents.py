"""openai-agents: ten turns of a streamed agent over the Responses API (its default), structured output, and over chat."""
import asyncio
from typing import Annotated, Literal

import openai
from agents import (Agent, AgentHooks, ModelSettings, OpenAIChatCompletionsModel, RunContextWrapper, Runner, StopAtTools,
                    function_tool, set_default_openai_client)
from pydantic import BaseModel, Field

from client import MODEL, caches_turns, case, done, ok, same

client = openai.AsyncOpenAI(max_retries=0)
set_default_openai_client(client, use_for_tracing=False)
Word = Literal["river", "violin"]
SETTINGS = dict(temperature=0, max_tokens=200)


class Entry(BaseModel):
    word: Word
    common: bool
    senses: Annotated[int, Field(ge=1, le=9)]


@function_tool
def define(wrapper: RunContextWrapper[list], word: Word) -> str:
    """Defines a word"""
    wrapper.context.append(("define", word in ("river", "violin")))
    return "river (noun): a large stream of water"


@function_tool
def count(wrapper: RunContextWrapper[list], word: Word, limit: Annotated[int, Field(ge=1, le=9)]) -> int:
    """Counts the senses of a word"""
    wrapper.context.append(("count", type(limit) is int and 1 <= limit <= 9))
    return limit


@function_tool
def keep(wrapper: RunContextWrapper[list], known: bool) -> str:
    """Notes whether a word is known"""
    wrapper.context.append(("keep", type(known) is bool))
    return "kept"


@function_tool
def answer(wrapper: RunContextWrapper[list], word: Word) -> str:
    """Ends with a word"""
    wrapper.context.append(("answer", word in ("river", "violin")))
    return f"answer: {word}"


class Choices(AgentHooks):
    """Demands a tool by its name in each turn."""

    def __init__(self, names):
        self.names = list(names)

    async def on_llm_end(self, context, agent, response):
        if self.names:
            agent.model_settings.tool_choice = self.names.pop(0)


def new_agent(names, model):
    """An agent that calls these tools in turn and ends with the result of the last."""
    first, *rest = names
    return Agent("dictionary", instructions="You are a dictionary.", tools=[define, count, keep, answer], hooks=Choices(rest),
                 reset_tool_choice=False, tool_use_behavior=StopAtTools(stop_at_tool_names=["answer"]), model=model,
                 model_settings=ModelSettings(**SETTINGS, tool_choice=first, include_usage=True))


async def ten_turns(way, model):
    """Ten turns, each with a tool; the last tool's result is the agent's. The pieces of the streams are the whole."""
    names, called = [*["define", "count", "keep"] * 3, "answer"], []
    result = Runner.run_streamed(new_agent(names, model), "Define river.", context=called, max_turns=12)
    arguments = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.function_call_arguments.delta":
            arguments += event.data.delta
    responses = result.raw_responses
    same(called, [(name, True) for name in names], f"{way}: the tools that were demanded, with arguments of their types")
    same(len(responses), 10, f"{way}: ten turns")
    ok(result.final_output.startswith("answer: "), f"{way}: it ends with the last tool's result", result.final_output)
    same(arguments, "".join(o.arguments for r in responses for o in r.output if o.type == "function_call"),
         f"{way}: the pieces are the arguments")
    caches_turns([(r.usage.input_tokens, r.usage.input_tokens_details.cached_tokens) for r in responses],
                 f"{way}: each turn finds the one before in the cache")


@case
async def agent_of_responses():
    """ten turns over responses"""
    await ten_turns("responses", MODEL)


@case
async def agent_of_chat():
    """ten turns over chat"""
    await ten_turns("chat", OpenAIChatCompletionsModel(MODEL, client))


@case
async def text():
    """texts"""
    for way, model in (("responses", MODEL), ("chat", OpenAIChatCompletionsModel(MODEL, client))):
        result = Runner.run_streamed(Agent("dictionary", model=model, model_settings=ModelSettings(**SETTINGS)), "What is a river?")
        pieces = [e.data.delta async for e in result.stream_events()
                  if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"]
        ok(len(pieces) > 5 and "".join(pieces) == result.final_output, f"{way}: a text in pieces", pieces)


@case
async def structured():
    """output_type"""
    for model in MODEL, OpenAIChatCompletionsModel(MODEL, client):
        agent = Agent("dictionary", instructions="You are a dictionary.", model=model, output_type=Entry,
                      model_settings=ModelSettings(**SETTINGS))
        result = await Runner.run(agent, "Define river as JSON.")
        ok(isinstance(result.final_output, Entry), "output_type: an object of the class", result.final_output)


@case
async def many():
    """runs at the same time"""
    results = await asyncio.gather(*[Runner.run(new_agent(["count", "answer"], MODEL), f"Define river {i}.", context=[], max_turns=3)
                                     for i in range(4)])
    ok(all(len(r.raw_responses) == 2 and r.final_output.startswith("answer: ") for r in results), "four agents at the same time", results)


done()
