"""instructor: objects of a class by tools, strict tools and a JSON schema, whole and growing in a stream."""
from typing import Annotated, Literal

import instructor
import openai
from pydantic import BaseModel, Field

from client import MODEL, case, done, ok, same

ASK = dict(model=MODEL, messages=[{"role": "user", "content": "Define river as JSON."}], temperature=0, max_tokens=200, max_retries=0)
Word = Literal["river", "violin"]


class Sense(BaseModel):
    kind: Literal["noun", "verb"]
    letters: Annotated[int, Field(ge=1, le=20)]


class Entry(BaseModel):
    word: Word
    common: bool
    senses: Annotated[list[Sense], Field(min_length=1, max_length=2)]


@case
def modes():
    """modes"""
    for mode in instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA:
        client = instructor.from_openai(openai.OpenAI(max_retries=0), mode=mode)
        entry, completion = client.chat.completions.create_with_completion(**ASK, response_model=Entry)
        ok(isinstance(entry, Entry) and completion.usage.completion_tokens > 10, f"{mode.name}: an object of the class", completion)
        grown = list(client.chat.completions.create_partial(**ASK, response_model=Entry))
        same(grown[-1].model_dump(), entry.model_dump(), f"{mode.name}: streamed, the same")
        ok(len(grown) > 5 and grown[0].senses is None, f"{mode.name}: it grows", grown[:3])


@case
def several():
    """several objects"""
    client = instructor.from_openai(openai.OpenAI(max_retries=0), mode=instructor.Mode.JSON_SCHEMA)
    senses = list(client.chat.completions.create(**ASK, response_model=Annotated[list[Sense], Field(min_length=2, max_length=2)]))
    ok(len(senses) == 2 and all(isinstance(s, Sense) for s in senses), "a list of objects", senses)


done()
