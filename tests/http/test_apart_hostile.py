"""Live sockets of prefill and decode workers under fire: garbage, frames that are almost right, peers that lie.

    test_apart_hostile.py TIGOND [ROUNDS [SEED]]

Only the delivery that is lied about fails. All the time an honest decode worker uses the same prefill worker, and gets the
answers of a unified server; at the end all pools are as at the beginning, and no process has died. ROUNDS of random changes.
"""
import errno
import os
import random
import re
import signal
import socket
import struct
import sys
import threading
import time

import zmtp
from harness import Askers, Server, decode_worker, done, goldens, ok, parallel, prefill_worker, same, wait_for
from zmtp import Closed, call, draw, message, prepare, status, window

ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 300
BEAT_MS = 400
DEAD_S = 3 * BEAT_MS / 1000
rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 3)
ids = [i for c in goldens() for i in c["output_ids"]]


def plain(answer):
    status_, body = answer
    return status_, [c["text"] for c in body["choices"]] if status_ == 200 else body


BEAT = ("--transfer-heartbeat", str(BEAT_MS))


def body(i, salt):
    n = (3, 70, 200, 500)[i % 4]
    return {"prompt": ids[i:i + n], "max_tokens": 6, "temperature": 0, "n": 1 + i % 2, "cache_salt": salt}


N = 8
unified = Server()
want = [plain(unified.complete(**body(i, "x"))) for i in range(N)]
unified.stop()


class Liar:
    """A prefill worker that says HELLO, answers PINGs, and to a PREPARE does `lie`."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.hello = None  # of who calls
        self.lie = None
        self.mute = False
        self.connection = None
        self.prepares = 0
        self.busy = False
        self.pong = struct.pack("<QIBBI", 0, 0, 0, 0, 0)
        self.ours = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            s, _ = self.listener.accept()
            threading.Thread(target=self._talk, args=(s,), daemon=True).start()

    def say_hello(self, c):
        self.ours = zmtp.Hello(self.hello.frame())
        self.ours.role, self.ours.worker = 0, os.urandom(16)
        c.send(self.ours.frame())

    def _talk(self, s):
        try:
            c = self.connection = zmtp.Connection(s, b"ROUTER")
            while True:
                self.busy = False
                frame = c.receive(600)[0]
                self.busy = True
                kind = zmtp.kind_of(frame)
                if self.mute:
                    continue
                if kind == zmtp.HELLO:
                    self.hello = zmtp.Hello(frame)
                    self.say_hello(c)
                elif kind == zmtp.PING:
                    c.send(message(zmtp.PONG, frame[24:32] + self.pong))
                elif kind == zmtp.PREPARE:
                    self.prepares += 1
                    self.lie(c, zmtp.Prepare(frame))
        except (Closed, OSError):
            s.close()


port = socket.create_server(("127.0.0.1", 0))
number = port.getsockname()[1]
port.close()
prefill = prefill_worker(*BEAT, port=number)
honest = decode_worker([prefill.endpoint], *BEAT)
liar = Liar()
victim = decode_worker([liar.endpoint], *BEAT)
for d in (honest, victim):
    ok(d.wait_metric("transfer_peers", 1, 60) is not None, "a decode worker finds its peer", d.text())


# ---- an honest decode worker asks all the time ----

def ask_honest(i, salt):
    try:
        got = plain(honest.complete(**body(i % N, salt)))
    except Exception as e:
        got = repr(e)
    return None if got == want[i % N] else (i, got, want[i % N])


askers = Askers(2, ask_honest, 0.05)  # always there, but without a core of their own


# ---- a prefill worker: peers that are no decode worker at all ----

def garbage(i):
    try:
        s = socket.create_connection(("127.0.0.1", number), timeout=20)
        begin = (b"", zmtp.GREETING[:rng.randrange(64)], zmtp.GREETING, zmtp.GREETING + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06DEALER")
        s.sendall(begin[i % 4] + rng.randbytes(rng.choice((1, 10, 300, 5000))))
        s.close()
    except OSError:
        pass


for i in range(ROUNDS):
    garbage(i)
same(prefill.process.poll(), None, "a prefill worker survives garbage")


# ---- almost a decode worker ----

good = zmtp.Hello(liar.hello.frame())
good.heartbeat = 20000  # it says nothing while it waits for an answer, which may take its time on a busy machine


def registered():
    c = call(number)
    good.worker = rng.randbytes(16)
    c.send(good.frame())
    assert zmtp.kind_of(c.receive()[0]) == zmtp.HELLO
    return c


def changed(change):
    h = zmtp.Hello(good.frame())
    change(h)
    return h.frame()


def set_bytes(h, states, part):
    next(layer for layer in h.layers if layer[3] == states)[part] += 16


def answer(frame):
    c = call(number)
    c.send(frame)
    got = c.receive()[0]
    c.close()
    return zmtp.failed(got) if zmtp.kind_of(got) == zmtp.REFUSE else zmtp.kind_of(got)


for name, change, sentence in (
        ("model", lambda h: setattr(h, "model", bytes(16)), r"the model is another one.*weights"),
        ("page", lambda h: setattr(h, "page_tokens", 32), r"tokens of a page are 32 at the decode worker, 64 at the prefill worker.*--page-size"),
        ("number of layers", lambda h: h.layers.append([8, 8, 0, 0]), r"layers are 9 at the decode worker, 8 at the prefill worker"),
        ("kind of layer", lambda h: h.layers[3].__setitem__(3, 3), r"part 0 of layer 3 is kept in states at the decode worker, in pages at the prefill worker"),
        ("size of k", lambda h: set_bytes(h, 0, 0), r"bytes of part 0 of layer 3's pages are \d+ at the decode worker, \d+ at the prefill worker.*--dtype"),
        ("size of a state", lambda h: set_bytes(h, 3, 1), r"bytes of part 1 of layer 0's states are \d+ at the decode worker, \d+ at the prefill worker"),
        ("role", lambda h: setattr(h, "role", 0), r"this worker prefills for decode workers only")):
    got = answer(changed(change))
    ok(isinstance(got, tuple) and re.search(sentence, got[1]), f"another {name} is refused with a sentence", got)
same(prefill.text().count("a decode worker at 127.0.0.1 is refused: the"), 1, "which is logged once a minute")
version = bytearray(good.frame())
version[4] = 1
for _ in range(3):
    same(answer(bytes(version)), (93, "the peer speaks version 1 of the transfer protocol, not 3"), "so is another version")
same(prefill.text().count("the peer speaks version 1"), 1, "which is logged once a minute")
same(answer(prepare(5, [1, 2, 3]))[1], "HELLO comes first", "PREPARE before HELLO is refused")


def end_of(c, delivery):
    """What a delivery ends with: its bytes and its last STATUS, or an error."""
    total = 0
    while True:
        frames = c.receive()
        if zmtp.delivery_of(frames[0]) != delivery:
            continue
        if zmtp.kind_of(frames[0]) == zmtp.WINDOW:
            total += len(frames[1])
        elif zmtp.failed(frames[0]):
            return zmtp.failed(frames[0])
        else:
            return total, frames[0]


c = registered()
c.send(prepare(1, ids[:130]))
c.send(prepare(1, ids[:130]))
total, last = end_of(c, 1)
same(total, 3 * good.bytes(0) + good.bytes(1), "a right PREPARE brings pages and state, once, although it came twice")
same(struct.unpack_from("<IIIIQI", last, 24)[0], zmtp.SUCCESS, "and Success")
for delivery, (name, frame, sentence) in enumerate((
        ("a token outside of the vocabulary", prepare(2, [1, 1 << 30]), "vocabulary"),
        ("an end token outside of the vocabulary", prepare(3, [1, 2], ends=[1 << 30]), "vocabulary"),
        ("a mask of another vocabulary", prepare(4, [1, 2], mask=[1] * 9), "9 words"),
        ("a bias outside of the vocabulary", prepare(5, [1, 2], biases=[(5, 1.0), (1 << 20, 1.0)]), "vocabulary"),
        ("more choices than sequences", prepare(6, [1, 2], choices=1000), "choices"),
        ("half a page that is there", prepare(7, [1] * 100, have=63), "whole pages"),
        ("more tokens than the context has", prepare(8, [1] * 5000), "context"),
        ("more tokens than all pages have", prepare(9, [1] * 1000000), "KV cache"),
        ("more end tokens than a draw can ban", prepare(10, [1, 2], ends=range(513), min_tokens=1), "n_end_tokens is 513")), 2):
    c.send(frame)
    got = end_of(c, delivery)
    ok(sentence in str(got[1]), f"{name} fails the delivery with a sentence", got)
c.send(prepare(20, ids[:70], ends=range(512), min_tokens=1))
same(end_of(c, 20)[0], 2 * good.bytes(0) + good.bytes(1), "as many as it can are fine")
tight = prefill_worker(*BEAT, env={"FAKE_PAGES": "4"})
exact, known = call(int(tight.endpoint.rsplit(":", 1)[1])), zmtp.Hello(good.frame())
known.worker = rng.randbytes(16)
exact.send(known.frame())
assert zmtp.kind_of(exact.receive()[0]) == zmtp.HELLO
exact.send(prepare(1, ids[:255]))
same(end_of(exact, 1)[0], 4 * good.bytes(0) + good.bytes(1), "a prompt that fits the prefill worker's cache is computed")
exact.send(prepare(2, ids[:256]))
same(end_of(exact, 2)[1], "the request needs 5 KV pages of 64 tokens, and there are 4",
     "to one of exactly its size the scheduler says that the first token has no room")
exact.send(prepare(3, ids[:257]))
same(end_of(exact, 3), (errno.EINVAL, "the prompt is longer than the KV cache of the prefill worker"), "one of a token more is longer")
exact.close()
tight.stop()

# A decode worker that asks for more prompts than it may have here at a time, of a prefill worker that needs long for each.
slow = prefill_worker(*BEAT, env={"FAKE_STEP_US": "400000"})


def asks_slow():
    c = call(int(slow.endpoint.rsplit(":", 1)[1]))
    known.worker = rng.randbytes(16)
    c.send(known.frame())
    assert zmtp.kind_of(c.receive()[0]) == zmtp.HELLO
    return c


greedy, modest = asks_slow(), asks_slow()
for i in range(1600):
    greedy.send(prepare(1 + i, ids[i % 900:i % 900 + 300], salt=i))
    if i % 400 == 399:  # so that the engine thread has taken them
        time.sleep(1.5)
modest.send(prepare(1, ids[:70], salt=5000))
m = slow.metrics()
ok(0 < m["num_requests_running"] + m["num_requests_waiting"] <= 544 + 1, "a decode worker has at most half of what the scheduler takes",
   (m["num_requests_running"], m["num_requests_waiting"]))
refused, until = set(), time.time() + 60
while time.time() < until:
    frame = greedy.receive()[0]
    if zmtp.kind_of(frame) == zmtp.STATUS and zmtp.failed(frame):
        if not refused:
            until = time.time() + 2
        refused.add(zmtp.failed(frame))
same(refused, {(errno.EAGAIN, "544 prompts of this decode worker are here already")},
     "more are refused, so that they can be sent elsewhere")
greedy.send(message(zmtp.REFUSE, struct.pack("<II", errno.ESHUTDOWN, 3) + b"bye"))  # which ends its prompts
same(end_of(modest, 1)[0], 2 * good.bytes(0) + good.bytes(1), "and another decode worker is served")
greedy.close()
modest.close()
slow.stop()
whole = prepare(9, ids[:20], ends=[3], boundaries=[4, 20])
for n in (0, 1, 23, 24, 60, 110, 111, len(whole) - 1):
    c.send(whole[:n])
    c.send(whole[:8] + struct.pack("<I", n) + whole[12:n] if n > 24 else b"")
c.send(whole + b"x")
c.send(whole, b"body", b"third")
c.send(b"", b"", b"", b"")
c.send(message(zmtp.PREPARE, whole[24:], 9, version=1))
c.send(message(99, b"", 9))
for kind in (zmtp.WINDOW, zmtp.STATUS, zmtp.PONG, zmtp.REFUSE):
    c.send(window(9, 0, [(8, 3, 0, 1, 0)]) if kind == zmtp.WINDOW else status(77, zmtp.FAILED, 5, text=b"no")
           if kind == zmtp.STATUS else message(kind, bytes(30)))
c.send(message(zmtp.ABORT, b"", 4711))
c.send(prepare(10, ids[:64]))
same(end_of(c, 10)[0], good.bytes(0) + good.bytes(1), "what is cut off, too long or nothing for it harms no other delivery")
c.raw(bytes([2]) + struct.pack(">Q", 1 << 40))
try:
    while c.receive(5):
        pass
    gone = False
except (Closed, TimeoutError) as e:
    gone = isinstance(e, Closed)
ok(gone, "a frame of a terabyte ends the connection")
c.close()
c = call(number)  # what that worker left behind is forgotten when it comes again, and it when it says farewell
c.send(good.frame())
assert zmtp.kind_of(c.receive()[0]) == zmtp.HELLO
c.send(message(zmtp.REFUSE, struct.pack("<II", errno.ESHUTDOWN, 3) + b"bye"))
ok(prefill.wait_metric("transfer_peers", 1, 20) is not None, "who says farewell is there no more", prefill.text()[-500:])
c.close()
good.heartbeat = BEAT_MS


def settles(name, servers=(prefill,)):
    """Idle but for the honest one, whose requests come and go."""
    until = time.time() + 30
    low = None
    while time.time() < until:
        m = servers[0].metrics()
        low = m
        if m["num_requests_running"] + m["num_requests_waiting"] <= 4 and m["transfer_peers"] <= 1:
            return ok(True, name)
        time.sleep(0.05)
    return ok(False, name, {k: v for k, v in low.items() if "requests" in k or "peers" in k or "pages" in k})


# Three connections of one worker that says something seldom: by its patience a broken one would stay for minutes.
seldom = zmtp.Hello(good.frame())
seldom.worker, seldom.heartbeat = rng.randbytes(16), 100000


def again():
    c = call(number)
    c.send(seldom.frame())
    assert zmtp.kind_of(c.receive()[0]) == zmtp.HELLO
    return c


def answers_ping(c, n):
    c.send(message(zmtp.PING, struct.pack("<Q", n)))
    while zmtp.kind_of(frame := c.receive()[0]) != zmtp.PONG:
        pass
    return struct.unpack_from("<Q", frame, 24)[0] == n


first, second = again(), again()
ok(answers_ping(first, 5) and answers_ping(second, 6) and prefill.wait_metric("transfer_peers", 3) is not None,
   "a worker that calls twice is there twice", prefill.text()[-500:])
first.close()
second.close()
time.sleep(0.2)
seldom.heartbeat = BEAT_MS
third = again()
ok(prefill.wait_metric("transfer_peers", 2) is not None, "what broke is forgotten when the worker comes again", prefill.text()[-500:])
third.close()

c = registered()
for i in range(10 * ROUNDS):
    c.send(prepare(100 + i, ids[i % 900:i % 900 + 70], salt=i))
c.close()
settles("a flood of PREPAREs from who leaves is over soon")

LINES = 2 * 64  # of one kind that a minute and the next one may have

c = registered()
n = prefill.text().count("a prompt of a decode worker: ")
for i in range(5 * ROUNDS):
    c.send(prepare(100 + i, ids[i % 900:i % 900 + 70], salt=i))
    c.send(message(zmtp.ABORT, b"", 100 + i))
c.close()
settles("and so is one that is aborted at once")
n = prefill.text().count("a prompt of a decode worker: ") - n
ok(n <= LINES, "which does not flood the log", n)

c = registered()
n = prefill.text().count("a decode worker at 127.0.0.1 has ")
for i in range(200):
    c.send(message(zmtp.REFUSE, struct.pack("<II", errno.ESHUTDOWN, 3) + b"bye"))
    c.send(good.frame())
ok(answers_ping(c, 7), "a decode worker that comes and goes is answered")
c.close()
n = prefill.text().count("a decode worker at 127.0.0.1 has ") - n
ok(0 < n <= LINES, "and does not flood the log", n)

frames = [good.frame(), whole, prepare(30, ids[:300]), message(zmtp.PING, struct.pack("<Q", 1)),
          message(zmtp.ABORT, b"", 30), window(30, 0, [(8, 3, 0, 1, 0)]), status(30, zmtp.SUCCESS, 0, 1, 8, [draw(3)])]
c = registered()
for i in range(10 * ROUNDS):
    base = rng.choice(frames)
    f = bytearray(base)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        f[rng.randrange(6, len(f))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    if base is frames[0]:  # who says that it is seldom heard is waited for
        f[88:92] = base[88:92]
    if rng.random() < 0.1:
        del f[rng.randrange(len(f)):]
    try:
        if rng.random() < 0.02:
            raise Closed
        c.send(*([bytes(f)] if rng.random() < 0.9 else [bytes(f), b"x" * rng.randrange(99)]))
    except Closed:
        c.close()
        c = registered()
c.close()
settles(f"{10 * ROUNDS} frames with changed bytes")

# More than it keeps numbers for: none of them says HELLO.
strangers = []
for i in range(1100):
    c = call(number)
    c.send(message(zmtp.PING, bytes(8)))
    strangers.append(c)
    if len(strangers) > 300:
        strangers.pop(0).close()
for c in strangers:
    c.close()
ok(prefill.text().count("a message of a new peer was dropped") <= 1, "1100 strangers are one line of the log")
time.sleep(2 * DEAD_S)
late = decode_worker([prefill.endpoint], *BEAT)
ok(late.wait_metric("transfer_peers", 1) is not None, "after 1100 strangers a decode worker still comes in", prefill.text()[-800:])
late.stop()


# ---- a registry that sends what only a peer may send ----

class Registry:
    """Hears what a worker says, and answers nothing."""

    def __init__(self):
        self.listener, self.connection, self.heard = socket.create_server(("127.0.0.1", 0)), None, 0
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        try:
            self.connection = zmtp.Connection(self.listener.accept()[0], b"ROUTER")
            while self.connection.receive(600):
                self.heard += 1
        except (Closed, OSError):
            pass


def hears(registry, n):
    return wait_for(lambda: registry.heard >= n)


for name, start in (("prefill", prefill_worker), ("decode", lambda *args: decode_worker([prefill.endpoint], *args))):
    registry = Registry()
    worker = start(*BEAT, "--registry", registry.endpoint)
    hears(registry, 1)
    for f in (whole, whole + b"x", status(9, zmtp.SUCCESS), status(9, 7), window(9, 0, [(8, 3, 0, 1, 0)]), message(zmtp.WINDOW, b"", 9),
              message(zmtp.ABORT, b"x", 9), good.frame(), message(zmtp.PING, bytes(8)), message(zmtp.PONG, bytes(3)), b"", b"x"):
        registry.connection.send(f)
    listed = os.urandom(16) + good.model + bytes(32) + b"tcp://192.0.2.1:9".ljust(192, b"\0")
    for i in range(200):
        registry.connection.send(message(11, struct.pack("<I", 1) + listed))
        registry.connection.send(message(11, struct.pack("<I", 0)))
    ok(hears(registry, registry.heard + 3) and worker.process.poll() is None,
       f"a {name} worker goes on when its registry sends messages of peers, also some that cannot be read", worker.text()[-500:])
    n = worker.text().count("the registry knows ")
    ok((n > 0) == (name == "decode") and n <= LINES, "lists that change all the time do not flood its log", n)
    worker.stop()


# ---- a prefill worker that lies ----

# Far outside of it, also if one byte is changed: a complete and well-formed message is believed, zeros too.
vocabulary = 0x40404040


def everything(c, p, token, draws=None, spoil=None):
    """All data, as zeros, and a status: only the layout is right."""
    first, n = p.have // good.page_tokens, -(-p.n_tokens // good.page_tokens) - p.have // good.page_tokens
    total, windows = 0, 0
    for layer, (*parts, states) in enumerate(good.layers):
        pieces = [(x, layer, 0, 1, part) if states >> part & 1 else (x * n, layer, first, n, part) for part, x in enumerate(parts) if x]
        size = sum(x[0] for x in pieces)
        c.send(window(p.delivery, windows, pieces, layer), bytes(size))
        total, windows = total + size, windows + 1
    c.send(status(p.delivery, zmtp.SUCCESS, 0, windows, total, draws if draws is not None else [draw(token)] * p.choices))


def attention():
    return next((i, layer) for i, layer in enumerate(good.layers) if layer[3] == 0)


def one_window(change, size=None, frames=1):
    def lie(c, p):
        layer, (k, *_) = attention()
        w = {"bytes": k, "layer": layer, "first": p.have // good.page_tokens, "n": 1, "part": 0, "sequence": 0}
        change(w, p)
        head = window(p.delivery, w["sequence"], [(w["bytes"], w["layer"], w["first"], w["n"], w["part"])] * w.get("times", 1), w["layer"])
        c.send(head, *[bytes(w["bytes"] * w.get("times", 1) if size is None else size)] * frames)
        # What is wrong with it must have been found: this alone ends no delivery.
        c.send(status(p.delivery, 3))
        if w.get("ends"):
            c.send(status(p.delivery, zmtp.FAILED, 5, text=b"enough"))
    return lie


def total_of(p):
    n = -(-p.n_tokens // good.page_tokens) - p.have // good.page_tokens
    return n * good.bytes(0) + good.bytes(1)


def silent(c, p):
    liar.mute = True


def other_delivery(c, p):
    everything(c, type("P", (), {"delivery": p.delivery + 1000, "have": p.have, "choices": 1, "n_tokens": p.n_tokens}), 5)
    c.send(message(zmtp.ABORT, b"", p.delivery + 1))
    c.send(status(p.delivery, zmtp.FAILED, 5, text=b"enough"))


def late(c, p):
    c.send(status(p.delivery, zmtp.FAILED, 5, text=b"enough"))
    everything(c, p, 5)


def another_model(c, p):
    h = zmtp.Hello(liar.ours.frame())
    h.model = bytes(16)
    c.send(h.frame())
    everything(c, p, 5)


def broken(c, p):
    layer, (k, *_) = attention()
    frame = bytearray(window(p.delivery, 0, [(k, layer, 0, 1, 0)], layer))
    frame[44] = 7
    c.send(bytes(frame), bytes(k))


LIES = {
    "it fails with a sentence of control characters": lambda c, p: c.send(status(p.delivery, zmtp.FAILED, 5, text=b"\0\x1b[31m%s%n\xff")),
    "it gives up": lambda c, p: c.send(status(p.delivery, zmtp.FAILED, 5, text=b"enough")),
    "it aborts, which is not its to do": lambda c, p: c.send(message(zmtp.ABORT, b"", p.delivery)) or LIES["it gives up"](c, p),
    "Success without data": lambda c, p: c.send(status(p.delivery, zmtp.SUCCESS, 0, 0, total_of(p), [draw(5)] * p.choices)),
    "Success of windows that never came": lambda c, p: c.send(status(p.delivery, zmtp.SUCCESS, 0, 9, total_of(p), [draw(5)] * p.choices)),
    "Success with other bytes": lambda c, p: c.send(status(p.delivery, zmtp.SUCCESS, 0, 1, 17, [draw(5)] * p.choices)),
    "Success without a token": lambda c, p: everything(c, p, 5, []),
    "more tokens than choices": lambda c, p: everything(c, p, 5, [draw(5)] * (p.choices + 1)),
    "a token outside of the vocabulary": lambda c, p: everything(c, p, vocabulary),
    "a negative token": lambda c, p: everything(c, p, -1),
    "a log-probability that is none": lambda c, p: everything(c, p, 5, [draw(5, float("nan"))] * p.choices),
    "a rank, as a token of the prompt has": lambda c, p: everything(c, p, 5, [draw(5, rank=1)] * p.choices),
    "21 best tokens": lambda c, p: everything(c, p, 5, [draw(5, 0, 21)] * p.choices),
    "a layer that there is not": one_window(lambda w, p: w.update(layer=900)),
    "a part of another kind": one_window(lambda w, p: w.update(part=2, first=0)),
    "a page behind the prompt": one_window(lambda w, p: w.update(first=w["first"] + 4000)),
    "too many pages": one_window(lambda w, p: w.update(n=60, bytes=60 * w["bytes"])),
    "other bytes than a page has": one_window(lambda w, p: w.update(bytes=w["bytes"] + 1)),
    "the same part twice": one_window(lambda w, p: w.update(times=2)),
    "a sequence that cannot be": one_window(lambda w, p: w.update(sequence=1 << 31)),
    "fewer bytes than it lists": one_window(lambda w, p: None, 3),
    "no bytes": one_window(lambda w, p: None, None, 0),
    "three frames": one_window(lambda w, p: w.update(ends=1), None, 2),
    "a window that cannot be read": broken,
    "windows of deliveries that there are not": other_delivery,
    "everything, but too late": late,
    "it leaves": lambda c, p: c.close() or c.sock.shutdown(socket.SHUT_RDWR),
    "bytes that are no frames": lambda c, p: c.raw(rng.randbytes(3000)),
    "it says nothing any more": silent,
    "it is somebody else now": lambda c, p: liar.say_hello(c),
    "it knows nobody": lambda c, p: c.send(message(zmtp.REFUSE, struct.pack("<II", 107, 2) + b"no")),
    "it has another model now, and sends everything": another_model,
    "it refuses": lambda c, p: c.send(message(zmtp.REFUSE, struct.pack("<II", 22, 2) + b"no")),
}


def wait_idle():
    """The liar has told all lies that it was asked for."""
    until, quiet = time.time() + 20, 0
    while quiet < 5 and time.time() < until:
        time.sleep(0.01)
        quiet = 0 if liar.busy else quiet + 1


def meet(ended=False):
    """The liar is a peer. If a lie of the round before ended that, the worker has read all its lies: a REFUSE is the last of them."""
    liar.mute = False
    wait_idle()
    if ended:
        try:
            liar.connection.send(message(zmtp.REFUSE, struct.pack("<II", 22, 4) + b"next"))
            victim.wait_metric("transfer_peers", 0)
        except Closed:
            pass
    until = time.time() + 20
    while victim.metrics()["transfer_peers"] != 1 and time.time() < until:
        try:
            liar.say_hello(liar.connection)
        except Closed:
            pass
        time.sleep(0.1)


ENDS_THE_PEER = ("it leaves", "bytes that are no frames", "it says nothing any more", "it knows nobody",
                 "it has another model now, and sends everything", "it refuses")
before_it = None
for name, lie in LIES.items():
    meet(before_it in ENDS_THE_PEER)
    liar.lie, before_it = lie, name
    asked, before = liar.prepares, victim.metrics()
    begin = time.time()
    got = [plain(a) if isinstance(a, tuple) else a for a in
           parallel([lambda i=i: victim.complete(**body(i, name)) for i in range(N)])]
    m = victim.metrics()
    ok(got == want and liar.prepares > asked and time.time() - begin < 20 and
       m["transfer_received_total"] - before["transfer_received_total"] == (N if "vocabulary" in name else 0),
       f"{name}: answers are right all the same", [(g, w) for g, w in zip(got, want) if g != w][:1] or
       f"{liar.prepares - asked} asked, {time.time() - begin:.1f} s\n" + victim.text()[-1500:])
ok(": it was started again" in victim.text(), "of another process the log says that it was started again", victim.text()[-3000:])
ok(": it does not know this worker any more" in victim.text(), "and of one that has forgotten this worker, that",
   victim.text()[-3000:])
meet(before_it in ENDS_THE_PEER)
liar.pong = struct.pack("<QIBBI", (1 << 64) - 1, 1 << 31, 0, 0, 4096) + rng.randbytes(65536)
time.sleep(3 * BEAT_MS / 1000)
liar.lie = LIES["it gives up"]
same([plain(victim.complete(**body(i, "pong"))) for i in range(N)], want, "endless load and random keys in a PONG")
liar.pong = struct.pack("<QIBBI", 0, 0, 0, 0, 0)

# Changed bytes in right messages.
for i in range(max(1, ROUNDS // 20)):
    meet()

    def mutate(c, p):
        class Spoiled:
            def send(self, *frames):
                f = bytearray(frames[0])
                for _ in range(rng.choice((0, 0, 1))):
                    f[rng.randrange(6, len(f))] = rng.choice((0, 1, 127, 128, 255))
                c.send(bytes(f), *frames[1:])
        everything(Spoiled(), p, vocabulary)
        c.send(status(p.delivery, zmtp.FAILED, 5, text=b"enough"))

    liar.lie = mutate
    got = [plain(a) if isinstance(a, tuple) else a for a in
           parallel([lambda k=k: victim.complete(**body(k, f"mutate {i}")) for k in range(N)])]
    if got != want:
        ok(False, "changed bytes of windows and statuses", [(g, w) for g, w in zip(got, want) if g != w][:1])
        break
else:
    ok(True, "changed bytes of windows and statuses")

meet()
for _ in range(3):
    liar.connection.send(message(zmtp.PONG, bytes(30), version=1))
time.sleep(0.5)
same(victim.text().count("is not understood: the peer speaks version 1"), 1, "a prefill worker of another version is one line of the log")


def meet_and_hush():
    """The liar is a peer, and from now on says only what this test sends: no late answer to a HELLO undoes it."""
    meet()
    liar.mute = True
    time.sleep(0.3)


other = zmtp.Hello(good.frame())
other.role, other.page_tokens = 0, 128
meet_and_hush()
liar.lie = lambda c, p: None
liar.connection.send(other.frame())
ok(victim.wait_metric("transfer_peers", 0) is not None and "tokens of a page are 64 at the decode worker, 128 at the prefill worker" in victim.text(),
   "a prefill worker of another layout is not used, and the log says why", victim.text()[-500:])
meet_and_hush()
n = len(re.findall(r"transfer: tcp://\S+ (is there|refuses)", victim.text()))
for i in range(200):
    liar.connection.send(message(zmtp.REFUSE, struct.pack("<II", 22, 9) + b"no %06d" % i))
    liar.say_hello(liar.connection)
liar.connection.send(message(zmtp.REFUSE, struct.pack("<II", 22, 4) + b"last"))
ok(victim.wait_metric("transfer_peers", 0) is not None, "a prefill worker that refuses and says HELLO in turn", victim.text()[-500:])
n = len(re.findall(r"transfer: tcp://\S+ (is there|refuses)", victim.text())) - n
ok(n <= LINES, "does not flood the log", n)


# ---- prefill workers that are silent: they answer every PING, and no prompt ----

def answered(server, i, salt):
    """Whether the answer is right, and the seconds that it took."""
    begin = time.time()
    try:
        got = plain(server.complete(**body(i, salt)))
    except OSError as e:
        got = repr(e)
    return got == want[i], time.time() - begin


# A peer below may be late with a PONG while it sends a prompt's data. With these heartbeats it is forgotten after 8 s, not 1.6 s.
# Two of them are shorter than the 5 s for which a peer may be silent about a prompt, on which the bounds below rest.
CALM = ("--transfer-heartbeat", "2000")


def silent_peer():
    s = Liar()
    s.lie = lambda c, p: None
    return s


# Meanwhile one sends a prompt's data piece after piece, each within the 5 s that it may be silent, and takes a minute for all.
def drag(c, p):
    pieces = [(x, layer, 0, 1, part) for layer, (*parts, _) in enumerate(good.layers) for part, x in enumerate(parts) if x]
    assert 3.5 * len(pieces) > 50
    threading.Thread(target=say_slowly, args=(c, p, pieces), daemon=True).start()


def say_slowly(c, p, pieces):
    try:
        for i, piece in enumerate(pieces):
            c.send(window(p.delivery, i, [piece], piece[1]), bytes(piece[0]))
            time.sleep(3.5)
    except Closed:
        pass


dragging = silent_peer()
dragging.lie = drag
dragged = decode_worker([dragging.endpoint], *CALM)
ok(dragged.wait_metric("transfer_peers", 1, 60) is not None, "a decode worker finds a slow peer", dragged.text())
dragged_answers = []


def ask_dragged():
    """The second prompt follows at once, because the peer is silent for 30 s only."""
    dragged_answers.append(answered(dragged, 0, "drag"))
    dragged_answers.append((*answered(dragged, 1, "drag"), dragging.prepares))


asking = threading.Thread(target=ask_dragged, daemon=True)
asking.start()

mum = silent_peer()
d = decode_worker([mum.endpoint], *CALM)
ok(d.wait_metric("transfer_peers", 1, 60) is not None, "a decode worker finds a silent peer", d.text())
right, took = answered(d, 1, "silence")
# The speed of the peer is not known. So its time is 5 s, and four times what 70 tokens take at 100 a second.
ok(right and 7 < took < 30 and mum.prepares == 1, "which costs a prompt some seconds", (right, took, mum.prepares, d.text()[-1000:]))
right, took = answered(d, 2, "silence")
ok(right and took < 4 and mum.prepares == 1 and d.metrics()["transfer_peers"] == 0, "and the next prompt none: it is computed here",
   (right, took, mum.prepares))
same(d.text().count("answers PINGs, but no prompt"), 1, "the log says so, once")
mum = silent_peer()
both = decode_worker([mum.endpoint, prefill.endpoint], *CALM)
ok(both.wait_metric("transfer_peers", 2, 60) is not None, "beside a peer that is not", both.text())
right, took = answered(both, 1, "two")
ok(right and 4 < took < 30 and mum.prepares == 1 and both.metrics()["transfer_received_total"] == 1, "the other one is asked then",
   (right, took, mum.prepares, both.text()[-1000:]))
rest = [answered(both, i, "two") for i in (2, 3, 2, 3)]
ok(all(right and took < 4 for right, took in rest) and mum.prepares == 1 and both.metrics()["transfer_received_total"] >= 3,
   "and from then on", (rest, mum.prepares))
for s in (d, both):
    s.stop()
mum = silent_peer()
mum.lie = lambda c, p: everything(c, p, 5)
d = decode_worker([mum.endpoint], *CALM)
ok(d.wait_metric("transfer_peers", 1, 60) is not None, "one that is quick at first", d.text())
d.complete(**{**body(3, "quick"), "max_tokens": 1})  # the zeros that it sends are not computed on
mum.lie = lambda c, p: None
right, took = answered(d, 3, "silence")
ok(right and 4 < took < 15 and mum.prepares == 2 and d.metrics()["transfer_received_total"] == 1,
   "gets less time for 500 tokens than the 25 s of a peer whose speed is not known", (right, took, mum.prepares, d.text()[-1000:]))
d.stop()

# This peer sends its first WINDOW and a STATUS again and again, and so delivers nothing.
mum = silent_peer()


def repeat(c, p):
    layer, (k, *_) = attention()
    frames = (window(p.delivery, 0, [(k, layer, 0, 1, 0)], layer), bytes(k)), (status(p.delivery, 3),)
    until = time.time() + 12
    threading.Thread(target=say_often, args=(c, frames, until), daemon=True).start()


def say_often(c, frames, until):
    try:
        while time.time() < until:
            for f in frames:
                c.send(*f)
            time.sleep(0.1)
    except Closed:
        pass


mum.lie = repeat
d = decode_worker([mum.endpoint], *CALM)
ok(d.wait_metric("transfer_peers", 1, 60) is not None, "one that repeats itself", d.text())
right, took = answered(d, 0, "again")
ok(right and 4 < took < 30 and mum.prepares == 1 and wait_for(lambda: d.text().count("answers PINGs, but no prompt") == 1),
   "is silent too, when nothing new has come in its time", (right, took, mum.prepares, d.text()[-1000:]))
right, took = answered(d, 1, "again")
ok(right and took < 4 and mum.prepares == 1, "and gets no further prompt", (right, took, mum.prepares))
d.stop()

# This peer's PONGs report 500 more queued tokens for each prompt that it was sent, like those of a worker whose engine hangs.
# The deadline of a prompt must not become later with each prompt that follows.
mum = silent_peer()


def count(c, p):
    mum.pong = struct.pack("<QIBBI", 500 * mum.prepares, 1, 0, 0, 0)


mum.lie = count
d = decode_worker([mum.endpoint], *CALM)
ok(d.wait_metric("transfer_peers", 1, 60) is not None, "another one", d.text())


def later(i):
    time.sleep(0.5 * i)
    return answered(d, 3, str(i))


got = parallel([lambda i=i: later(i) for i in range(12)])
ok(all(isinstance(g, tuple) and g[0] and g[1] < 40 for g in got), "prompts that follow each other cost no more than the first", (got, d.text()[-1000:]))
d.stop()

asking.join(120)
(right, took), (right_again, took_again, prepares) = dragged_answers if len(dragged_answers) == 2 else ((False, 0), (False, 0, 0))
# The speed of the peer is not known. So its time is eight times 5 s and what three tokens take.
ok(right and 35 < took < 50 and prepares == 1, "the slow peer costs a prompt no more than eight times the patience",
   (right, took, prepares, dragged.text()[-1000:]))
ok("sends a prompt's data, but not all of them in time" in dragged.text(), "as the log says", dragged.text()[-1000:])
ok(right_again and took_again < 4 and prepares == 1, "and gets no further prompt", (right_again, took_again, prepares))
dragged.stop()

# ---- a connection that breaks behind many messages ----

def last_words(c, p):
    """Sends 900 PONGs and a STATUS, and breaks the connection, while the decode worker is stopped: it finds all of it at once."""
    frames = [message(zmtp.PONG, struct.pack("<Q", 0) + liar.pong)] * 900 + [status(p.delivery, zmtp.FAILED, 5, text=b"enough")]
    d.process.send_signal(signal.SIGSTOP)
    threading.Timer(1, lambda: d.process.send_signal(signal.SIGCONT)).start()
    c.raw(b"".join(bytes([0, len(f)]) + f for f in frames))
    raise Closed


liar = Liar()
d = decode_worker([liar.endpoint], *BEAT)
ok(d.wait_metric("transfer_peers", 1, 60) is not None, "a decode worker finds a peer", d.text())
liar.lie = last_words
ok(answered(d, 3, "last")[0], "which fails", d.text())
ok("it says: enough" in d.text() and d.text().count("the connection to") == 1, "what it said before its connection broke is heard",
   d.text()[-1000:])
d.stop()

askers.stop()
ok(not askers.wrong and askers.n_asked > 10, "all the time an honest decode worker got right answers", askers.wrong[:2])
print(f"#   {askers.n_asked} of them", flush=True)
ok(honest.metrics()["transfer_peers"] == 1 and honest.metrics()["transfer_received_total"] > 0, "and is still registered", honest.text()[-500:])
for s in (honest, victim, prefill):
    ok(all(s.wait_metric(k, 0) is not None for k in ("kv_cache_pages_used", "num_requests_running", "num_requests_waiting")),
       "nothing is left", s.metrics())
for s in (honest, victim, prefill):
    s.stop()
done()
