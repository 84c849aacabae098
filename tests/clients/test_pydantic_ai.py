"""pydantic-ai: ten turns of a streamed agent, tools, and output as a tool, as JSON of a schema and as the prompt asks."""
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, ToolOutput
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, PartStartEvent, ToolCallPart, ToolCallPartDelta
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from client import MODEL, V1, caches_turns, case, done, ok, runs_example, same

provider = OpenAIProvider(base_url=V1, api_key="any")
MODELS = {"chat": OpenAIChatModel(MODEL, provider=provider), "responses": OpenAIResponsesModel(MODEL, provider=provider)}
SETTINGS = {"temperature": 0, "max_tokens": 200}
NAMES = ["define", "count", "keep"] * 3
Word = Literal["river", "violin"]


class Entry(BaseModel):
    word: Word
    common: bool
    senses: Annotated[int, Field(ge=1, le=9)]


class Definition(BaseModel):
    """The JSON that the model was taught"""
    word: str
    pos: str
    definition: str


def named(run: RunContext):
    """A tool by its name in each step; that of the last is the agent's output."""
    return {**SETTINGS, "tool_choice": [[*NAMES, "answer"][run.run_step - 1]]}


def new_agent(model):
    agent = Agent(model, instructions="You are a dictionary.", deps_type=list, model_settings=named,
                  output_type=ToolOutput(Entry, name="answer"))

    @agent.tool
    def define(run: RunContext[list], word: Word) -> str:
        """Defines a word"""
        run.deps.append(("define", word in ("river", "violin")))
        return "river (noun): a large stream of water"

    @agent.tool
    def count(run: RunContext[list], word: Word, limit: Annotated[int, Field(ge=1, le=9)]) -> int:
        """Counts the senses of a word"""
        run.deps.append(("count", 1 <= limit <= 9))
        return limit

    @agent.tool
    def keep(run: RunContext[list], known: bool) -> str:
        """Notes whether a word is known"""
        run.deps.append(("keep", type(known) is bool))
        return "kept"

    return agent


@case
async def ten_turns():
    """ten turns"""
    for way, model in MODELS.items():
        called, arguments = [], ""

        async def pieces(run, events):
            nonlocal arguments
            async for e in events:
                if isinstance(e, PartStartEvent) and isinstance(e.part, ToolCallPart):
                    arguments += e.part.args or ""
                elif isinstance(e, PartDeltaEvent) and isinstance(e.delta, ToolCallPartDelta):
                    arguments += e.delta.args_delta or ""

        result = await new_agent(model).run("Define river.", deps=called, event_stream_handler=pieces)
        turns = [m for m in result.all_messages() if isinstance(m, ModelResponse)]
        same(called, [(name, True) for name in NAMES], f"{way}: the tools that were demanded, with arguments of their types")
        same(len(turns), 10, f"{way}: ten turns")
        ok(isinstance(result.output, Entry), f"{way}: it ends with an object of the class", result.output)
        same(arguments, "".join(p.args for m in turns for p in m.parts if isinstance(p, ToolCallPart)), f"{way}: the pieces are the arguments")
        caches_turns([(m.usage.input_tokens, m.usage.cache_read_tokens) for m in turns],
                     f"{way}: each turn finds the one before in the cache")


@case
async def output():
    """output types"""
    for way, model in MODELS.items():
        for kind in ToolOutput, NativeOutput:
            agent = Agent(model, output_type=kind(Entry), model_settings=SETTINGS)
            result = await agent.run("Define river as JSON.")
            ok(isinstance(result.output, Entry), f"{way}: {kind.__name__}", result.output)
            async with agent.run_stream("Define river as JSON.") as stream:
                streamed = [o async for o in stream.stream_output(debounce_by=None)]
            ok(streamed and streamed[-1] == result.output, f"{way}: {kind.__name__}, streamed", streamed)


@case
async def prompted():
    """PromptedOutput"""
    for way, model in MODELS.items():
        agent = Agent(model, output_type=PromptedOutput(Definition), model_settings=SETTINGS)
        result = await agent.run("Define river as JSON.")
        ok(isinstance(result.output, Definition), f"{way}: PromptedOutput", result.output)


@case
def example():
    """docs/examples"""
    runs_example(["{}/with_pydantic_ai.py"], "senses=")


done()
