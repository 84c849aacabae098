"""Clients that leave: their pages are free at once, not after the 20 s that the answer would take, wherever their request was."""
import json
import os
import socket
import struct
import time

from harness import Server, done, ok, parallel, raw_connection, raw_post, same, wait_for

s = Server(env={"FAKE_STEP_US": "5000"})
LONG = {"messages": [{"role": "user", "content": "tell me everything"}], "ignore_eos": True, "temperature": 0}
CHAT = "/v1/chat/completions"


def start(extra, body=LONG, path=CHAT):
    c = raw_connection(s.port)
    c.sendall(raw_post(path, {**body, **extra}))
    return c


def leaves(name, prepare, leave):
    c = prepare()
    ok(s.wait_metric("num_requests_running", c[1]) is not None, f"{name}: it runs")
    used = s.metrics()["kv_cache_pages_used"]
    leave(c[0])
    took = s.wait_metric("num_requests_running", 0)
    m = s.metrics()
    ok(used > 0 and took is not None and took < 2 and m["kv_cache_pages_used"] == 0,
       f"{name}: {used:.0f} pages are free after {took and took * 1000:.0f} ms", m)
    return c[0]


def reset(c):
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()


leaves("a whole answer, closed", lambda: (start({}), 1), lambda c: c.close())
leaves("a whole answer, reset", lambda: (start({}), 1), reset)
leaves("a stream, closed unread", lambda: (start({"stream": True}), 1), lambda c: c.close())
leaves("a stream, reset", lambda: (start({"stream": True}), 1), reset)


def read_some():
    c = start({"stream": True})
    while c.recv(4096).count(b"data:") < 1:
        pass
    return c, 1


leaves("a stream, closed while it is read", read_some, lambda c: c.close())
half = leaves("a client that shuts down its half", lambda: (start({}), 1), lambda c: c.shutdown(socket.SHUT_WR))
same(half.recv(100), b"", "which is then disconnected")
leaves("four choices", lambda: (start({"n": 4, "stream": True}), 4), lambda c: c.close())
leaves("three prompts", lambda: (start({"n": 2, "stream": True, "prompt": ["a", "b", "c"]}, path="/v1/completions"), 6),
       lambda c: c.close())

# in the middle of a crowd: the others go on
others = [start({"stream": True, "max_tokens": 100}) for _ in range(8)]
leavers = [start({"stream": True}) for _ in range(8)]
ok(s.wait_metric("num_requests_running", 16) is not None, "sixteen run")
for c in leavers:
    c.close()
took = s.wait_metric("num_requests_running", 8)
ok(took is not None and took < 2, f"eight leave ({took and took * 1000:.0f} ms)")


def drain(c):
    data = b""
    while b"[DONE]" not in data:
        piece = c.recv(65536)
        if not piece:
            return data
        data += piece
    return data


ok(all(d.count(b'"finish_reason":"length"') == 1 for d in parallel([lambda c=c: drain(c) for c in others])),
   "the other eight get their answers")
for c in others:
    c.close()
m = s.metrics()
ok(m["kv_cache_pages_used"] == 0 and m["num_requests_waiting"] == 0, "all is free", m)
ok(m['request_success_total{finished_reason="abort"}'] == 16, "sixteen aborts are counted", m)

# leaving before the answer could start: while the body is sent, and at once after it
for _ in range(20):
    c = raw_connection(s.port)
    c.sendall(raw_post(CHAT, LONG)[:-10])
    c.close()
    c = raw_connection(s.port)
    c.sendall(raw_post(CHAT, LONG))
    c.close()
ok(s.wait_metric("num_requests_running", 0) is not None, "hasty clients")
time.sleep(0.2)


def left():
    return [s.metrics()[k] for k in ("num_requests_running", "num_requests_waiting", "kv_cache_pages_used")]


# On a busy machine the last of them may be read, and run for a moment, only now. What stays is what they leave.
wait_for(lambda: left() == [0, 0, 0])
same(left(), [0, 0, 0], "leave nothing behind")
same(s.chat("define violin")[1]["choices"][0]["finish_reason"], "stop", "and the server still answers")
s.stop()

# A connection that has ended gives its descriptor back at once, also if nothing happens after that and an older
# connection is idle. (When libmicrohttpd 0.9 itself closes a connection while it makes the answer, it forgets that
# connection until something happens, and even then while it has an older one.)
s = Server(env={"FAKE_STEP_US": "5000"})


def sockets():
    files = f"/proc/{s.process.pid}/fd"
    n = 0
    for name in os.listdir(files):
        try:
            n += os.readlink(f"{files}/{name}").startswith("socket:")
        except FileNotFoundError:
            pass
    return n


idle = raw_connection(s.port)
idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
while b'"ok"' not in idle.recv(4096):
    pass
before = sockets()


def given_back(name):
    ok(wait_for(lambda: sockets() == before, 5), f"{name}: descriptors are given back", sockets() - before)


for name, version in ("a stream", b"1.1"), ("a stream by HTTP/1.0", b"1.0"):
    c = raw_connection(s.port)
    c.sendall(raw_post(CHAT, {**LONG, "stream": True}).replace(b"HTTP/1.1", b"HTTP/" + version, 1))
    while b"data:" not in c.recv(4096):
        pass
    reset(c)
    given_back(f"{name}, reset while it is read")
c = raw_connection(s.port)
c.sendall(raw_post(CHAT, {**LONG, "stream": True, "max_tokens": 3}).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
data = b""
while piece := c.recv(4096):
    data += piece
ok(data.endswith(b"data: [DONE]\n\n"), "a stream by HTTP/1.0 is read to its end", data)
given_back("while its client stays")
c.close()
leavers = [start({"stream": True}) for _ in range(200)]
for i, c in enumerate(leavers):
    (reset if i % 2 else socket.socket.close)(c)
given_back("200 streams, half of them reset")
same(s.metrics()['request_success_total{finished_reason="abort"}'] >= 2, True, "aborts are counted")
same(s.metrics()['request_success_total{finished_reason="length"}'], 1, "and the answer that was read to its end")
idle.close()
s.stop()

# waiting ones: a pool for one request at a time
s = Server("--max-num-seqs", "1", env={"FAKE_STEP_US": "5000"})
first = start({})
ok(s.wait_metric("num_requests_running", 1) is not None, "one runs")
waiting = []
for n in range(1, 6):  # each once the one before waits: two text threads could change their order
    waiting.append(start({"stream": True}))
    s.wait_metric("num_requests_waiting", n)
ok(s.metrics()["num_requests_waiting"] == 5, "five wait")
for c in waiting[:3]:
    c.close()
took = s.wait_metric("num_requests_waiting", 2)
ok(took is not None and took < 2, f"three of them leave ({took and took * 1000:.0f} ms)")
first.close()
ok(s.wait_metric("num_requests_waiting", 1) is not None, "the next one runs")
waiting[4].close()
ok(s.wait_metric("num_requests_waiting", 0) is not None, "the last one that waits leaves")
waiting[3].close()
ok(s.wait_metric("num_requests_running", 0) is not None, "and the one that runs")
same(s.metrics()["request_queue_time_seconds_count"], 2, "two were admitted")
s.stop()

# a queue that is full
s = Server("--max-num-seqs", "1", "--max-queued-requests", "3", env={"FAKE_STEP_US": "5000"})
first = start({})
ok(s.wait_metric("num_requests_running", 1) is not None, "one runs")
while not s.metrics()["generation_tokens_total"]:
    time.sleep(0.01)
waiting = [start({}) for _ in range(3)]
ok(s.wait_metric("num_requests_waiting", 3) is not None, "three wait")
status, headers, body = s.request("POST", CHAT, json.dumps({**LONG, "stream": True}),
                                  {"Content-Type": "application/json"})
ok(status == 429 and headers["Retry-After"] and json.loads(body)["error"]["code"] == "queue_full",
   "the fourth gets 429 with Retry-After", (status, body))
for c in [first, *waiting]:
    c.close()
ok(s.wait_metric("num_requests_waiting", 0) is not None, "they leave")
same(s.chat("define violin")[0], 200, "and there is room again")
s.stop()

# the client does not read: the answer, some 30 MB, waits in memory, and is dropped with the connection
s = Server()
c = start({"stream": True, "n": 8, "max_tokens": 1200, "return_token_ids": True, "logprobs": True, "top_logprobs": 20})
ok(s.wait_metric("generation_tokens_total", 9600, 300) is not None, "9600 tokens for a client that does not read")
c.close()
same(s.chat("define violin")[0], 200, "which leaves")
s.stop()
done()
