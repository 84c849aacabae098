#!/usr/bin/env python3
"""Makes open_message_cases.json: chats whose last message is left open, as transformers renders them with
continue_final_message=True.

    python3 tests/golden/open_message_cases.py

Needs jinja2 and transformers. The templates are those of template_cases.json, but for one that needs tools. A second run writes
the same file."""
import json
import os

from template_models import TEMPLATES, TOKENS, assistant, user
from transformers.utils.chat_template_utils import render_jinja_template

CONTENTS = ["The bow is", "It ends in a space ", "and in some more \n\n", "\n  It begins so", "two\n\nlines", "caf\u00e9 \U0001f3bb",
            "a CONTINUE_FINAL_MESSAGE_TAG of its own", "<b>&amp;"]
NEEDS_TOOLS = "hermes"
OPTIONS = {**TOKENS, "add_generation_prompt": False, "enable_thinking": False}


def main():
    cases = []
    for style, template in TEMPLATES.items():
        if style == NEEDS_TOOLS:
            continue
        for content in CONTENTS:
            chat = [user("What is a bow?"), assistant(content)]
            output, _ = render_jinja_template([chat], chat_template=template, continue_final_message=True, **OPTIONS)
            cases.append({"style": style, "content": content, "output": output[0]})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "open_message_cases.json")
    with open(path, "w") as f:
        json.dump({"options": OPTIONS, "cases": cases}, f, ensure_ascii=False, indent=0)
        f.write("\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
