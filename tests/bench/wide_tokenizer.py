"""A tokenizer for a synthetic model with a larger vocabulary: that of a model, and a made-up word for each other id.

    wide_tokenizer.py MODEL OUT VOCABULARY

OUT is made, with tokenizer.json and the chat template of MODEL: `tigond --synthetic-weights 1 --tokenizer OUT`. With a
tokenizer of fewer ids than the model has, most drawn tokens have no text, and a stream sends nothing for them: so the
times between its pieces say nothing.
"""
import json
import os
import shutil
import sys

model, out, vocabulary = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(os.path.join(model, "tokenizer.json")) as f:
    tokenizer = json.load(f)
words = tokenizer["model"]["vocab"]
taken = {*words.values(), *(a["id"] for a in tokenizer["added_tokens"])}
for i in set(range(vocabulary)) - taken:
    words[f"Ġw{i:07d}"] = i  # no merge makes such a word: it is drawn, never encoded
os.makedirs(out, exist_ok=True)
with open(os.path.join(out, "tokenizer.json"), "w") as f:
    json.dump(tokenizer, f, ensure_ascii=False)
for name in ("tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
    if os.path.exists(os.path.join(model, name)):
        shutil.copy(os.path.join(model, name), out)
