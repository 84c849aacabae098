"""Clients that do not finish their requests: clients that leave or stall, and too many connections."""
import os
import resource
import socket
import time

from harness import Server, done, ok, raw_connection, same, wait_for

# The daemon keeps 64 descriptors for other uses than connections. An eighth of its connections may wait from one address.
DESCRIPTORS = 600
MOST = DESCRIPTORS - 64
SHARE = MOST // 8
resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def open_sockets(s):
    """The number of sockets among the server's descriptors. (/proc/net/tcp is no snapshot: while sockets of other programs come
    and go, rows of this server may be missing there, or be there twice.)"""
    folder, n = f"/proc/{s.process.pid}/fd", 0
    for name in os.listdir(folder):
        try:
            n += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            pass
    return n


def sockets(s):
    """The number of connections that the server has."""
    return open_sockets(s) - LISTENING


def received(s):
    """Whether the server has read all bytes that clients sent, as /proc/net/tcp shows the queues of both sides."""
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return all(row[4] == "00000000:00000000" for row in rows
               if row[3] == "01" and s.port in (int(row[k].split(":")[1], 16) for k in (1, 2)))


def connect(s, address="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", s.port), source_address=(address, 0))


def head(n, path="/v1/completions"):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {n}\r\n\r\n".encode()


s = Server("--max-body", "256K", "--trusted-proxy", "127.0.0.1")
wait_for(lambda: open_sockets(s) == 1)  # the last one that asked whether it is ready has gone
LISTENING = open_sockets(s)

# clients that leave within a request
for name, data, half in (
        ("within a body", head(100000) + b"{" * 50, False), ("within a body, half", head(100000) + b"{" * 50, True),
        ("within a large body, half", head(200000) + b"{" * 150000, True), ("within the headers", head(5)[:40], False),
        ("within the headers, half", head(5)[:40], True), ("without a byte, half", b"", True)):
    clients = []
    for i in range(20):
        c = connect(s)
        c.sendall(data)
        if i % 2:
            time.sleep(0.005)
        if half:
            c.shutdown(socket.SHUT_WR)
            clients.append(c)
        else:
            c.close()
    ok(wait_for(lambda: sockets(s) == 0, 10), f"20 clients that leave {name}: no connection stays", sockets(s))
    for c in clients:
        c.close()
c = connect(s)
c.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
c.shutdown(socket.SHUT_WR)
ok(c.recv(1000).startswith(b"HTTP/1.1 200"), "a whole request whose client shuts down its half is answered")
c.close()

# Bodies whose last bytes come slowly: further large ones are refused, small ones are not, and memory is free again soon.
SLOW = 2000  # the bytes that are left
stalled = []
for n in (8, 9):  # large bodies have memory for eight times --max-body, those of a client for four times
    stalled += [connect(s) for _ in range(n)]
    for c in stalled[-n:]:
        c.sendall(head(256 << 10) + b" " * ((256 << 10) - SLOW))
    wait_for(lambda: received(s))
begin = time.time()
refused = []
wait_for(lambda: refused.append(s.post("/v1/completions", b" " * 200000)) or refused[-1][0] == 429)
ok(refused[-1][0] == 429 and refused[-1][1]["error"]["code"] == "body_memory_full"
   and "large bodies" in refused[-1][1]["error"]["message"], "a large body beside 17 that stall: 429", refused[-1])
same(s.complete("a", max_tokens=1)[0], 200, "a small one is served")
c = connect(s, "127.0.0.2")
c.sendall(head(200000) + b" " * 200000)
same(c.recv(1000).split(b" ")[1], b"400", "and another client's large one is read")
c.close()


def large_is_read():
    """Sends one byte more of each slow body, and asks whether a large one is read."""
    for c in stalled:
        try:
            c.send(b" ")
        except OSError:
            pass  # cut
    return s.post("/v1/completions", b" " * 200000)[0] == 400


ok(wait_for(large_is_read) and time.time() < begin + 15, "soon those that send a byte now and then have made room",
   time.time() - begin)
ok(wait_for(lambda: sockets(s) == 0, 60), "bodies that stall are cut", sockets(s))
same(s.post("/v1/completions", b" " * 200000)[0], 400, "and a large body is read again")

# Bodies that begin while there is memory, and together grow beyond it. A client has memory for four of 256 KiB.
growing = [connect(s) for _ in range(24)]
codes = {c: "sending" for c in growing}
for data in (head(256 << 10) + b" " * 70000, b" " * ((256 << 10) - 70001), b" "):
    for c in growing:
        try:
            c.sendall(data)
        except OSError:
            codes[c] = "cut"  # may happen on a slow machine
    time.sleep(0.5)
for c in growing:
    try:
        codes[c] = c.recv(1000).split(b" ")[1]
    except (OSError, IndexError):
        codes[c] = "cut"
    c.close()
ok(list(codes.values()).count(b"400") <= 5, "bodies that grow together are refused, too", list(codes.values()))
ok(wait_for(lambda: s.post("/v1/completions", b" " * 200000)[0] == 400), "and make room")

# However much a client sends, there is memory for as much of another one.
t = Server("--max-body", "1M", "--trusted-proxy", "127.0.0.1")
MANY, SIZE = 10, 1000000
codes = []
for address, n in ("127.0.0.1", MANY), ("127.0.0.2", 3):
    sent = [connect(t, address) for _ in range(n)]
    for c in sent:
        c.sendall(head(SIZE) + b" " * (SIZE - 1))
    wait_for(lambda: received(t))
    codes.append(sent)
same(t.metrics()["body_bytes"] // SIZE, 6, "the bytes of large bodies are a metric: four of a client, three of another one")
codes = [[c.recv(1000).split(b" ")[1] for c in sent if c.send(b" ")] for sent in codes]
same([n.count(b"400") for n in codes], [4, 3], "a client has memory for four times --max-body, another one for as much")
same([n.count(b"429") for n in codes], [MANY - 4, 0], "the others are refused")
same(t.metrics()["body_bytes"], 0, "nothing is left")
t.stop()

# a body that comes byte by byte
c = connect(s)
body = b'{"prompt": "a", "max_tokens": 1}'
c.sendall(head(len(body) + 30))
for i in range(30):
    c.sendall(b" ")
    time.sleep(0.02)
c.sendall(body)
ok(c.recv(1000).startswith(b"HTTP/1.1 200"), "a body that comes byte by byte is read")
c.close()

# too many connections of one address
crowd = [connect(s, "127.0.0.2") for _ in range(SHARE + 50)]
ok(wait_for(lambda: sockets(s) == SHARE), f"an address has {SHARE} connections that wait", sockets(s))
same([crowd[0].recv(1), crowd[49].recv(1)], [b"", b""], "those that waited longest are closed")
crowd[-1].sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
ok(crowd[-1].recv(1000).startswith(b"HTTP/1.1 200"), "the last one is answered")
for c in crowd:
    c.close()
wait_for(lambda: sockets(s) == 0)

# too many connections altogether, from a trusted address
crowd = [connect(s) for _ in range(MOST - 50)]
# When more connections are made at once than the listener's queue holds, the system completes some of them late.
reached = wait_for(lambda: sockets(s) == MOST - 50)
time.sleep(0.5)
ok(reached and sockets(s) == MOST - 50, "a trusted address may have more", (reached, sockets(s)))
idle = []
for _ in range(60):
    c = connect(s)
    c.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
    c.settimeout(10)
    if not c.recv(1000).startswith(b"HTTP/1.1 200"):
        break
    idle.append(c)
same(len(idle), 60, "when connections run out, those that waited longest make room")
for c in crowd + idle:
    c.close()
s.stop()
done()
