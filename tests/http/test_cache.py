"""The prefix cache as clients see it: cached_tokens, the header and its reasons, /cache, /cache/flush, tigon cache.

Bounds on the computed tokens are checked against token ids: L is the longest prefix that a prompt shares with anything
computed before, prompts and generated tokens alike.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from harness import Server, TIGOND, done, ok, parallel, parse_events, same, token_ids

FAKE = "fake" in os.path.basename(TIGOND)
TIGON = os.path.abspath(sys.argv[2])
PAGE = 64
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
JSON = {"Content-Type": "application/json"}
VOCAB = 1000
QUESTIONS = ["What is a violin?", "define river", "Synonyms of big?", "What does to wander mean?",
             "Tell me about the word anchor.", "What is the opposite of cold?", "Use meadow in a sentence.",
             "Define candle.", "What is a harbour?", "define stone"]


def ids(seed, n):
    return token_ids(seed, n, VOCAB)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, json.loads(body)
        usage = self.body.get("usage", {})
        self.n = usage.get("prompt_tokens")
        self.cached = usage.get("prompt_tokens_details", {}).get("cached_tokens")
        header = headers["X-Tigon-Cache"]
        self.header = header
        self.reason = header.split("reason=")[1] if header else None
        choices = self.body.get("choices", [{}])
        self.prompt = self.body.get("prompt_token_ids")
        self.ids = choices[0].get("token_ids")
        self.text = choices[0].get("text") or choices[0].get("message", {}).get("content")


def ask(s, path, body, **more):
    answer = Answer(*s.request("POST", path, json.dumps({"temperature": 0, "return_token_ids": True, **body, **more}),
                               JSON))
    if answer.status == 200:
        want = f"cached={answer.cached}; reason="
        if not answer.header or not answer.header.startswith(want):
            ok(False, "header and usage say the same", (answer.header, want))
    return answer


def complete(s, prompt, max_tokens=1, **more):
    return ask(s, COMPLETE, {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, **more})


class Known:
    """Everything a server has computed."""

    def __init__(self):
        self.sequences = []

    def add(self, a):
        # The last token that was drawn never went through the model.
        self.sequences.append(a.prompt + a.ids[:-1])

    def shared(self, prompt):
        best = 0
        for known in self.sequences:
            n = 0
            for a, b in zip(known, prompt):
                if a != b:
                    break
                n += 1
            best = max(best, n)
        return best


def bounded(known, answers):
    """Complaints about answers that computed more than (n - L) + 127, or found more than there is."""
    wrong = []
    for i, a in enumerate(answers):
        shared = known.shared(a.prompt)
        if a.status != 200 or a.n - a.cached > a.n - shared + 127 or a.cached > shared:
            wrong.append((i, a.status, "prompt", a.n, "shared", shared, "cached", a.cached, a.reason))
        known.add(a)
    return wrong


class Patience(threading.Thread):
    """A stream that waits longer for its turn than proxies wait for headers; beside everything else here."""

    def run(self):
        s = Server("--max-num-seqs", "1", env={"FAKE_STEP_US": "40000"})
        first = threading.Thread(target=lambda: complete(s, ids(1, 100), 550))
        first.start()
        s.wait_metric("num_requests_running", 1)
        begin, c = time.time(), s.connect(60)
        c.request("POST", COMPLETE, json.dumps({"prompt": ids(1, 100), "max_tokens": 2, "stream": True}), JSON)
        r = c.getresponse()
        self.seconds, self.header, self.data = time.time() - begin, r.headers["X-Tigon-Cache"], r.read()
        first.join()
        s.kill()


patience = Patience()
if FAKE:
    patience.start()
s = Server()

# the second identical prompt
a, b = complete(s, ids(1, 300), 5), complete(s, ids(1, 300), 5)
same((a.n, a.cached, a.reason), (300, 0, "cold"), "a first prompt is cold")
same((b.n, b.cached, b.reason), (300, 256, "none"), "the same again: every whole page before its last token")
same(b.ids, a.ids, "with the same answer")
same([complete(s, ids(2, 256)).cached, complete(s, ids(2, 256)).cached], [0, 192], "one token is always computed")
same(complete(s, ids(2, 257)[:256] + [5]).cached, 256, "and no more than needed")

# streams
status, headers, body = s.request("POST", COMPLETE, json.dumps(
    {"prompt": ids(1, 300), "max_tokens": 3, "temperature": 0, "stream": True,
     "stream_options": {"include_usage": True}}), JSON)
events = parse_events(body)
same(headers["X-Tigon-Cache"], "cached=256; reason=none", "a stream has the header")
same(events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"], 256, "and its usage the number")
ok("X-Tigon-Cache" in (headers["Access-Control-Expose-Headers"] or ""), "which browsers may read")
chat = ask(s, CHAT, {"messages": [{"role": "user", "content": "define violin " * 60}], "max_tokens": 2})
chat = ask(s, CHAT, {"messages": [{"role": "user", "content": "define violin " * 60}], "max_tokens": 2})
ok(chat.cached == (chat.n - 1) // PAGE * PAGE and chat.reason == "none", "a chat, too", (chat.n, chat.header))
several = ask(s, COMPLETE, {"prompt": [ids(1, 300), ids(3, 200), ids(2, 256)], "max_tokens": 1})
same((several.cached, several.reason), (256 + 0 + 192, "cold"), "several prompts: the sum, and the first reason")
several = ask(s, COMPLETE, {"prompt": ids(1, 300), "n": 4, "temperature": 1, "max_tokens": 2})
same((several.n, several.cached), (300, 256), "several choices: their prompt once")

# a chat of ten turns
known, turns, messages = Known(), [], [{"role": "system", "content": "You are a dictionary. " * 12}]
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    turns.append(ask(s, CHAT, {"messages": messages, "max_tokens": 90}))
    messages.append({"role": "assistant", "content": turns[-1].text})
wrong = bounded(known, turns)
ok(not wrong, "each of ten turns computes at most what is new and 127 tokens", "\n".join(map(str, wrong)))
ok(sum(t.cached for t in turns[1:]) > sum(t.n for t in turns[1:]) / 3, "so most of it is found",
   [(t.n, t.cached, t.reason) for t in turns])

# a tool loop: the answers of a round stay in the prompt as they were generated
known, turns = Known(), []
messages = [{"role": "user", "content": "What is a violin?"}]
for i in range(6):
    turns.append(ask(s, CHAT, {"messages": messages, "max_tokens": 80}))
    messages += [{"role": "assistant", "content": turns[-1].text,
                  "tool_calls": [{"id": f"c{i}", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                 {"role": "tool", "tool_call_id": f"c{i}", "content": QUESTIONS[i]}]
wrong = bounded(known, turns)
ok(not wrong, "a tool loop is bounded in the same way", "\n".join(map(str, wrong)))
if not FAKE:  # whose tokens are no text
    ok(turns[1].cached > turns[0].n, "and goes on from generated tokens", [(t.n, t.cached) for t in turns])

# completions by token ids
known, turns, prompt = Known(), [], ids(4, 70)
for i in range(5):
    turns.append(complete(s, prompt, 150))
    prompt = prompt + turns[-1].ids + ids(40 + i, 9)
wrong = bounded(known, turns)
ok(not wrong and turns[0].cached == 0, "generated tokens are reused", "\n".join(map(str, wrong)))
ok(all(b.cached >= a.n + 150 - 127 for a, b in zip(turns, turns[1:])), "all but the last pages of them",
   [(t.n, t.cached) for t in turns])

# one system prompt, a hundred questions
system = "You know every word of the language, and say what it means. " * 40


def questions(salt, count=100):
    def question(i):
        return lambda: ask(s, CHAT, {"messages": [{"role": "system", "content": system},
                                                  {"role": "user", "content": f"{i}: {QUESTIONS[i % 10]}"}],
                                     "max_tokens": 3, "cache_salt": salt})
    return [question(i) for i in range(count)]


def shared_pages(answers):
    """Whole pages of the system prompt, in tokens: the common part of the questions, cut at the turn's end."""
    first, second = answers[0].prompt, answers[1].prompt
    common = next(i for i, (x, y) in enumerate(zip(first, second)) if x != y)
    return common, common // PAGE * PAGE


for name, answers in (("one after the other", [q() for q in questions("a")]),
                      ("all at once", parallel(questions("b")))):
    bad = [str(a) for a in answers if not isinstance(a, Answer) or a.status != 200]
    if not ok(not bad, f"a hundred questions {name}", bad):
        continue
    common, pages = shared_pages(answers)
    found = sorted(a.cached for a in answers)
    ok(common > 400 and found[0] == 0 and found[1] >= pages,
       f"{name}: the system prompt of {common} tokens is computed once, and its last partial page", found[:10])

# tenants
a = [complete(s, ids(5, 200), cache_salt=salt) for salt in ("x", "x", "y", "y")] + [complete(s, ids(5, 200))]
same([(r.cached, r.reason) for r in a], [(0, "salt"), (128 + 64, "none"), (0, "salt"), (192, "none"), (0, "cold")],
     "whoever has another cache_salt, or none, does not meet")
same(ask(s, COMPLETE, {"prompt": "a", "cache_salt": ""}).body["error"]["param"], "cache_salt", "an empty salt is refused")

# reasons
same((complete(s, ids(6, 64)).reason, complete(s, ids(6, 64)).reason), ("short", "short"), "short")
a = [complete(s, ids(7, 200), cache_prompt=False) for _ in range(2)] + [complete(s, ids(7, 200))]
same([(r.cached, r.reason) for r in a], [(0, "disabled"), (0, "disabled"), (0, "cold")],
     "disabled by the request, which leaves nothing either")
base = ids(8, 900)
a = [complete(s, base), complete(s, base[:500] + ids(81, 400)), complete(s, base[:500] + ids(82, 400))]
same([(r.cached, r.reason) for r in a[:2]], [(0, "cold"), (0, "no-checkpoint")],
     "no-checkpoint: where a prompt leaves another one nobody kept a state")
same((a[2].cached, a[2].reason), (448, "cold"), "but the next one to leave it there finds one")

# metrics
m = s.metrics()
ok(m["prefix_cache_hits_total"] > 0 and m["prefix_cache_queries_total"] == m["prompt_tokens_total"], "tokens are counted")
ok(all(m[f'prefix_cache_misses_total{{reason="{r}"}}'] > 0 for r in ("cold", "short", "salt", "disabled", "no-checkpoint")),
   "and reasons", [k for k in m.items() if "misses" in k[0]])
before = m
a = [complete(s, ids(9, 200)), complete(s, ids(9, 200))]
m = s.metrics()
same([m[k] - before[k] for k in ("prefix_cache_queries_total", "prefix_cache_hits_total",
                                 'prefix_cache_misses_total{reason="cold"}')], [400, 192, 1], "exactly")
ok(m["prefix_cache_tokens"] > 0 and m["prefix_cache_states"] > 0 and 0 < m["cache_used_bytes"] <= m["cache_budget_bytes"],
   "what the tree holds", m)
ok(s.wait_metric("kv_cache_usage_perc", 0) is not None, "what is only cached is not in use", s.metrics())

# GET /cache
status, body = s.get("/cache?tokens=1&limit=10000")
tree = json.loads(body)
nodes = {n["id"]: n for n in tree["nodes"]}
paths = {}
wrong = []
for n in tree["nodes"]:
    up = nodes.get(n["parent"])
    paths[n["id"]] = paths.get(n["parent"], []) + n["token_ids"]
    if (n["parent"] and not up) or n["depth"] != (up["depth"] if up else 0) + n["tokens"] or \
            n["tokens"] != n["pages"] * PAGE or len(n["token_ids"]) != n["tokens"] or n["locks"] or \
            (n["slot"] is None) != (n["checkpoint"] is None) or n["tier"] != "device":
        wrong.append({**n, "token_ids": None})
ok(status == 200 and not wrong, "/cache: a tree", wrong[:5])
totals = tree["totals"]
same((totals["nodes"], totals["tokens"], totals["states"], tree["truncated"]),
     (len(nodes), sum(n["tokens"] for n in nodes.values()), sum(n["slot"] is not None for n in nodes.values()), False),
     "whose totals are right")
ok(any(p == ids(9, 200)[:192] for p in paths.values()), "with the prompts in it")
ok(any(n["computed"] == "decoded" for n in nodes.values()) and any(n["hits"] for n in nodes.values()), "generated tokens, hits")
ok(len({n["space"] for n in nodes.values()}) >= 5, "and the spaces of salts apart")
few = json.loads(s.get("/cache?limit=3")[1])
ok(len(few["nodes"]) == 3 and few["truncated"] and few["totals"]["nodes"] == totals["nodes"] and
   "token_ids" not in few["nodes"][0], "a part of it says so", few)
same([s.get(f"/cache?{q}")[0] for q in ("limit=0", "limit=x", "limit=99999", "tokens=2")], [400] * 4, "wrong arguments")
same([s.request(m, p)[0] for m, p in (("HEAD", "/cache"), ("POST", "/cache"), ("GET", "/cache/flush"))], [200, 405, 405],
     "methods")
for method, path in (("GET", "/cache?tokens=1"), ("POST", "/cache/flush")):
    origin = {"Origin": "http://page"}
    answers = [s.request("OPTIONS", path, headers={**origin, "Access-Control-Request-Method": method}),
               s.request(method, path, headers=origin)]
    ok([a[0] for a in answers] == [200, 403] and json.loads(answers[1][2])["error"]["code"] == "cross_origin" and
       not any(h.lower().startswith("access-control-") for a in answers for h in a[1].keys()),
       f"{path} is not for pages of web sites", [(a[0], a[1].items()) for a in answers])
ok(not s.request("GET", "/cache")[1]["Access-Control-Allow-Origin"], "nor are answers to anybody else")
same(json.loads(s.get("/cache")[1])["totals"]["nodes"], totals["nodes"], "and nothing was flushed")
shown = subprocess.run([TIGON, "cache", "--url", s.url, "--limit", "10000"], capture_output=True, text=True)
ok(shown.returncode == 0 and len([line for line in shown.stdout.splitlines() if " page" in line]) == len(nodes) + 1 and
   "state (prompt)" in shown.stdout and "└─ " in shown.stdout and "with a cache_salt:" in shown.stdout,
   "tigon cache prints a line a node", shown.stderr + shown.stdout[:2000])


def pretend(answer, status=200):
    """tigon cache with a server that answers just so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            c = listener.accept()[0]
            c.recv(65536)
            c.sendall(f"HTTP/1.0 {status} X\r\n\r\n{json.dumps(answer)}".encode())
            c.close()
        thread = threading.Thread(target=serve)
        thread.start()
        shown = subprocess.run([TIGON, "cache", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}"],
                               capture_output=True, text=True, timeout=20)
        thread.join()
        return shown


node = {"id": 1, "parent": 0, "space": 0, "depth": 64, "tokens": 64, "pages": 1}
shown = pretend({"nodes": [node, {**node, "id": 2, "parent": 1}, {**node, "id": 2, "parent": 2}], "totals": {}})
ok(shown.returncode == 1 and "node 2 is twice" in shown.stderr, "what is no tree is refused", shown.stderr)
shown = pretend({"nodes": [{**node, "checkpoint": "\x1b[31m\x9bä", "computed": "\x07\x7f"}], "totals": {}})
ok(shown.returncode == 0 and "state (?[31m?ä), ??\n" in shown.stdout, "nothing steers the terminal", ascii(shown.stdout))
shown = pretend({"error": {"message": "\x1b]0;x\x07"}}, 500)
ok(shown.returncode == 1 and shown.stderr == "tigon cache: status 500: ?]0;x?\n", "nor in an error", ascii(shown.stderr))
same(subprocess.run([TIGON, "cache", "--url", s.url, "--limit", "x"], capture_output=True).returncode, 1, "or complains")
shown = subprocess.run([TIGON, "cache", "--url", "http://127.0.0.1:1"], capture_output=True, text=True)
same((shown.returncode, shown.stderr), (1, "tigon cache: http://127.0.0.1:1: cannot send to the server: Connection refused; "
                                        "--url names another\n"), "no server: the sentence names it")

# POST /cache/flush
if FAKE:
    slow = Server(env={"FAKE_STEP_US": "3000"})
else:
    slow = s
busy = threading.Thread(target=lambda: complete(slow, ids(10, 100), 300))
busy.start()
slow.wait_metric("num_requests_running", 1)
status, headers, body = slow.request("POST", "/cache/flush")
error = json.loads(body)["error"]
ok(status == 409 and error["code"] == "requests_running" and "running" in error["message"], "409 while a request runs",
   (status, body))
same(json.loads(slow.get("/cache")[1])["totals"]["nodes"] >= 0, True, "which the tree can be seen beside")
shown = subprocess.run([TIGON, "cache", "flush", "--url", slow.url], capture_output=True, text=True)
ok(shown.returncode == 1 and "409" in shown.stderr, "tigon says it", shown.stderr)
busy.join()
status, _, body = slow.request("POST", "/cache/flush", b"x=1", {"Content-Type": "application/x-www-form-urlencoded"})
ok(status == 200 and json.loads(body)["flushed"]["pages"] > 0, "200 at once when the answer is there", (status, body))
totals = json.loads(slow.get("/cache")[1])["totals"]
same((totals["nodes"], totals["tokens"], totals["states"], totals["used_bytes"]), (0, 0, 0, 0), "nothing is left")
same(complete(slow, ids(10, 100)).reason, "cold", "not even the memory of it")
shown = subprocess.run([TIGON, "cache", "flush", "--url", slow.url], capture_output=True, text=True)
ok(shown.returncode == 0 and shown.stdout.startswith("flushed: "), "tigon cache flush", shown.stderr)
if slow is not s:
    slow.stop("the slow server ends")
lines = [line for line in s.text().splitlines() if "(cached=256; reason=none)" in line]
ok(lines, "the log has it, too", s.text()[-1000:])
s.stop()

# options
s = Server("--cache-decoded", "off")
a = complete(s, ids(1, 100), 200)
b = complete(s, ids(1, 100) + a.ids)
ok(b.cached == 64, "--cache-decoded off: only what was a prompt", (b.n, b.header))
same(json.loads(s.get("/cache")[1])["totals"]["tokens"] % PAGE, 0, "is remembered")
ok(all(n["computed"] == "prefilled" for n in json.loads(s.get("/cache")[1])["nodes"]), "and nothing else")
s.stop()
s = Server("--prefix-cache", "off", "--cache-disk", "1G", "--host-cache-memory", "1M")
ok("--cache-disk is not used" in s.text() and "--host-cache-memory is not used" in s.text(), "options without effect are said",
   s.text())
a = [complete(s, ids(1, 300), 5) for _ in range(2)]
same([(r.cached, r.reason) for r in a], [(0, "disabled")] * 2, "--prefix-cache off")
same((a[0].ids == a[1].ids, json.loads(s.get("/cache")[1])["nodes"]), (True, []), "remembers nothing")
s.stop()

s = Server("--cache-memory", "8M", "--max-num-seqs", "4")
a = [complete(s, ids(i, 300), 20) for i in range(30)]
m = s.metrics()
ok(all(r.status == 200 for r in a) and 0 < m["cache_used_bytes"] <= m["cache_budget_bytes"] <= 8 << 20 and
   m["prefix_cache_evicted_pages_total"] > 0, "--cache-memory bounds pages and states", m)
s.stop()

if FAKE:
    s = Server("--max-model-len", "512")
    for n, more, want in ((513, {"max_tokens": 0, "echo": True, "logprobs": 1}, "context is 512 tokens, and 513 are in the prompt"),
                          (512, {"max_tokens": 1}, "this server's context is 512 tokens, but 513"),
                          (512, {"max_tokens": 0, "echo": True, "logprobs": 1}, None)):
        a = ask(s, COMPLETE, {"prompt": ids(1, n), **more})
        ok(a.status == 200 if not want else a.status == 400 and want in a.body["error"]["message"],
           f"{n} tokens of prompt, {more['max_tokens']} to generate", a.body)
    s.stop()
    s = Server("--cache-memory", "3M")
    a = ask(s, COMPLETE, {"prompt": ids(1, 600)})
    ok(a.status == 400 and a.body["error"]["code"] == "context_length_exceeded" and "512 tokens" in a.body["error"]["message"],
       "a prompt that cannot fit into it: 400, before anything else", a.body)
    a = ask(s, COMPLETE, {"prompt": ids(1, 513), "max_tokens": 0, "echo": True, "logprobs": 1})
    ok(a.status == 400 and "512 tokens, too few for 513 in the prompt" in a.body["error"]["message"],
       "nor one with nothing to generate", a.body)
    a = ask(s, COMPLETE, {"prompt": ids(1, 512), "max_tokens": 0, "n": 3})
    same((a.status, a.n), (200, 512), "which may fill it")
    a = ask(s, COMPLETE, {"prompt": ids(1, 400), "ignore_eos": True})
    same((a.status, a.n + len(a.ids or [])), (200, 512), "and no max_tokens is what fits")
    s.stop()

    # pages that had to be evicted
    s = Server("--max-model-len", "2048", "--max-num-seqs", "4", env={"FAKE_PAGES": "40", "FAKE_SLOTS": "64"})
    a = [complete(s, ids(i, 1000)) for i in (1, 2, 3, 4)] + [complete(s, ids(1, 1000))]
    same((a[4].cached, a[4].reason), (0, "evicted-page"), "pages that were evicted")
    ok(s.metrics()["prefix_cache_evicted_pages_total"] > 0, "are counted")
    s.stop()
    # In short supply, states inside a prompt go first: the next one to leave it there finds only pages.
    s = Server("--max-model-len", "2048", "--max-num-seqs", "2", "--max-batched-tokens", "256",
               env={"FAKE_PAGES": "400", "FAKE_SLOTS": "8"})
    a = [complete(s, ids(i, 1000)) for i in range(4)] + [complete(s, ids(0, 1000)[:600] + ids(9, 200))]
    ok(a[4].cached < 512 and a[4].reason == "evicted-state", "states that were evicted", a[4].header)
    ok(s.metrics()["prefix_cache_evicted_states_total"] > 0, "are counted")
    s.stop()

    # the queue
    slow = tempfile.NamedTemporaryFile()
    s = Server("--max-num-seqs", "1", "--max-queued-requests", "3", env={"FAKE_STEP_US": "2000", "FAKE_SLOW": slow.name})
    ended = []

    def queued(name, **more):
        def run():
            a = complete(s, ids(1, 5), 600 if name == "first" else 200, **more)
            ended.append((name, a.status))
        return run

    threads = []
    for i, (name, priority) in enumerate((("first", 0), ("last", 5), ("second", -7), ("third", 0))):
        threads.append(threading.Thread(target=queued(name, priority=priority)))
        threads[-1].start()
        if i == 0:
            s.wait_metric("generation_tokens_total", 1)
        else:
            s.wait_metric("num_requests_waiting", i)
    status, headers, body = s.request("POST", COMPLETE, json.dumps({"prompt": "a"}), JSON)
    ok(status == 429 and int(headers["Retry-After"]) >= 1 and json.loads(body)["error"]["code"] == "queue_full",
       "a full queue: 429 with Retry-After", (status, body))
    same(ask(s, COMPLETE, {"prompt": ["a", "b", "c", "d"]}).status, 429, "for whoever comes")
    same([v for k, v in s.metrics().items() if "request_success_total" in k and "error" in k], [0],
         "which no count of choices has")
    same(s.get("/cache")[0], 200, "but the cache can be looked at")
    slow.close()
    for t in threads:
        t.join()
    same(ended, [(n, 200) for n in ("first", "second", "third", "last")], "lower priorities first, then in order")
    a = ask(s, COMPLETE, {"prompt": ["a", "b", "c", "d"], "max_tokens": 1})
    same((a.status, len(a.body["choices"])), (200, 4), "a request of more prompts than the queue has places")
    s.stop()

    # memory for one at a time
    s = Server("--max-num-seqs", "16", env={"FAKE_PAGES": "24", "FAKE_SLOTS": "40", "FAKE_STEP_US": "500"})
    alone = [complete(s, ids(i, 200), 600, cache_prompt=False).ids for i in range(3)]
    crowd = parallel([lambda i=i: complete(s, ids(i % 3, 200), 600).ids for i in range(12)])
    ok(all(got == alone[i % 3] for i, got in enumerate(crowd)), "retracted requests come back to the same answer",
       [str(c)[:60] for c in crowd])
    ok(s.metrics()["num_preemptions_total"] > 0, "and are counted", s.metrics())
    ok(s.wait_metric("kv_cache_pages_used", 0) is not None, "nothing leaks", s.metrics())
    s.stop()
    patience.join()
    ok(14 < patience.seconds < 22 and patience.header is None, "headers of a stream go out after 15 s of waiting",
       (patience.seconds, patience.header))
    ok(patience.data.startswith(b": keep-alive\n\n") and patience.data.endswith(b"data: [DONE]\n\n"),
       "with a comment before the first token", patience.data[:300])
done()
