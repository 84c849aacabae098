"""smolagents: a ToolCallingAgent that looks up a word and answers, whole and streamed."""
from smolagents import ChatMessageStreamDelta, LogLevel, OpenAIModel, Tool, ToolCallingAgent, tool

from client import MODEL, V1, case, done, ok, same

# The agent's own prompt has more words than the model's context.
PROMPTS = {"system_prompt": "You are a dictionary.",
           "planning": {"initial_plan": "", "update_plan_pre_messages": "", "update_plan_post_messages": ""},
           "managed_agent": {"task": "", "report": ""}, "final_answer": {"pre_messages": "", "post_messages": ""}}


class FinalAnswer(Tool):
    """Ends the run with one of two sentences. smolagents writes the ids of calls, which are drawn, into the prompt: so a model that may
    write any words answers anew each time, and one time in four it came to no end within max_tokens."""
    name = "final_answer"
    description = "Ends the run with an answer."
    inputs = {"answer": {"type": "string", "description": "The answer.", "enum": ["A river is a stream.", "I do not know."]}}
    output_type = "string"

    def forward(self, answer):
        return answer


def named(name):
    return {"type": "function", "function": {"name": name}}


@case
def agent():
    """an agent"""
    for streamed in False, True:
        called = []

        @tool
        def count(word: str, limit: int) -> int:
            """Counts the senses of a word.

            Args:
                word: The word.
                limit: The most that are counted.
            """
            called.append((type(word), type(limit)))
            return 3

        model = OpenAIModel(MODEL, api_base=V1, api_key="any", temperature=0, max_tokens=300, parallel_tool_calls=False,
                            tool_choice=named("count"), client_kwargs={"max_retries": 0})

        def answer_next(step, agent):
            model.kwargs["tool_choice"] = named("final_answer")

        agent = ToolCallingAgent([count, FinalAnswer()], model, prompt_templates=PROMPTS, stream_outputs=streamed, max_steps=3,
                                 step_callbacks=[answer_next], verbosity_level=LogLevel.OFF)
        events = list(agent.run("Define river.", stream=True))
        way = "streamed" if streamed else "whole"
        same(called, [(str, int)], f"{way}: the tool is called with arguments of its types")
        steps = agent.memory.steps[1:]
        ok(len(steps) == 2 and not any(s.error for s in steps) and steps[1].is_final_answer, f"{way}: two steps", steps)
        ok(events[-1].output in FinalAnswer.inputs["answer"]["enum"] and events[-1].output == steps[1].tool_calls[0].arguments["answer"],
           f"{way}: its answer", events[-1])
        ok(steps[1].token_usage.input_tokens > steps[0].token_usage.input_tokens + 10, f"{way}: usage", steps)
        if streamed:
            ok(sum(isinstance(e, ChatMessageStreamDelta) for e in events) > 10, "streamed: in pieces")


done()
