"""Large answers: sent in pieces beside streams, the same bytes as ever, bounded while they are not read, and given back."""
import json
import os
import re
import socket
import time

from harness import Server, TIGOND, done, ok, parallel, raw_connection, raw_post, same, sanitized, token_ids, wait_for

FAKE = "fake" in os.path.basename(TIGOND)
MB = 1 << 20
WORDS = "the violin is a bowed stringed instrument and the highest member of its family " * 20
# 3 prompts of some 300 tokens, each listed once with 20 others: about 1.5 MB of JSON, and so with each further prompt
LARGE = {"prompt": [WORDS] * 3, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 20, "logprobs": 5, "echo": True,
         "return_token_ids": True}
PATH = "/v1/completions"


def masked(body):
    return re.sub(rb'"id":"[^"]*"|"created":\d+', b"", body)


def ask(s, body, headers=None):
    """(status, headers, bytes)"""
    return s.request("POST", PATH, json.dumps(body), {"Content-Type": "application/json", **(headers or {})}, timeout=300)


def rss(s):
    """MB of memory that the process has."""
    with open(f"/proc/{s.process.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) // 1024


def slow_connection(s):
    """A connection into which the system takes few bytes before its client reads."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.settimeout(60)
    c.connect(("127.0.0.1", s.port))
    return c


def read_head(c):
    data = b""
    while b"\r\n\r\n" not in data:
        data += c.recv(1)
    return data.decode()


def read_all(c):
    parts = []
    try:
        while part := c.recv(1 << 20):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


s = Server("--answer-memory", "8M")

# the form
status, headers, small = ask(s, {"prompt": "a", "max_tokens": 2, "temperature": 0})
ok(status == 200 and int(headers["Content-Length"]) == len(small), "a short answer has a length", headers)
status, headers, body = ask(s, LARGE)
ok(status == 200 and headers["Transfer-Encoding"] == "chunked" and not headers["Content-Length"] and len(body) > MB,
   f"a large one of {len(body)} bytes comes in pieces", headers)
parsed = json.loads(body)
ok(len(parsed["choices"]) == 3 and parsed["usage"]["completion_tokens"] == 3 and
   all(len(c["prompt_logprobs"]) == len(c["prompt_token_ids"]) == len(c["logprobs"]["tokens"]) - 1 for c in parsed["choices"]),
   "all of it")
alone = [ask(s, {**LARGE, "prompt": WORDS})[2] for _ in range(2)]
same(masked(alone[0]), masked(alone[1]), "and each time the same")
same([c["logprobs"] for c in parsed["choices"]], json.loads(alone[0])["choices"][0:1][0:1] and
     [json.loads(alone[0])["choices"][0]["logprobs"]] * 3, "three prompts in one answer read like one")

# HTTP/1.0 has no pieces: the end of the connection is the end of the answer
c = raw_connection(s.port)
c.sendall(raw_post(PATH, LARGE).replace(b"HTTP/1.1", b"HTTP/1.0"))
head = read_head(c)
rest = read_all(c)
ok("chunked" not in head.lower() and len(rest) > MB and masked(rest) == masked(body), "HTTP/1.0: the same bytes, then the end",
   (head, len(rest), len(body)))
c.close()

# tokens and texts that are large replies
text = WORDS * 200
status, headers, tokens = s.request("POST", "/tokenize", json.dumps({"prompt": text}))
ok(status == 200 and int(headers["Content-Length"]) == len(tokens) > 64 << 10, "a reply that is known has a length", headers)
ids = json.loads(tokens)["tokens"]
status, headers, back = s.request("POST", "/detokenize", json.dumps({"tokens": ids}))
same(json.loads(back)["prompt"], text, "and is whole")

# so are many nodes of the cache
parallel([lambda i=i: s.complete(token_ids(i, 300), max_tokens=1) for i in range(60)])
status, headers, tree = s.request("GET", "/cache?tokens=1&limit=10000")
tree = json.loads(tree)
ok(headers["Transfer-Encoding"] == "chunked" and not tree["truncated"] and
   tree["totals"]["nodes"] == len(tree["nodes"]) == len({n["id"] for n in tree["nodes"]}) and
   tree["totals"]["tokens"] == sum(len(n["token_ids"]) for n in tree["nodes"]) > 10000, "the cache's nodes come in pieces", tree["totals"])

# a stream that echoes a long prompt has the same text
status, _, streamed = ask(s, {**LARGE, "prompt": WORDS, "stream": True, "prompt_logprobs": None})
chunks = [json.loads(line[6:]) for line in streamed.decode().splitlines() if line.startswith("data: {")]
whole = json.loads(alone[0])["choices"][0]
same("".join(c["choices"][0]["text"] for c in chunks if c["choices"]), whole["text"], "a stream with an echo has its text")
lists = {k: [v for c in chunks if c["choices"] and c["choices"][0]["logprobs"] for v in c["choices"][0]["logprobs"][k]]
         for k in whole["logprobs"]}
same(lists, whole["logprobs"], "and its log-probabilities")

# beside a large answer that is not read, streams and /health go on: the answer is made as far as it is read
slow = slow_connection(s)
slow.sendall(raw_post(PATH, {**LARGE, "prompt": [WORDS] * 8}))
ok(" 200 " in read_head(slow), "a large answer has begun")
unread = s.metrics()["answer_unread_bytes"]
ok(MB // 4 < unread < MB, f"what is kept of it is small and counted: {unread:.0f} bytes", unread)
answers = parallel([lambda: b"[DONE]" in ask(s, {"prompt": "a", "max_tokens": 50, "stream": True, "ignore_eos": True})[2]
                    for _ in range(4)] + [lambda: s.get("/health")[0] == 200])
ok(all(answers), "streams and /health beside it", answers)
rest = b""
while not rest.endswith(b"\r\n0\r\n\r\n"):
    part = slow.recv(1 << 16)
    if not part:
        break
    rest += part
ok(rest.endswith(b"\r\n0\r\n\r\n") and len(rest) > 3 * MB, f"then it is read to its end, {len(rest)} bytes")
slow.close()
wait_for(lambda: s.metrics()["answer_unread_bytes"] == 0, 10)
same(s.metrics()["answer_unread_bytes"], 0, "nothing is left")

# a client that leaves midway
gone = raw_connection(s.port)
gone.sendall(raw_post(PATH, LARGE))
read_head(gone)
gone.close()
ok(wait_for(lambda: s.metrics()["answer_unread_bytes"] == 0, 10), "a client left: nothing is kept")

# all that is not read is bounded: the slowest clients are cut off, others are not hurt
before = rss(s)
hoarders = []
for _ in range(40):
    c = slow_connection(s)
    c.sendall(raw_post(PATH, {**LARGE, "prompt": [WORDS] * 10}))
    hoarders.append(c)
ok(wait_for(lambda: s.metrics()["answers_unread_total"] > 0, 60), "clients that do not read: some are cut off")
answer = ask(s, LARGE)
ok(answer[0] == 200 and masked(answer[2]) == masked(body), "one that reads gets all", answer[0])
ok(wait_for(lambda: s.metrics()["answer_unread_bytes"] <= 8 * MB, 10), "the rest is within --answer-memory",
   s.metrics()["answer_unread_bytes"])
for c in hoarders:
    c.close()
ok(wait_for(lambda: s.metrics()["answer_unread_bytes"] == 0, 10), "all is freed")
if not sanitized():  # their allocators keep what is freed
    ok(wait_for(lambda: rss(s) < before + 16, 10), "and given back to the system", f"{before} MB before, {rss(s)} MB now")

# of a text whose tokens are not read, only these are kept
s.stop()
s = Server()
# A sanitizer is slow, and memory is not measured with it.
text = "the violin is a bowed stringed instrument " * ((1 if sanitized() else 8) * MB // 42)
ask_tokens = lambda: s.request("POST", "/tokenize", json.dumps({"prompt": text}), timeout=300)
size = len(ask_tokens()[2])
before = rss(s)
readers = []
for _ in range(8):
    c = slow_connection(s)
    c.sendall(raw_post("/tokenize", {"prompt": text}))
    read_head(c)
    readers.append(c)
if not sanitized():
    ok(wait_for(lambda: rss(s) - before < 8 * 1.25 * size / MB + 16, 10),
       f"eight answers of {size} bytes to texts of 8 MB take {rss(s) - before} MB")
for c in readers:
    c.close()

# one request alone that would keep too much is refused before it is computed
s.stop()
s = Server("--answer-memory", "1M")
status, _, answer = ask(s, {**LARGE, "prompt": [WORDS] * 30})
ok(status == 400 and "--answer-memory" in json.loads(answer)["error"]["message"], "log-probabilities that never fit: 400", answer)

# a stream whose client does not read: its records are counted, too
if FAKE:
    c = slow_connection(s)
    c.sendall(raw_post(PATH, {"prompt": "a", "max_tokens": 4000, "n": 8, "stream": True, "ignore_eos": True, "logprobs": 20}))
    ok(wait_for(lambda: s.metrics()["answers_unread_total"] == 1, 60), "a stream that is not read is ended", s.metrics())
    ok(wait_for(lambda: s.metrics()["num_requests_running"] == 0, 10), "and no longer computed")
    c.close()

    # and so are short answers: each connection has one of 60 KB that the system does not take any more
    hoarders = [slow_connection(s) for _ in range(25)]
    for c in hoarders:
        c.settimeout(0.05)
        try:
            c.sendall(raw_post("/tokenize", {"prompt": "a b c " * 5000}) * 80)
        except TimeoutError:
            pass
    ok(wait_for(lambda: s.metrics()["answers_unread_total"] > 1, 60), "short answers that are not read are ended, too", s.metrics())
    for c in hoarders:
        c.close()
s.stop()
done()
