"""All attacks at once, until SIGTERM: attackers.py PORT SCALE SEED [KIND,...]. It prints a line when every kind of attack has
begun. At the end it prints, as JSON, how long it attacked, how many of each kind were to begin by then, and how many ended in
which way. Without a list of kinds it makes all attacks.

Connections come from 127.0.0.2 to 127.0.0.9. SCALE multiplies the numbers. With 1 there are, at any time or in each second,

    IDLE        4,096 connections, a third of which have begun a request; those that the server closes come back, some 60 a second
    SLOW        100 clients that read 4 KiB of a large answer a second
    UNREAD      8 clients that ask for answers of some megabytes and read only the beginning
    UNFINISHED  10 requests a second that never end: in their headers, or within a body of up to 1 MB
    MALFORMED   20 requests a second that are refused
    HOSTILE     2 bodies a second of 16 MB, of kinds that cost much to read
    STORED      1 conversation a second of up to 4 responses, of up to 1.3 MB each, which the server keeps. A client then reads
                them, and cancels and deletes its own and those of others
    CONSTRAINED 2 answers a second of a few tokens, of schemas, expressions and grammars that cost much to compile or to follow;
                half of the clients leave before the answer
    MESSAGES    2 bodies a second of /v1/messages and count_tokens, of up to 1 MB with thousands of blocks or tools

No attack makes the model compute a long prompt, which every client may ask for.
"""
import asyncio
import collections
import json
import random
import re
import resource
import signal
import socket
import sys
import time

IDLE, SLOW, UNREAD, UNFINISHED, MALFORMED, HOSTILE, STORED, CONSTRAINED, MESSAGES = 4096, 100, 8, 10, 20, 2, 1, 2, 2
RAMP = 12  # seconds at the beginning, in which idle connections come, some 500 a second
AGAIN = 50  # after that about so many come back in a second
MB = 1 << 20
BODY = 16 * MB - 1000
WORDS = "the violin is a bowed stringed instrument and the highest member of its family "
COMPLETE, CHAT, RESPONSE, MESSAGE = "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT = "/v1/messages/count_tokens"
CLOSE = "Connection: close\r\n"

port, scale, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
KINDS = ("idle", "slow", "unread", "unfinished", "malformed", "hostile", "stored", "constrained", "messages")
kinds = sys.argv[4].split(",") if len(sys.argv) > 4 else KINDS
rng = random.Random(seed)
seen = {name: collections.Counter() for name in kinds}


def amount(n):
    return max(1, round(n * scale))


async def connect(small=False, address=None):
    s = socket.socket()
    s.setblocking(False)
    if small:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.bind((f"127.0.0.{address or rng.randrange(2, 10)}", 0))
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


async def exchange(address, data):
    """The status and the body of an answer behind which the server closes the connection."""
    s = await connect(address=address)
    parts = []
    with s:
        await send(s, data)
        async with asyncio.timeout(300):
            while part := await receive(s):
                parts.append(part)
    first, _, body = b"".join(parts).partition(b"\r\n\r\n")
    return int(first.split(b" ")[1]) if first else "closed", body


async def one(name, work):
    """Counts that a client began, and how it ended: the result of work(), or "closed" if its connection failed."""
    seen[name]["began"] += 1
    try:
        seen[name][str(await work())] += 1
    except TimeoutError:  # which is an OSError, too
        seen[name]["nothing"] += 1
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


def about(method, name, behind=""):
    """A request about a response that is kept, without a body."""
    length = "Content-Length: 0\r\n" if method == "POST" else ""
    return f"{method} {RESPONSE}/{name}{behind} HTTP/1.1\r\nHost: localhost\r\n{CLOSE}{length}\r\n".encode()


def said(content, role="user"):
    return {"role": role, "content": content}


def constrained_body(more):
    return {"messages": [said("a")], "max_tokens": 4, **more}


def tool(parameters, **more):
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters, **more}}]}


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
    about("GET", "resp_none"), about("GET", "resp_none", "/input_items?limit=0"), about("GET", "resp_none", "/input_items?order=up"),
    about("GET", "%00"), about("GET", "resp_none?stream=true"), about("DELETE", "resp_none"), about("POST", "resp_none", "/cancel"),
    about("PUT", "resp_none"), about("DELETE", "resp_none", "/cancel"), about("GET", "a" * 9000),
]
REFUSED += [post(RESPONSE, {"input": "a", "max_output_tokens": 1, **more}) for more in (
    {"input": 5}, {"input": None}, {"input": []}, {"input": [{"type": "image"}]}, {"input": [said([{"type": "input_file"}])]},
    {"input": [{"type": "function_call_output"}]}, {"previous_response_id": "resp_none"}, {"previous_response_id": 1},
    {"background": True}, {"store": "yes"}, {"truncation": "all"}, {"metadata": {"a": "b" * 600}}, {"include": "a"},
    {"tools": [{"type": "web_search"}]}, {"tool_choice": {"type": "allowed_tools"}}, {"text": {"format": {"type": "thing"}}})]
REFUSED += [post(path, {"max_tokens": 1, "messages": [said("a")], **more}) for path in (MESSAGE, COUNT) for more in (
    {"messages": 5}, {"messages": []}, {"messages": [said("a", "nobody")]}, {"messages": [said([{"type": "image"}])]},
    {"messages": [said([{"type": "tool_result"}])]}, {"system": 5}, {"tools": [{"name": "f"}]}, {"tools": [{"type": "bash_20250124"}]},
    {"tool_choice": {"type": "tool", "name": "g"}}, {"thinking": {"type": "deep"}})] + [post(MESSAGE, {"messages": [said("a")]})]
REFUSED += [post(CHAT, constrained_body(more)) for more in (
    {"guided_regex": "("}, {"guided_regex": "((a{1,999}){1,999}){1,999}"}, {"guided_regex": "(?=a)b"}, {"guided_regex": 5},
    {"guided_grammar": 'root ::= s\ns ::= s s | "a"'}, {"guided_grammar": "root ::= s"}, {"guided_grammar": 'root ::= "a'},
    {"guided_grammar": 'root ::= "a" root'}, {"guided_json": {"type": "thing"}}, {"guided_json": {"ifX": {}}},
    {"guided_json": {"$ref": "#/$defs/a"}}, {"guided_json": {"allOf": [{"type": "null"}, {"type": "string"}]}}, {"guided_choice": [1]},
    {"guided_json": {"type": "null"}, "guided_regex": "a"}, {"response_format": {"type": "json_schema"}}, {"response_format": "json"},
    {"tool_choice": "required"}, {"tool_choice": "sometimes", **tool({})}, {"tool_choice": {"function": {"name": "g"}}, **tool({})},
    tool({"ifX": {}}, strict=True), tool({}, strict="yes"), tool({"type": "object", "properties": 5}, strict=True))]


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
    (CHAT, repeated(b'{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"guided_json":{"enum":["a"', b',"abcdefgh"', b"]}}")),
    (CHAT, repeated(b'{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"guided_regex":"b', b"(a|aa)*", b'"}')),
    (COUNT, repeated(b'{"messages":[{"role":"user","content":[{"type":"text","text":"b"}', b',{"type":"text","text":"a"}', b"]}]}")),
    # is kept as the one before it is forgotten, and has a short prompt
    (RESPONSE, repeated(b'{"input":"a","max_output_tokens":1,"user":"', b"a", b'"}')),
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


# Requests without their ends. The first message is longer than the context: it is kept, but left out of the prompt.
TURNS = [json.dumps({"input": [said(WORDS * (MB // 4 // len(WORDS))), said("a")], "truncation": "auto", "max_output_tokens": 1,
                     "user": "a" * n})[:-1] for n in (10, MB // 4, MB)]
others = collections.deque([(2, "resp_none")], maxlen=100)  # address and id of responses that clients have stored


async def stored():
    address, previous, mine = rng.randrange(2, 10), None, []
    for _ in range(rng.randrange(1, 5)):
        body = rng.choice(TURNS) + (f',"previous_response_id":"{previous}"' if previous else "") + "}"
        status, answer = await exchange(address, post(RESPONSE, body.encode(), CLOSE))
        if status != 200:
            return status
        previous = re.search(rb'"id":"(resp_[^"]+)"', answer)[1].decode()
        mine.append(previous)
        others.append((address, previous))
    s = await connect(address=address)  # one that is cancelled while it is answered
    with s:
        await send(s, post(RESPONSE, {"input": "a", "max_output_tokens": 64, "ignore_eos": True, "stream": True}, CLOSE))
        begin = b""
        async with asyncio.timeout(300):
            while not (found := re.search(rb'"id":"(resp_[^"]+)"', begin)):
                part = await receive(s)
                if not part:
                    return "closed"
                begin += part
        status, _ = await exchange(address, about("POST", found[1].decode(), "/cancel"))
    for name in mine:
        for method, behind in ("GET", ""), ("GET", "/input_items?limit=100"), ("POST", "/cancel"), ("DELETE", ""):
            if method != "DELETE" or rng.random() < 0.3:
                status, _ = await exchange(address, about(method, name, behind))
                seen["stored"][f"{method} {status}"] += 1
    owner, name = rng.choice(others)
    address = 2 + (owner - 1) % 8
    for data in (about("GET", name), about("GET", name, "/input_items"), about("POST", name, "/cancel"), about("DELETE", name),
                 post(RESPONSE, {"input": "a", "max_output_tokens": 1, "previous_response_id": name}, CLOSE)):
        answer, _ = await exchange(address, data)
        if answer not in (400, 404):
            seen["stored"]["another's"] += 1
    return status


def nested(n, of):
    for _ in range(n):
        of = {"type": "array", "items": of}
    return of


TREE = {"type": "object", "properties": {"t": {"$ref": "#"}, "u": {"$ref": "#"}}}
LIST = {"type": "array", "minItems": 80, "items": {"type": "string", "pattern": "^((a?){30}b){1,20}$"}}
# All are near a bound of the compiler, some beyond it.
SCHEMAS = [
    nested(40, {}), nested(30, TREE), LIST, {"anyOf": [LIST] * 20}, {"enum": [f"number {i} of many" for i in range(8000)]},
    {"enum": [f"number {i} of many" for i in range(20000)]},
    {"type": "object", "properties": {f"p{i}": {"type": "string", "format": "uri"} for i in range(150)}},
    {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1500)}},
    {"type": "object", "patternProperties": {f"^{'(a|aa)*' * i}{i}$": {"type": "number"} for i in range(8)}},
    {"type": "array", "items": {"type": "array", "items": {"type": "string", "minLength": 500, "maxLength": 8000}, "maxItems": 8}, "maxItems": 8},
    {"allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(100)]}, {"type": "integer", "allOf": [{"multipleOf": i} for i in (7, 11, 13)]},
    {"not": {"anyOf": [{"minLength": i, "maxLength": 2 * i} for i in range(1, 60)]}},
    {"anyOf": [{"if": {"properties": {f"p{i}": {"const": i}}}, "then": {"required": [f"p{i}"]}, "else": TREE} for i in range(60)]},
    {"type": "integer", "minimum": -123456789, "maximum": 987654321}, {"type": "string", "pattern": "^[^a]{1,5000}$"},
]
GRAMMARS = ['root ::= s "b"\ns ::= "a" | "a" s | "a" s s | "aa" s', 'root ::= s+ "b"\ns ::= t t\nt ::= "a" | "aa" | "a" t',
            'root ::= "a" root? root? root? | [a-z]{1,3000}', "root ::= [^a]{1,9000}", 'root ::= (("a"? "b"?){20} "c"?){200}',
            "root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} | r{i + 1} "a" r{i + 1}' for i in range(300)) + '\nr300 ::= "a"']
REGEXES = ["(a|aa)*b", "((a|a)*|(a|aa)*)*b", "(a?){800}(b?){800}c", "((a?){50}){50}b", "((a?){500}){20}b", "(.*a){100}",
           "([a-z]{0,300}[ ,]){0,100}", "\\w{1,9000}",
           "(" + "|".join(f"w{i}" for i in range(5000)) + ")*"]
WAYS = [lambda schema: (CHAT, constrained_body({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}})),
        lambda schema: (RESPONSE, {"input": "a", "max_output_tokens": 4, "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}),
        lambda schema: (MESSAGE, {"messages": [said("a")], "max_tokens": 4,
                                  "output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        lambda schema: (COMPLETE, {"prompt": "a", "max_tokens": 4, "n": 8, "temperature": 1, "guided_json": schema})]
TOOL_WAYS = [lambda schema: (CHAT, constrained_body({"tool_choice": "required", **tool({"type": "object", "properties": {"a": schema}})})),
             lambda schema: (CHAT, constrained_body(tool({"type": "object", "properties": {"a": schema}}, strict=True)))]
COSTLY = [post(*way(schema)) for way in WAYS for schema in SCHEMAS]
COSTLY += [post(*way(schema)) for way in TOOL_WAYS for schema in SCHEMAS if len(json.dumps(schema)) < 1000]  # it is in the prompt
COSTLY += [post(CHAT, constrained_body({key: text, **stream})) for key, texts in (("guided_grammar", GRAMMARS), ("guided_regex", REGEXES))
           for text in texts for stream in ({}, {"stream": True}, {"temperature": 1, "n": 8})]


async def constrained():
    s = await connect()
    with s:
        await send(s, rng.choice(COSTLY))
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random())
            return "left"
        return await status_of(s, 300)


def uses(n):
    """n calls, each with its result."""
    return [m for i in range(n) for m in (
        said([{"type": "thinking", "thinking": "a", "signature": "b"}, {"type": "tool_use", "id": f"t{i}", "name": "f", "input": {"a": i}}], "assistant"),
        said([{"type": "tool_result", "tool_use_id": f"t{i}", "content": [{"type": "text", "text": "a"}] * 4}]))]


BLOCKS = [{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}] * 9000
MANY = [
    {"messages": [said(BLOCKS + [{"type": "text", "text": "a"}])]}, {"messages": [said(BLOCKS), said("a", "assistant")] * 2 + [said("a")]},
    {"messages": [said("a")], "system": BLOCKS}, {"messages": uses(3000) + [said("a")]}, {"messages": [said("a"), said("b", "assistant")] * 8000},
    {"messages": [said([{"type": "redacted_thinking", "data": "a"}] * 9000, "assistant"), said("a")]},
    {"messages": [said("a")], "tools": [{"name": f"t{i}", "input_schema": {"type": "object"}, "strict": True} for i in range(9000)]},
    {"messages": [said("a")], "tools": [{"name": f"t{i}", "input_schema": {"properties": {"a": {"enum": list(range(40))}}}} for i in range(3000)],
     "tool_choice": {"type": "any"}},
    {"messages": [said("a")], "tools": [{"name": f"t{i}", "input_schema": {}} for i in range(9000)], "tool_choice": {"type": "none"}},
    {"messages": [said(WORDS * (MB // len(WORDS)))]},
]
MANY = [post(path, {"max_tokens": 1, **body}) for path in (MESSAGE, COUNT) for body in MANY]


async def messages():
    s = await connect()
    with s:
        await send(s, rng.choice(MANY))
        if rng.random() < 0.2:
            return "left"
        return await status_of(s, 300)


CLIENTS = {"idle": IDLE, "slow": SLOW, "unread": UNREAD}  # so many are there at any time
RATES = {"unfinished": (UNFINISHED, unfinished), "malformed": (MALFORMED, malformed), "hostile": (HOSTILE, hostile),
         "stored": (STORED, stored), "constrained": (CONSTRAINED, constrained), "messages": (MESSAGES, messages)}  # a second


def due(name, seconds):
    """The least number of a kind that has to begin within this time."""
    return amount(CLIENTS[name]) if name in CLIENTS else RATES[name][0] * scale * seconds


def attack(name):
    """The coroutines that make the attacks of a kind."""
    if name == "idle":
        return [idle_crowd()]
    if name in CLIENTS:
        return [forever(name, {"slow": slow, "unread": unread}[name]) for _ in range(amount(CLIENTS[name]))]
    n, work = RATES[name]
    return [each_second(name, n * scale, work)]


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    begin = time.monotonic()
    attacks = [a for name in kinds for a in attack(name)]
    tasks = [asyncio.create_task(a) for a in attacks]
    while not all(c["began"] for c in seen.values()):
        await asyncio.sleep(0.05)
    print("each kind has begun", flush=True)
    await stop.wait()
    for t in tasks:
        if t.done() and t.exception():
            raise t.exception()
    seconds = time.monotonic() - begin
    print(json.dumps({"seconds": seconds, "due": {name: due(name, seconds) for name in kinds}, "seen": seen}), flush=True)


resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
try:
    asyncio.run(main())
except asyncio.CancelledError:
    pass
