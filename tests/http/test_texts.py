"""Long texts: they delay no short one, are not read further than is useful, and the work on one ends when its client leaves."""
import json
import os
import random
import select
import shutil
import signal
import socket
import tempfile
import time

from harness import MODEL, Server, done, ok, parallel, raw_connection, raw_post, same, sanitized, wait_for

MB = 1 << 20
WORDS = "the violin is a bowed stringed instrument and the highest member of its family "
LONG = WORDS * (15 * MB // len(WORDS))
# Some texts are made long so that the daemon is busy with them for a time. With a sanitizer it is slow, and they are shorter.
SLOWER = 4 if sanitized() else 1

s = Server()

# Long texts leave threads for short ones.
finished = []


def note(name, ask):
    def run():
        answer = ask()
        finished.append(name)
        return answer
    return run


def tokenize():
    return s.request("POST", "/tokenize", json.dumps({"prompt": LONG[:len(LONG) // SLOWER]}), timeout=300)[0]


def after_a_while():
    time.sleep(0.5)
    return s.complete("a", max_tokens=1)[0]


answers = parallel([note("long", tokenize)] * 4 + [note("short", after_a_while)])
same(answers, [200] * 5, "four long texts and a short one are answered")
ok(finished.index("short") <= 2, "the short one does not wait for the long ones", finished)

def timed(path, body, after=0.0):
    body = json.dumps(body).encode()

    def run():
        time.sleep(after)
        begin = time.time()
        return s.post(path, body, timeout=300)[0], time.time() - begin
    return run


for name, want, ask in (
        ("160,000 messages", 400, timed("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * (160000 // SLOWER)})),
        ("1,000 prompts", 200, timed("/v1/completions", {"prompt": [LONG[:13000 // SLOWER]] * 1000, "max_tokens": 1}))):
    long, short = parallel([ask, timed("/v1/completions", {"prompt": "a", "max_tokens": 1}, 0.4)])
    ok(long[0] == want and short[0] == 200 and short[1] < long[1] / 4, f"nor for {name}", (long, short))

# a prompt that is surely too long is not read to its end
status, answer = s.complete(LONG, max_tokens=1)
ok(status == 400 and answer["error"]["code"] == "context_length_exceeded"
   and "more than 8192 are in the prompt" in answer["error"]["message"], "a prompt of 15 MB: 400, not counted", answer)
status, answer = s.complete("a" * (15 * MB), max_tokens=1)
ok(status == 400 and answer["error"]["code"] == "context_length_exceeded", "one of a single word, too", answer)
status, answer = s.chat(LONG, max_tokens=1)
ok(status == 400 and answer["error"]["code"] == "context_length_exceeded" and "in the messages" in answer["error"]["message"],
   "a chat of 15 MB", answer)
status, answer = s.complete("word " * 5000, max_tokens=1)
ok(status == 400 and "5001" in answer["error"]["message"].replace(",", " ").split(), "a prompt that is a little too long is counted",
   answer)

# bounds of JSON: the number of values, which take much more memory than their text, and the levels
for name, body, want in (
        ("five million objects", b"[" + b"{}," * (5 * MB) + b"{}]", "more than 500000 values"),
        ("1.9 million numbers in a tool", json.dumps({"messages": [], "tools": [{"function": {"enum": [1] * 1900000}}]}).encode(),
         "more than 500000 values"),
        ("190,000 messages", json.dumps({"messages": [{"role": "user", "content": "a"}] * 190000}).encode(),
         "more than 500000 values"),
        ("65 levels", b'{"prompt":' + b"[" * 64 + b"]" * 64 + b"}", "deeper than 64 levels")):
    status, answer = s.post("/v1/chat/completions", body)
    ok(status == 400 and want in answer["error"]["message"], f"{name}: 400", answer)
status, answer = s.post("/v1/completions", {"prompt": [[7] * 1000] * 499, "max_tokens": 1, "n": 3})
ok(status == 400 and "answers" in answer["error"]["message"], "500,000 values are read", answer)

# endpoints that need little take only small bodies
status, answer = s.post("/detokenize", b'{"tokens":[' + b"1," * (5 * MB // 2) + b"1]}")
ok(status == 413 and "at most 4194304" in answer["error"]["message"], "/detokenize takes at most 4 MiB", answer)
same(len(s.post("/detokenize", {"tokens": [73] * 300000})[1]["prompt"]), 300000, "which is enough")
c = raw_connection(s.port)
c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b" " * 100000)
ok(c.recv(1000).startswith(b"HTTP/1.1 200"), "a GET may have a small body")
c.close()
c = raw_connection(s.port)
try:
    c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n")
    for _ in range(1000):
        c.sendall(b" " * 16000)
    answer = c.recv(1000)
except OSError:
    answer = b""
same(answer, b"", "but none of 16 MB")
c.close()

def connection_from(address):
    c = socket.create_connection(("127.0.0.1", s.port), source_address=(address, 0), timeout=300)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return c


def post_from(address, path, body):
    c = connection_from(address)
    c.sendall(raw_post(path, body))
    return c


def answered(connections):
    return len(select.select(connections, [], [], 0)[0])


# Clients take turns, however many texts each of them has sent. All texts lack their last byte at first, and the daemon is stopped
# while the first client sends these bytes: so all of its texts are there before the daemon has read one of them, however slow this
# program is. (A client may have an eighth of the connections for requests that are not whole.)
r = random.Random(1)
MANY = 100
for size in 60000, 100000:
    text = "".join(r.choices("etaoinshrdlu", k=size))
    request = raw_post("/tokenize", {"prompt": text})
    first = [connection_from("127.0.0.2") for _ in range(MANY)]
    second = connection_from("127.0.0.3")
    for c in [*first, second]:
        c.sendall(request[:-1])
    s.process.send_signal(signal.SIGSTOP)
    for c in first:
        c.sendall(request[-1:])
    s.process.send_signal(signal.SIGCONT)
    second.sendall(request[-1:])
    select.select([second], [], [], 300)
    before = answered(first)
    ok(before < MANY // 2, f"a text of another client comes before most of {MANY} of {size} bytes", before)
    for c in [*first, second]:
        c.close()

# A text of some size does not wait for very long ones, not even if these were there before.
huge = {"prompt": "".join(r.choices("etaoinshrdlu", k=5 * MB // 4))}
waiting = [post_from(f"127.0.0.{i}", "/tokenize", huge) for i in range(10, 18)]
select.select(waiting, [], [], 300)
time.sleep(0.05)
short = post_from("127.0.0.3", "/tokenize", {"prompt": text})
select.select([short], [], [], 300)
before = answered(waiting)
ok(before <= 4, f"a text of {len(text)} bytes comes before most of eight very long ones", before)
for c in [*waiting, short]:
    c.close()

# A small body does not wait for small ones whose schemas take long to compile. All of these get their answers.
SLOW = {"allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(100)]}
waiting = [post_from(f"127.0.0.{i}", path, {**body, "guided_json": SLOW}) for i in range(10, 18) for path, body in (
    ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    ("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "a"}]}))]
time.sleep(0.02)
short = post_from("127.0.0.3", "/v1/completions", {"prompt": "a", "max_tokens": 1})
select.select([short], [], [], 300)
before = answered(waiting)
ok(before <= 4, f"a small body comes before most of {len(waiting)} with costly schemas", before)
ok(b" 200 " in short.recv(1000).split(b"\r\n")[0], "and is answered")
refusals = set()
for c in waiting:
    select.select([c], [], [], 300)
    refusals.add((c.recv(12), b"takes too much work" in c.recv(4000)))
same(refusals, {(b"HTTP/1.1 400", True)}, "each costly schema has its refusal")
for c in [*waiting, short]:
    c.close()

# A client may leave with all its texts at once.
many = [post_from("127.0.0.2", "/tokenize", {"prompt": text[:60000]}) for _ in range(800)]
begin = time.time()
for c in many:
    c.close()
same(s.request("GET", "/livez", timeout=60)[0], 200, "a client leaves with 800 texts that wait")
taken = time.time() - begin
ok(taken < 5, "and holds up nobody", taken)


# The work on a text ends when its client has left.
def processor_time():
    with open(f"/proc/{s.process.pid}/stat") as f:
        return sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")


def takes(what):
    begin = processor_time()
    what()
    return processor_time() - begin


WORD = {"prompt": "".join(r.choices("etaoinshrdlu", k=4 * MB // SLOWER))}


def ask_and_leave():
    connections = [raw_connection(s.port) for _ in range(6)]
    for c in connections:
        c.sendall(raw_post("/tokenize", WORD))
    time.sleep(0.3)
    for c in connections:
        c.close()
    same(s.post("/tokenize", WORD, timeout=300)[0], 200, "a long word behind six whose clients left")


# A body that waits behind another client's text is dropped when its client leaves, and takes no memory from then on.
busy = raw_connection(s.port)
busy.sendall(raw_post("/tokenize", {"prompt": "".join(r.choices("etaoinshrdlu", k=15 * MB))}))
time.sleep(0.5)
gone = [raw_connection(s.port) for _ in range(9)]
for c in gone:
    try:
        c.sendall(raw_post("/tokenize", {"prompt": LONG}))
    except OSError:
        pass


def large_is_welcome():
    with raw_connection(s.port) as c:
        c.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\nExpect: 100-continue\r\n\r\n")
        return b" 100 " in c.recv(1000)


refused = wait_for(lambda: not large_is_welcome(), 5)
for c in gone:
    c.close()
welcome = wait_for(large_is_welcome, 10)
ok(refused and welcome and not select.select([busy], [], [], 0)[0],
   "bodies whose clients left are dropped before the text before them is read", (refused, welcome))
busy.close()

one = takes(lambda: s.post("/tokenize", WORD, timeout=300))
seven = takes(ask_and_leave)
ok(seven < 4 * one, f"these take {seven - one:.2f} s of processor time, one alone {one:.2f}")
s.stop()

# A second signal ends the daemon without waiting for texts.
s = Server()
connections = [raw_connection(s.port) for _ in range(12)]
for c in connections:
    c.sendall(raw_post("/tokenize", {"prompt": LONG}))
s.process.send_signal(signal.SIGTERM)
time.sleep(0.3)
begin = time.time()
s.process.send_signal(signal.SIGINT)
same(s.process.wait(25), 1, "a second signal while texts are read: status 1")
ok(time.time() - begin < 5, "at once")

# a tokenizer's pattern that reads the rest of the text at each character
folder = tempfile.mkdtemp(prefix="tigon-texts-")
for name in os.listdir(MODEL):
    if name != "tokenizer.json" and os.path.isfile(os.path.join(MODEL, name)):
        os.symlink(os.path.join(MODEL, name), os.path.join(folder, name))
with open(os.path.join(MODEL, "tokenizer.json")) as f:
    tokenizer = json.load(f)
tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a+b|."
with open(os.path.join(folder, "tokenizer.json"), "w") as f:
    json.dump(tokenizer, f)
s = Server("--tokenizer", folder)
same(s.post("/tokenize", {"prompt": "aab" * 20000 + "a" * 200})[0], 200, "a slow pattern with a text that it likes")
status, answer = s.post("/tokenize", {"prompt": "a" * MB}, timeout=250)
ok(status == 400 and "takes too long" in answer["error"]["message"], "and with one that it does not: 400", answer)
status, answer = s.post("/v1/embeddings", {"input": ["a", "a" * MB]}, timeout=250)
ok(status == 400 and "takes too long" in answer["error"]["message"] and answer["error"]["param"] == "input[1]", "which is named", answer)
c = raw_connection(s.port)
c.sendall(raw_post("/tokenize", {"prompt": "a" * MB}))
time.sleep(0.2)
s.stop("SIGTERM behind such a text: status 0")
shutil.rmtree(folder)
done()
