"""ZMTP 3.0 with the NULL mechanism, by hand, and the frames of protocol/transfer/FORMAT.md: for peers that misbehave."""
import socket
import struct
import threading

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)

HELLO, REFUSE, PREPARE, WINDOW, STATUS, ABORT, PING, PONG = range(1, 9)
SUCCESS, FAILED = 4, 5


class Closed(Exception):
    pass


class Connection:
    """One connection; messages are lists of frames. ZMTP's own PINGs are answered."""

    def __init__(self, sock, kind):
        self.sock = sock
        self.lock = threading.Lock()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(GREETING)
        self._take(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        self.raw(bytes([4, len(ready)]) + ready)
        self._frame()

    def raw(self, data):
        with self.lock:
            try:
                self.sock.sendall(data)
            except OSError as e:
                raise Closed(str(e)) from None

    def send(self, *frames):
        out = b""
        for i, f in enumerate(frames):
            more = int(i + 1 < len(frames))
            out += bytes([more, len(f)]) if len(f) < 256 else bytes([more | 2]) + struct.pack(">Q", len(f))
            out += f
        self.raw(out)

    def _take(self, n):
        data = bytearray()
        while len(data) < n:
            try:
                part = self.sock.recv(min(n - len(data), 1 << 20))
            except TimeoutError:
                raise
            except OSError as e:
                raise Closed(str(e)) from None
            if not part:
                raise Closed("the end")
            data += part
        return bytes(data)

    def _frame(self):
        flags = self._take(1)[0]
        size = struct.unpack(">Q", self._take(8))[0] if flags & 2 else self._take(1)[0]
        return flags, self._take(size)

    def receive(self, timeout=60):
        """The next message."""
        self.sock.settimeout(timeout)
        frames = []
        while True:
            flags, body = self._frame()
            if flags & 4:
                if body.startswith(b"\x04PING"):
                    pong = b"\x04PONG" + body[7:]
                    self.raw(bytes([4, len(pong)]) + pong)
                continue
            frames.append(body)
            if not flags & 1:
                return frames

    def close(self):
        self.sock.close()


def call(port, kind=b"DEALER"):
    return Connection(socket.create_connection(("127.0.0.1", port), timeout=20), kind)


# ---- frames ----

def message(kind, fields=b"", delivery=0, version=3, length=None, magic=b"TGNX"):
    return struct.pack("<4sHHIIQ", magic, version, kind, 24 + len(fields) if length is None else length, 0, delivery) + fields


def kind_of(frame):
    return struct.unpack_from("<H", frame, 6)[0]


def delivery_of(frame):
    return struct.unpack_from("<Q", frame, 16)[0]


class Hello:
    def __init__(self, frame):
        self.worker, self.model, self.role, self.n_pages, self.n_slots, self.page_tokens, _, _, self.heartbeat, n = (
            struct.unpack_from("<16s16sIIIIQQII", frame, 24))
        self.layers = [list(struct.unpack_from("<QQQI", frame, 96 + 28 * i)) for i in range(n)]

    def bytes(self, in_states):
        """Of a page (0) or of a state (1), over all layers: [part 0, part 1, part 2, bit i: part i is kept in states]."""
        return sum(x for *parts, states in self.layers for i, x in enumerate(parts) if states >> i & 1 == in_states)

    def frame(self):
        return message(HELLO, struct.pack("<16s16sIIIIQQII", self.worker, self.model, self.role, self.n_pages, self.n_slots,
                                          self.page_tokens, self.bytes(0), self.bytes(1), self.heartbeat, len(self.layers)) +
                       b"".join(struct.pack("<QQQI", *layer) for layer in self.layers))


def prepare(delivery, tokens, have=0, choices=1, ends=(), boundaries=(), salt=0, min_tokens=0, mask=(), biases=()):
    return message(PREPARE, struct.pack("<IIIiQQQfffifffBBBIIIII", have, choices, min_tokens, 0, salt, salt, 1, 0, 1, 0, 0, 0, 0, 1, 0,
                                        0, 0, len(tokens), len(ends), len(boundaries), len(mask), len(biases)) +
                   struct.pack(f"<{len(tokens)}i{len(ends)}i{len(boundaries)}I{len(mask)}I", *tokens, *ends, *boundaries, *mask) +
                   b"".join(struct.pack("<if", *b) for b in biases), delivery)


class Prepare:
    def __init__(self, frame):
        self.delivery = delivery_of(frame)
        self.have, self.choices = struct.unpack_from("<II", frame, 24)
        self.n_tokens = struct.unpack_from("<I", frame, 95)[0]


def window(delivery, sequence, pieces, first_layer=0, n_layers=1, tokens=(0, 1)):
    """pieces: (bytes, layer, first, n, part)"""
    return message(WINDOW, struct.pack("<IIIIII", sequence, *tokens, first_layer, n_layers, len(pieces)) +
                   b"".join(struct.pack("<QIIII", *p) for p in pieces), delivery)


def draw(token, logprob=0.0, n_top=0, rank=0):
    return struct.pack("<ifII", token, logprob, rank, n_top) + bytes(160)


def status(delivery, what, code=0, windows=0, total=0, draws=(), text=b"", cached=0):
    return message(STATUS, struct.pack("<IIIIQII", what, code, cached, windows, total, len(draws), len(text)) +
                   b"".join(draws) + text, delivery)


def failed(frame):
    """(errno, sentence) of a STATUS that is Failed, or of a REFUSE."""
    if kind_of(frame) == REFUSE:
        code, n = struct.unpack_from("<II", frame, 24)
        return code, frame[32:32 + n].decode()
    what, code = struct.unpack_from("<II", frame, 24)
    return (code, frame[56:].decode()) if what == FAILED else None
