"""Chat templates in the style of families with special tokens of their own, from GGUF files and from tokenizer_config.json: the
prompt of a chat is what transformers makes of it, with the model's special tokens, in front of it a bos_token that is there once.

The wanted texts are those of tests/golden/template_cases.json.
"""
import json
import os
import tempfile

from gguf_model import lexis_keys, read, write_gguf
from harness import MODEL, ROOT, Server, done, ok, same

FAMILIES = ("llama3", "llama3.1", "smollm2", "gemma")
TALKS = ("one", "system", "turns", "ends", "call")
BOS, EOS = "<s>", "</s>"
folder = tempfile.TemporaryDirectory()
with open(os.path.join(ROOT, "tests", "golden", "template_cases.json"), encoding="utf-8") as f:
    whole = json.load(f)["whole"]
TOOLS = whole["options"][1]["tools"]


def as_gguf(family, template):
    keys = lexis_keys()
    tokens, kinds, merges = (keys[f"tokenizer.ggml.{k}"] for k in ("tokens", "token_type", "merges"))
    for name, text in (("bos", BOS), ("eos", EOS)):  # in the place of the last merge's token
        at = tokens.index("".join(merges.pop().split(" ")))
        tokens[at], kinds[at], keys[f"tokenizer.ggml.{name}_token_id"] = text, 3, at
    return write_gguf(os.path.join(folder.name, f"{family}.gguf"), {**keys, "tokenizer.chat_template": template})


def as_folder(family, template):
    """The template is in tokenizer_config.json, in the older files' way for a model with several of them."""
    path = os.path.join(folder.name, family)
    os.mkdir(path)
    for name in ("config.json", "generation_config.json"):
        os.symlink(os.path.join(MODEL, name), os.path.join(path, name))
    tokenizer = json.loads(read("tokenizer.json"))
    for token in (BOS, EOS):
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 8192 + len(tokenizer["added_tokens"]), "content": token})
    several = [{"name": "default", "template": template}, {"name": "rag", "template": "no"}]
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", {
            "bos_token": {"content": BOS, "lstrip": False}, "eos_token": EOS, "chat_template": several if family == "gemma" else template})):
        with open(os.path.join(path, name), "w", encoding="utf-8") as f:
            json.dump(content, f)
    return path


def asked(message):
    """Clients send the arguments of calls as text."""
    calls = [{**c, "function": {**c["function"], "arguments": json.dumps(c["function"]["arguments"])}} for c in message.get("tool_calls", [])]
    return {**message, **({"tool_calls": calls} if calls else {})}


def check(s, family, how):
    rendered = 0
    for case in whole["cases"]:
        if case["style"] != family or case["talk"] not in TALKS or case["options"] > 1:
            continue
        name = f"{family} as {how}: {case['talk']}{', tools' if case['options'] else ''}"
        body = {"messages": [asked(m) for m in whole["conversations"][case["talk"]]], **({"tools": TOOLS} if case["options"] else {})}
        status, answer = s.post("/apply-template", body)
        if "output" not in case:
            ok(status == 400, f"{name}: refused as there", answer)
            continue
        rendered += 1
        same((status, answer.get("prompt")), (200, case["output"]), name)
    ok(rendered >= 5, f"{family} as {how}: {rendered} chats")
    ids, bos = (s.post("/tokenize", body)[1]["tokens"] for body in ({"messages": whole["conversations"]["turns"]}, {"prompt": BOS}))
    same((len(bos), ids[:1] == bos, ids.count(bos[0])), (1, family != "smollm2", int(family != "smollm2")),
         f"{family} as {how}: the first token is bos_token if the template writes it, and no other is")


for family in FAMILIES:
    for how, make in (("GGUF", as_gguf), ("a folder", as_folder)):
        s = Server(model=make(family, whole["templates"][family]))
        check(s, family, how)
        s.stop(f"{family} as {how} ends")
done()
