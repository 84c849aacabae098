"""aider: `--message` asks and ends, streamed and whole."""
import json
import subprocess
import sys

from client import MODEL, V1, case, done, ok, runs_example, same

with open("models.json", "w") as f:
    json.dump({f"openai/{MODEL}": {"max_input_tokens": 4096, "max_output_tokens": 256, "max_tokens": 4096, "input_cost_per_token": 0,
                                   "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "chat"}}, f)
with open("settings.yml", "w") as f:
    f.write(f"- name: openai/{MODEL}\n  edit_format: ask\n  use_repo_map: false\n  extra_params: {{max_tokens: 64}}\n")


@case
def message():
    """--message"""
    for stream in "--stream", "--no-stream":
        r = subprocess.run([sys.executable, "-m", "aider", "--model", f"openai/{MODEL}", "--message", "What is a river?", "--no-git",
                            "--yes-always", "--no-check-update", "--no-analytics", "--no-show-model-warnings", "--no-pretty", stream,
                            "--no-show-release-notes", "--no-detect-urls", "--no-suggest-shell-commands", "--map-tokens", "0",
                            "--model-metadata-file", "models.json", "--model-settings-file", "settings.yml"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        same(r.returncode, 0, f"{stream}: it ends with status 0")
        with open(".aider.chat.history.md") as f:
            asked, answer = f.read().rsplit("#### What is a river?", 1)
        ok(len(answer.split("> Tokens")[0].strip()) > 5 and "Error" not in answer, f"{stream}: an answer", answer)
        ok("> Tokens:" in answer and "received" in answer, f"{stream}: usage", answer)


@case
def example():
    """docs/examples"""
    runs_example(["-m", "aider", "--config", "{}/aider.conf.yml", "--model-metadata-file", "{}/aider.model.json", "--openai-api-base", V1,
                  "--message", "What is a violin?", "--no-git", "--yes-always", "--no-check-update", "--no-analytics", "--no-pretty"], "received.")


done()
