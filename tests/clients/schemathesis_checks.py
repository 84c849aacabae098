"""Checks that test_schemathesis.py adds to those of Schemathesis.

refusal_has_a_reason: a request that docs/openapi.json allows is refused with status 400 only for a reason that the document has
no words for. Each such refusal has to match one of REASONS. This stands in place of the check positive_data_acceptance, which
takes every 400 for a fault.

events_are_in_the_document: each event of a stream has the form that x-event describes, an extension of the document.
"""
import functools
import json
import os
import re
import sys

import jsonschema_rs
import schemathesis

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from openapi import DOCUMENT, whole  # noqa: E402

REASONS = [
    # The model decides: its vocabulary, its context and the size of its vectors.
    r".* must be (a token id|token ids) of the vocabulary",
    r"(prompt is too long: )?(this server's context is|the KV cache holds) ",
    r"(dimensions|truncate_prompt_tokens) is \S+, but must be .*a whole number from \d+ to \d+$",
    # What was asked before decides.
    r"no response with the id .* is kept$",
    r"no item of the response has the id ",
    r"\S+ is .* must be the id of a tool call before it$",
    # Several members decide together.
    r"\S+ and (\S+|the strict tool .*) are both given, but ",
    r"best_of above n is not supported but in completions$",
    r"structured_outputs has none of ",
    r"(best_of|min_tokens) is \d+, but (must|may) be (at least|at most|equal to) ",
    r"text_1 has \d+ texts and text_2 \d+",
    r"tool_choice(\.name)? (names|is) .* none of the tools|tool_choice.name is .* one of the tools",
    r"the last message is the assistant's, so it may have text alone",
    r"the messages have no content at all$",
    r"there is no content before the last message, the assistant's, ",
    r"continue_final_message is true, but the last message is not the assistant's$",
    # Regular expressions, grammars and JSON schemas have rules of their own.
    r"(tools|format|response_format|output_format|output_config|text|structured_outputs|guided_\w+|json_schema|regex|grammar|ebnf)"
    r"\b[\w.]*: ",
    # jansson has no such names, and a parameter of a URL no such text.
    r"\S+\.id is a string with a NUL, but must be a string without NUL$",
    r"the request body is not valid JSON: NUL byte in object key not supported",
]


@schemathesis.check
def refusal_has_a_reason(ctx, response, case):
    """Raises an exception with the server's sentence if it matches none of REASONS."""
    if response.status_code != 400 or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    error = response.json()["error"]
    sentence = error if isinstance(error, str) else error["message"]
    assert any(re.match(reason, sentence) for reason in REASONS), f"no reason to refuse a request that the document allows: {sentence}"


@functools.cache
def event_validator(path, method, kind):
    """For the events of a stream; None: an answer of this type is no stream."""
    event = DOCUMENT["paths"][path][method]["responses"]["200"].get("content", {}).get(kind, {}).get("x-event")
    return jsonschema_rs.validator_for(whole(event)) if event else None


@schemathesis.check
def events_are_in_the_document(ctx, response, case):
    """Raises an exception about the first event that has not the form of its schema."""
    if response.status_code != 200 or case.method.lower() not in DOCUMENT["paths"][case.path]:
        return
    kind = response.headers["content-type"][0].split(";")[0]
    validator = event_validator(case.path, case.method.lower(), kind)
    if validator is None:
        return
    events = re.findall("^data: (.*)$", response.text, re.M) if kind == "text/event-stream" else response.text.splitlines()
    assert events, "a stream without events"
    for event in events:
        wrong = next(validator.iter_errors(event if event == "[DONE]" else json.loads(event)), None)
        assert wrong is None, f"an event that the document does not describe: {wrong.message} in {event}"
