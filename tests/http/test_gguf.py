"""A GGUF file as --model: its name, its tokens and its template over HTTP are those of the folder; starts that fail say why."""
import json
import os
import subprocess
import tempfile

from gguf_model import lexis_keys, read, write_gguf
from harness import TIGOND, Server, done, messages, ok, same

folder = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(folder.name, name)


keys = lexis_keys()
file = write_gguf(path("small-model.gguf"), keys)
chat = {"messages": messages("What is a violin? 12345"), "max_tokens": 8, "temperature": 0}

s = Server()
want = [s.post("/apply-template", chat)[1], s.post("/tokenize", {"prompt": read("README.md")})[1]["tokens"]]
s.stop()
s = Server(model=file)
same([s.post("/apply-template", chat)[1], s.post("/tokenize", {"prompt": read("README.md")})[1]["tokens"]], want,
     "prompt and tokens are those of the folder")
same(json.loads(s.get("/v1/models")[1])["data"][0]["id"], "small-model", "the name has no .gguf")
same(s.post("/api/show", {"model": "small-model"})[1]["details"]["format"], "gguf", "Ollama's clients see the format")
status, answer = s.post("/v1/chat/completions", {**chat, "model": "small-model"})[:2]
ok(status == 200 and answer["usage"]["completion_tokens"] > 0, "an answer", answer)
s.stop()

split = {**keys, "split.no": 0, "split.count": 2}
missing = write_gguf(path("big-00001-of-00002.gguf"), split)
other = write_gguf(path("other.gguf"), {**keys, "general.architecture": "gpt2"})


def refused(name, want, model):
    out = subprocess.run([TIGOND, "--model", model, "--port", "0"], capture_output=True, text=True, timeout=60)
    ok(out.returncode == 1 and out.stderr.splitlines()[-1].endswith(want), name, out.stderr[-500:])


refused("a part of a split model is missing", "big-00002-of-00002.gguf: cannot open: No such file or directory", missing)
refused("a directory with several models",
        f"{folder.name}: there are several models, big-00001-of-00002.gguf and other.gguf: name a file", folder.name)
refused("another architecture", 'but must be qwen35, qwen35moe, qwen3next, qwen3, qwen3moe, qwen2, llama or gemma3', other)
done()
