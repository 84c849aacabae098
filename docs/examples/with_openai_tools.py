"""openai: an agent that looks a word up with a tool, and an answer that is an object of a class. pip install openai"""
import os

import openai
from pydantic import BaseModel


class Lookup(BaseModel):
    """Look a word up in the dictionary."""
    word: str


class Entry(BaseModel):
    """An entry of a dictionary, with the members that lexis writes"""
    word: str
    pos: str
    definition: str


client = openai.OpenAI(base_url=os.environ.get("TIGON_URL", "http://127.0.0.1:8080") + "/v1", api_key="any")
asked = {"model": "lexis", "temperature": 0, "max_tokens": 200}
messages = [{"role": "user", "content": "Look up candle."}]
for _ in range(10):
    turn = client.chat.completions.create(messages=messages, tools=[openai.pydantic_function_tool(Lookup, name="lookup")], **asked)
    messages.append(turn.choices[0].message.to_dict())
    calls = turn.choices[0].message.tool_calls or []
    for call in calls:
        word = Lookup.model_validate_json(call.function.arguments).word
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{word}: stick of wax with a wick in the middle"})
    if not calls:
        break
print(messages[-1]["content"])
parsed = client.chat.completions.parse(messages=[{"role": "user", "content": "Define river as JSON."}], response_format=Entry, **asked)
print(parsed.choices[0].message.parsed)
