"""pydantic-ai: an agent whose output is an object of a class. pip install 'pydantic-ai-slim[openai]'"""
import os
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Entry(BaseModel):
    """An entry of a dictionary"""
    word: Literal["violin", "river"]
    senses: int = Field(ge=1, le=9)


provider = OpenAIProvider(base_url=os.environ.get("TIGON_URL", "http://127.0.0.1:8080") + "/v1", api_key="any")
agent = Agent(OpenAIChatModel("lexis", provider=provider), output_type=Entry, model_settings={"temperature": 0})
print(agent.run_sync("What is a violin?").output)
