"""docs/examples: those whose clients are here run, and end with the answer."""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

from harness import ROOT, Server, done, ok

s = Server()
ANSWER = s.chat("What is a violin?")[1]["choices"][0]["message"]["content"]
WITH = {"curl.sh": (re.escape(json.dumps(ANSWER)), r"\[DONE\]", '"content":"(yes|no)"'), "with_openai.py": (re.escape(ANSWER), "cached_tokens="),
        "with_openai_tools.py": (r"^candle \(noun\): .*wax", "(?m)^word='river' pos='noun' definition='.*stream"),
        "with_anthropic.py": (re.escape(ANSWER), "end_turn")}
for name, wanted in WITH.items():
    path = os.path.join(ROOT, "docs", "examples", name)
    is_shell = name.endswith(".sh")
    if not (shutil.which("curl") if is_shell else importlib.util.find_spec(name.removesuffix(".py").split("_")[1])):
        ok(True, f"{name} # SKIP its client is not here")
        continue
    r = subprocess.run([path] if is_shell else [sys.executable, path], env={**os.environ, "TIGON_URL": s.url}, text=True, timeout=120,
                       stdin=subprocess.DEVNULL, capture_output=True)
    ok(r.returncode == 0 and all(re.search(w, r.stdout) for w in wanted),
       f"{name} shows the answer", f"status {r.returncode}\n{r.stdout}\n{r.stderr}")
s.stop()
done()
