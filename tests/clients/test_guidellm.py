"""guidellm: measures chats and completions of a file of prompts at a fixed number of streams."""
import json
import os
import subprocess

from client import MODEL, URL, case, done, ok, same

N = 8
with open("prompts.jsonl", "w") as f:
    for i in range(N):
        f.write(json.dumps({"prompt": f"What is a river? {i}", "output_tokens_count": 16}) + "\n")


@case
def benchmark():
    """benchmark"""
    for kind in "chat_completions", "text_completions":
        out = f"{kind}.json"
        r = subprocess.run(["guidellm", "benchmark", "run", "--target", URL, "--model", MODEL, "--data", "prompts.jsonl",
                            "--processor", "unused", "--rate-type", "concurrent", "--rate", "2", "--max-requests", str(N),
                            "--output-path", out, "--disable-progress"], env={**os.environ, "GUIDELLM__PREFERRED_ROUTE": kind},
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        same(r.returncode, 0, f"{kind}: it ends with status 0")
        with open(out) as f:
            requests = json.load(f)["benchmarks"][0]["requests"]
        same((len(requests["successful"]), len(requests["errored"])), (N, 0), f"{kind}: all requests are answered")
        ok(all(q["output_tokens"] == 16 and q["prompt_tokens"] > 4 and q["output"] and q["time_to_first_token_ms"] > 0
               for q in requests["successful"]), f"{kind}: tokens and times", requests["successful"][:1])


done()
