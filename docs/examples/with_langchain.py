"""langchain: an answer that is an object of a class. pip install langchain-openai"""
import os
from typing import Literal

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Entry(BaseModel):
    """An entry of a dictionary"""
    word: Literal["violin", "river"]
    common: bool
    senses: int = Field(ge=1, le=9)


chat = ChatOpenAI(model="lexis", base_url=os.environ.get("TIGON_URL", "http://127.0.0.1:8080") + "/v1", api_key="any", temperature=0)
print(chat.with_structured_output(Entry, method="json_schema", strict=True).invoke("What is a violin?"))
