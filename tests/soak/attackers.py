"""All attacks at once, until SIGTERM: attackers.py PORT SCALE SEED. It prints a line when every kind of attack has begun. At
the end it prints, as JSON, how long it attacked, how many of each kind were to begin by then, and how many ended in which way.

Connections come from 127.0.0.2 to 127.0.0.9. SCALE multiplies the numbers. With 1 there are, at any time or in each second,

    IDLE        4,096 connections, a third of which have begun a request; those that the server closes come back, some 60 a second
    SLOW        100 clients that read 4 KiB of a large answer a second
    UNREAD      8 clients that ask for answers of some megabytes and read only the beginning
    UNFINISHED  10 requests a second that never end: in their headers, or within a body of up to 1 MB
    MALFORMED   20 requests a second that are refused
    HOSTILE     2 bodies a second of 16 MB, of kinds that cost much to read

No attack makes the model compute a long prompt, which every client may ask for.
"""
import asyncio
import collections
import json
import random
import resource
import signal
import socket
import sys
import time

IDLE, SLOW, UNREAD, UNFINISHED, MALFORMED, HOSTILE = 4096, 100, 8, 10, 20, 2
RAMP = 12  # seconds at the beginning, in which idle connections come, some 500 a second
AGAIN = 50  # after that about so many come back in a second
MB = 1 << 20
BODY = 16 * MB - 1000
WORDS = "the violin is a bowed stringed instrument and the highest member of its family "
COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"

port, scale, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
seen = {name: collections.Counter() for name in ("idle", "slow", "unread", "unfinished", "malformed", "hostile")}


def amount(n):
    return max(1, round(n * scale))


async def connect(small=False):
    s = socket.socket()
    s.setblocking(False)
    if small:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.bind((f"127.0.0.{rng.randrange(2, 10)}", 0))
    try:
        await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", port))
    except BaseException:
        s.close()
        raise
    return s


async def send(s, data):
    """Sends in pieces of 16 KiB: while the system takes one piece, no other program gets the processor."""
    for at in range(0, len(data), 1 << 14):
        await asyncio.get_running_loop().sock_sendall(s, memoryview(data)[at:at + (1 << 14)])
        await asyncio.sleep(0)


def receive(s, n=65536):
    return asyncio.get_running_loop().sock_recv(s, n)


def head(path, n, extra=""):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {n}\r\n\r\n").encode()


def post(path, body, extra=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(path, len(body), extra) + body


async def status_of(s, seconds):
    """The status in the answer's first line; "closed": the server closed the connection; "nothing": none came in time."""
    data = b""
    try:
        async with asyncio.timeout(seconds):
            while b"\r\n" not in data:
                part = await receive(s)
                if not part:
                    return "closed"
                data += part
    except TimeoutError:
        return "nothing"
    return int(data.split(b" ")[1])


async def one(name, work):
    """Counts that a client began, and how it ended: the result of work(), or "closed" if its connection failed."""
    seen[name]["began"] += 1
    try:
        seen[name][str(await work())] += 1
    except OSError:
        seen[name]["closed"] += 1


async def each_second(name, n, work):
    """Begins `work` n times a second, but not while more than 60 n of them have not ended."""
    running, due = set(), time.monotonic()
    while True:
        due += 1 / n
        await asyncio.sleep(max(0, due - time.monotonic()))
        if len(running) > 60 * n:
            seen[name]["too many"] += 1
            continue
        t = asyncio.create_task(one(name, work))
        running.add(t)
        t.add_done_callback(running.discard)


async def forever(name, work):
    while True:
        await one(name, work)
        await asyncio.sleep(1 + 4 * rng.random())


# ---- the clients of each kind ----

async def idle():
    s = await connect()
    with s:
        if rng.random() < 0.3:
            await send(s, b"GET /v1/models HTTP/1.1\r\nHost: local")
        await receive(s)
        return "closed"


async def idle_crowd():
    n, running = amount(IDLE), set()
    begin = time.monotonic()
    while True:
        for _ in range(min(n - len(running), amount(500 if time.monotonic() < begin + RAMP else AGAIN) // 10 + 1)):
            t = asyncio.create_task(one("idle", idle))
            running.add(t)
            t.add_done_callback(running.discard)
        await asyncio.sleep(0.1)


LARGE = json.dumps({"prompt": WORDS * (MB // 2 // len(WORDS)), "return_token_strs": True}).encode()
STREAM = {"prompt": "a", "max_tokens": 256, "ignore_eos": True, "stream": True, "logprobs": 5}


async def slow():
    s = await connect(small=True)
    with s:
        await send(s, post(COMPLETE, STREAM) if rng.random() < 0.2 else post("/tokenize", LARGE))
        while await receive(s, 4096):
            await asyncio.sleep(1)
        return "closed"


async def unread():
    s = await connect(small=True)
    with s:
        await send(s, post("/tokenize", LARGE))
        status = await status_of(s, 60)
        for _ in range(120):
            await asyncio.sleep(1)
            await send(s, b" ")  # fails if the server has closed the connection
        return status


async def unfinished():
    n = rng.choice((50, 2000, 100000, MB))
    data = head(COMPLETE, n) + b" " * (n - 1)
    data = data[:rng.choice((10, 60, len(data) - n // 2, len(data)))]
    s = await connect()
    with s:
        await send(s, data)
        end = rng.random()
        if end < 0.3:
            await asyncio.sleep(2 * rng.random())
            return "left"
        if end < 0.6:
            s.shutdown(socket.SHUT_WR)
        return await status_of(s, 90)


OK = b'{"prompt": "a", "max_tokens": 1}'
LENGTH = f"Content-Length: {len(OK)}\r\n"
REFUSED = [
    post(COMPLETE, OK, LENGTH), post(COMPLETE, OK, "Transfer-Encoding: chunked\r\n"), post(COMPLETE, OK, "Host: a\r\n"),
    post(COMPLETE, OK, "Content-Length : 3\r\n"), post(COMPLETE, OK, "X-A: " + "a" * 40000 + "\r\n"),
    post(COMPLETE, OK, "Content-Encoding: gzip\r\n"), post(COMPLETE, OK, "X-\0A: x\r\n"), post(COMPLETE, OK, "X (a): x\r\n"),
    post(COMPLETE, OK).replace(b"localhost", b"rebound.example"), post(COMPLETE, OK).replace(b"Host: localhost\r\n", b""),
    post(COMPLETE, b"{"), post(COMPLETE, b"\xff\xfe"), post(COMPLETE, b"[" * 5000), post(COMPLETE, {"prompt": 5}),
    post(COMPLETE, {"prompt": "a", "n": -1}), post(COMPLETE, {"prompt": "a", "model": "x\n\x1b[2J"}),
    post(CHAT, {"messages": [{"role": "nobody"}]}), post(CHAT, {"messages": [], "logit_bias": {"a": 1}}), post("/nothing%00/x", b""),
    post("/cache%2fflush", b""), b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET /" + b"a" * 60000,
    post(COMPLETE, b"x" * 1000).replace(b"Content-Length: 1000", b"Content-Length: -1"),
    head(COMPLETE, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"zz\r\n",
]


async def malformed():
    s = await connect()
    with s:
        await send(s, rng.choice(REFUSED))
        return await status_of(s, 90)


def repeated(begin, item, end):
    return begin + item * ((BODY - len(begin) - len(end)) // len(item)) + end


BODIES = [
    (COMPLETE, b"[" + b"{}," * (BODY // 3 - 1) + b"{}]"),
    ("/tokenize", repeated(b'{"prompt":"', WORDS.encode(), b'"}')),
    ("/tokenize", repeated(b'{"prompt":"', b"a", b'"}')),
    (COMPLETE, repeated(b'{"max_tokens":1,"prompt":"', WORDS.encode(), b'"}')),
    (CHAT, repeated(b'{"messages":[{"role":"user"}],"tools":[{"function":{"name":"f","parameters":{"enum":[1', b",1234567", b"]}}}]}")),
    (CHAT, repeated(b'{"max_tokens":1,"messages":[{"role":"user","content":"b"}', b',{"role":"user","content":"' + b"a" * 60 + b'"}', b"]}")),
    (CHAT, repeated(b'{"max_tokens":1,"messages":[{"role":"user","content":"', rb"\u00e9\n", b'"}]}')),
    # 1,023 short prompts, and one that is too long
    (COMPLETE, repeated(b'{"max_tokens":1,"prompt":[' + (json.dumps(WORDS) + ",").encode() * 1023 + b'"', WORDS.encode(), b'"]}')),
]


async def hostile():
    path, body = BODIES[rng.randrange(len(BODIES))]
    s = await connect()
    with s:
        await send(s, head(path, len(body)))
        await send(s, body)
        return await status_of(s, 300)


def due(seconds):
    """The least number of each kind that has to begin within this time."""
    return {"idle": amount(IDLE), "slow": amount(SLOW), "unread": amount(UNREAD), "unfinished": UNFINISHED * scale * seconds,
            "malformed": MALFORMED * scale * seconds, "hostile": HOSTILE * scale * seconds}


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    begin = time.monotonic()
    attacks = [idle_crowd(), each_second("unfinished", UNFINISHED * scale, unfinished),
               each_second("malformed", MALFORMED * scale, malformed), each_second("hostile", HOSTILE * scale, hostile)]
    attacks += [forever("slow", slow) for _ in range(amount(SLOW))] + [forever("unread", unread) for _ in range(amount(UNREAD))]
    tasks = [asyncio.create_task(a) for a in attacks]
    while not all(c["began"] for c in seen.values()):
        await asyncio.sleep(0.05)
    print("each kind has begun", flush=True)
    await stop.wait()
    for t in tasks:
        if t.done() and t.exception():
            raise t.exception()
    seconds = time.monotonic() - begin
    print(json.dumps({"seconds": seconds, "due": due(seconds), "seen": seen}), flush=True)


resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
try:
    asyncio.run(main())
except asyncio.CancelledError:
    pass
