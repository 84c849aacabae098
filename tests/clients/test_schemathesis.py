"""Schemathesis: random requests that docs/openapi.json allows and forbids, and requests that follow one another. No answer has a
status from 500 on; a request that the document forbids is refused; status, type and body of every answer are in the document.

EXAMPLES is the most random requests to an operation, 10 by default. If it is given, Schemathesis also sends the requests that it
makes from each keyword of the document in turn, 8,000 in all. SEED draws others: `make clients CLIENTS=schemathesis EXAMPLES=100`.
"""
import os
import re
import subprocess
import sys

from client import case, done, ok
from harness import Server

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.environ.get("EXAMPLES", "10")
PHASES = ["fuzzing", "stateful"] + ["coverage"] * ("EXAMPLES" in os.environ)


@case
def document():
    """the document"""
    # A server of its own, because the requests also flush the cache. Its short context bounds answers without max_tokens.
    s = Server("--max-model-len", "256", "--clamp-max-tokens", "--served-model-name", "lexis", "--served-model-name", "*")
    r = subprocess.run([os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", s.url + "/openapi.json",
                        "--phases", ",".join(PHASES), "--max-examples", EXAMPLES, "--seed", os.environ.get("SEED", "1"),
                        "--exclude-checks", "positive_data_acceptance", "--suppress-health-check", "all", "--no-shrink",
                        "--continue-on-failure", "--generation-database", "none", "--request-timeout", "120",
                        "--warnings", "off", "--no-color"],
                       env={**os.environ, "PYTHONPATH": HERE + os.pathsep + os.environ["PYTHONPATH"], "SCHEMATHESIS_HOOKS": "schemathesis_checks"},
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # The operation, the check and its first words of each failure.
    failures = re.findall(r"^___+ (.*) ___+$|^- (ST.*\n.*)", r.stdout, re.M)
    ok(r.returncode == 0, f"{', '.join(PHASES)}: all answers are as the document says",
       "\n".join(a or b for a, b in failures) or r.stdout[-2000:])
    m = re.search(r"(\d+) generated", r.stdout)
    ok(m and int(m[1]) > 10 * int(EXAMPLES), f"{m and m[1]} requests", r.stdout[-2000:])
    s.stop()


done()
