"""llm: its command with a schema and with tools, its log, and its Python interface."""
import json
import os
import subprocess
import sys

from client import MODEL, V1, case, done, ok, same

os.environ["LLM_USER_PATH"] = os.getcwd()
with open("extra-openai-models.yaml", "w") as f:
    f.write(f"- model_id: tigon\n  model_name: {MODEL}\n  api_base: {V1}\n  supports_schema: true\n  supports_tools: true\n")
os.environ["LLM_OPENAI_KEY"] = "any"
SCHEMA = {"type": "object", "required": ["word", "senses"], "additionalProperties": False, "properties": {
    "word": {"enum": ["river", "violin"]}, "senses": {"type": "integer", "minimum": 1, "maximum": 9}}}
# The model was taught to call a tool of this name.
TOOL = '''
def lookup(word: str) -> str:
    "Look up a word in the dictionary."
    return "a thing used for testing"
'''


def fits(answer):
    return set(answer) == {"word", "senses"} and answer["word"] in ("river", "violin") and 1 <= answer["senses"] <= 9


def command(*args):
    """What the command prints."""
    r = subprocess.run([sys.executable, "-m", "llm", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if r.returncode != 0:
        raise RuntimeError(r.stderr)
    return r.stdout.strip()


@case
def prompt():
    """prompts"""
    asked = ["-m", "tigon", "-o", "temperature", "0", "-o", "seed", "1"]
    whole = command("prompt", *asked, "--no-stream", "What is a river?")
    ok(whole.startswith("river"), "a text", whole)
    same(command("prompt", *asked, "What is a river?"), whole, "a stream, the same")
    ok(fits(json.loads(command("prompt", *asked, "--schema", json.dumps(SCHEMA), "Define river."))), "--schema")
    ok(fits(json.loads(command("prompt", *asked, "--no-stream", "--schema", json.dumps(SCHEMA), "Define river."))),
       "--schema, no stream")
    log = json.loads(command("logs", "--json", "-n", "4"))
    ok(len(log) == 4 and all(r["input_tokens"] > 5 and r["output_tokens"] > 3 for r in log), "usage in the log", log)


@case
def tools():
    """tools"""
    for stream in [], ["--no-stream"]:
        command("prompt", "-m", "tigon", "-o", "temperature", "0", *stream, "--functions", TOOL, "Look up feather in the dictionary.")
        first, second = json.loads(command("logs", "--json", "-n", "2"))
        ok([c["name"] for c in first["tool_calls"]] == ["lookup"] and first["tool_calls"][0]["arguments"] == {"word": "feather"},
           f"--functions: a call {stream}", first)
        ok([r["output"] for r in second["tool_results"]] == ["a thing used for testing"] and second["response"],
           f"--functions: the answer after its result {stream}", second)


@case
def library():
    """Python"""
    import llm
    model = llm.get_model("tigon")
    chat = model.conversation()
    first = chat.prompt("What is a river?", temperature=0)
    pieces = list(first)
    ok("".join(pieces) == first.text() and len(pieces) > 5, "a stream in pieces", pieces)
    before = first.usage()
    second = chat.prompt("And what is a violin?", temperature=0)
    ok(second.text() and second.usage().input > before.input + before.output - 1, "a conversation", second)


done()
