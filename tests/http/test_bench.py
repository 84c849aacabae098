"""`tigon bench serve` against a server: its table, its JSON, and its errors.

    test_bench.py TIGOND TIGON
"""
import json
import re
import socketserver
import subprocess
import sys
import tempfile
import threading

from harness import Server, done, ok, same

TIGON = sys.argv[2]


def bench(*args):
    return subprocess.run([TIGON, "bench", "serve", *args], capture_output=True, text=True, timeout=120)


s = Server(env={"FAKE_STEP_US": "10000"})
out = bench("--url", s.url, "--concurrency", "1,4", "--requests", "8", "--max-tokens", "20", "--ignore-eos")
rows = [line.split("\t") for line in out.stdout.splitlines() if not line.startswith("#")]
head = [line for line in out.stdout.splitlines() if line.startswith("#")]
ok(re.match(r"# tigon \S+, commit \S+$", head[0]) and head[1:] == [f"# url {s.url}", "# model none named"],
   "what is measured with what", head)
ok(out.returncode == 0 and [r[0] for r in rows] == ["streams", "1", "4"] and {len(r) for r in rows} == {9},
   "a row for each number of streams", out)
ok(all(r[1] == "8" and r[2] == "0" and float(r[3]) > 0 for r in rows[1:]), "eight requests each, none failed", out)
ok(float(rows[2][3]) > 1.5 * float(rows[1][3]), "four streams are faster than one", out)
same(s.metrics()["generation_tokens_total"], 17 * 20.0, "the server made as many tokens as were asked for")
out = bench("--url", s.url + "/", "--concurrency", "2", "--requests", "4", "--max-tokens", "5", "--ignore-eos",
            "--json", "--completions", "--model", "lexis", "--temperature", "0.7")
row = json.loads(out.stdout)
ok(row["tokens"] == 20 and row["failed"] == 0 and row["ttft_p50_ms"] > 0 and row["itl_p99_ms"] >= row["itl_p50_ms"] > 0,
   "JSON, completions, temperature", out)
ok(row["itl_max_ms"] >= row["itl_p99_ms"], "with the longest time between tokens", out)
with tempfile.NamedTemporaryFile("w", suffix=".json") as schema:
    schema.write('{"const": 12}')
    schema.flush()
    for kind in [], ["--completions"]:
        out = bench("--url", s.url, "--concurrency", "2", "--requests", "4", "--max-tokens", "20", "--ignore-eos", "--json",
                    "--schema", schema.name, *kind)
        row = json.loads(out.stdout)
        ok(row["failed"] == 0 and 4 * 2 <= row["tokens"] <= 4 * 3, f"answers of a schema end with its text {kind}", out)
    schema.write("}")
    schema.flush()
    out = bench("--url", s.url, "--schema", schema.name)
    ok(out.returncode == 1 and f"--schema {schema.name}: " in out.stderr and len(out.stderr.splitlines()) == 1,
       "a schema that is no JSON: one sentence", out)
out = bench("--url", s.url, "--model", "other")
ok(out.returncode == 1 and "not found" in out.stderr, "an answer that is an error is shown", out)
s.stop()
out = bench("--url", s.url)
ok(out.returncode == 1 and "refused" in out.stderr and s.url in out.stderr, "no server: one sentence, which names it", out)


class Forgetful(socketserver.StreamRequestHandler):
    """Answers once and closes, without a word about it."""
    answers = 0

    def handle(self):
        length = 0
        while (line := self.rfile.readline().strip()):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if not self.rfile.read(length):
            return
        Forgetful.answers += 1
        body = b"".join(b"data: %s\n\n" % part for part in (
            b'{"choices":[{"index":0,"delta":{"content":"a"}}]}',
            b'{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}', b"[DONE]"))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s"
                         % (len(body), body))


with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forgetful) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    out = bench("--url", f"http://127.0.0.1:{server.server_address[1]}", "--concurrency", "3", "--requests", "8")
    ok(out.returncode == 0 and out.stdout.splitlines()[-1].split("\t")[1:3] == ["8", "0"] and Forgetful.answers == 9,
       "a server that closes a kept connection without a word is asked again on a new one (8 and one ahead)", (out, Forgetful.answers))
    server.shutdown()
for args, want in ((["--url", "ftp://x"], "http://"), (["--concurrency", "0"], "--concurrency"),
                   (["--concurrency", "1,x"], "--concurrency"), (["--requests", "-1"], "--requests"),
                   (["--frobnicate", "1"], "unknown option --frobnicate; --help lists them"),
                   (["--max-token", "1"], "did you mean --max-tokens?"), (["--json=1"], "--json takes no value"),
                   (["--temperature", "nan"], '--temperature: "nan" is not a number from 0'), (["x"], "unexpected argument"),
                   (["--prompts", "/nowhere"], "/nowhere"), (["--prompts", "/"], "Is a directory"), (["--schema", "/nowhere"], "/nowhere"),
                   (["--url", "http://127.0.0.1:99999"], "from 1 to 65535"), (["--url", "http://127.0.0.1:"], "65535")):
    out = bench(*args)
    ok(out.returncode == 1 and want in out.stderr and len(out.stderr.splitlines()) == 1, f"{args}: one sentence", out)
out = subprocess.run([TIGON, "frobnicate"], capture_output=True, text=True)
ok(out.returncode == 1 and "frobnicate" in out.stderr, "an unknown command", out)
out = subprocess.run([TIGON, "--help"], capture_output=True, text=True)
ok(out.returncode == 0 and "bench" in out.stdout, "--help", out)
done()
