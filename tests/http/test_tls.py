"""TLS: the same answers as without it, certificates that change while the server runs, clients that are slow, leave or speak
something else within the handshake."""
import hashlib
import http.client
import json
import os
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import warnings

from harness import MODEL, TIGOND, Server, done, ok, raw_post, same, wait_for

# The server has 416 connections then, and one address may have 52 that wait.
DESCRIPTORS = 512
resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
TIGON = os.path.abspath(sys.argv[2])
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
LONG = {"messages": [{"role": "user", "content": "tell me everything"}], "ignore_eos": True, "temperature": 0}
folder = tempfile.TemporaryDirectory(prefix="tigon-tls-")
CERT, KEY = os.path.join(folder.name, "cert.pem"), os.path.join(folder.name, "key.pem")


def make_pair(name, kind=("ec", "-pkeyopt", "ec_paramgen_curve:P-256")):
    """Makes a certificate for localhost that signs itself. Its file and its key's."""
    paths = [os.path.join(folder.name, f"{name}.{x}") for x in ("cert", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "9", "-subj",
                    f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
                   check=True, stderr=subprocess.DEVNULL)
    return paths


def use(cert, key):
    """Puts the files in the place of the server's."""
    for source, target in (cert, CERT), (key, KEY):
        with open(source, "rb") as f, open(target + ".new", "wb") as to:
            to.write(f.read())
        os.chmod(target + ".new", 0o600)
        os.rename(target + ".new", target)


def client(ca, **settings):
    context = ssl.create_default_context(cafile=ca)
    for name, value in settings.items():
        setattr(context, name, value)
    return context


class TlsServer(Server):
    """A server whose clients trust the certificate at `ca`."""
    ca = None

    def connect(self, timeout=60, port=None):
        return http.client.HTTPSConnection("localhost", port or self.port, timeout=timeout, context=client(self.ca))


def connect(port, context=None, **settings):
    c = socket.create_connection(("127.0.0.1", port), timeout=60)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return (context or client(TlsServer.ca, **settings)).wrap_socket(c, server_hostname="localhost", suppress_ragged_eofs=False)


def fails(port, context):
    """Whether no connection can be made."""
    try:
        connect(port, context).close()
    except (ssl.SSLError, ConnectionResetError):
        return True
    return False


def serial(port, ca):
    """The name in the server's certificate, which `ca` must have signed."""
    c = connect(port, client(ca))
    name = dict(x[0] for x in c.getpeercert()["subject"])["commonName"]
    c.close()
    return name


def read_to_end(c):
    data = b""
    while piece := c.recv(65536):
        data += piece
    return data


first, second, third = (make_pair(x) for x in ("first", "second", "third"))
use(*first)
TlsServer.ca = first[0]

# ---- options ----

loose = os.path.join(folder.name, "loose.key")
with open(first[1]) as f, open(loose, "w") as to:
    to.write(f.read())
os.chmod(loose, 0o644)
os.chmod(second[0], 0o600)
for args, want in ((["--tls-cert", CERT], "--tls-cert needs --tls-key FILE"), (["--tls-key", KEY], "--tls-key needs --tls-cert FILE"),
                   (["--tls-cert", CERT, "--tls-key", second[1]], f"it is not the key of the certificate in {CERT}"),
                   (["--tls-cert", CERT, "--tls-key", loose], "others may read it (mode 644); chmod 600 it"),
                   (["--tls-cert", KEY, "--tls-key", KEY], f"--tls-cert: {KEY}: there is no certificate in PEM"),
                   (["--tls-cert", CERT, "--tls-key", second[0]], f"--tls-key: {second[0]}: there is no key in PEM without a password"),
                   (["--tls-cert", CERT + "x", "--tls-key", KEY], f"--tls-cert: {CERT}x: cannot open: No such file")):
    r = subprocess.run([TIGOND, "--model", MODEL, "--port", "0", *args], capture_output=True, text=True, timeout=60)
    text = r.stderr.strip()
    ok(r.returncode == 1 and want in text and text.count("\n") == 0, want, text)

s = TlsServer("--tls-cert", CERT, "--tls-key", KEY, "--admin-port", "0", "--trusted-proxy", "10.0.0.1", "--max-body", "65536",
              env={"FAKE_STEP_US": "4000"})
s.admin_port = int(s.text().split("--admin-port: ")[1].split("port ")[1].split()[0])
ok(wait_for(lambda: f"https://127.0.0.1:{s.port}" in s.text(), 10) and f"{CERT}: the certificate is valid until" in s.text(),
   "the log names https", s.text())

# ---- answers ----

c = s.connect()
for i in range(3):
    c.request("POST", COMPLETE, json.dumps({"prompt": [5] * 20, "max_tokens": 9, "ignore_eos": True}), {"Content-Type": "application/json"})
    r = c.getresponse()
    same((r.status, json.loads(r.read())["usage"]["completion_tokens"]), (200, 9), f"answer {i} of a connection")
same((c.sock.version(), c.sock.cipher()[0].split("_")[0]), ("TLSv1.3", "TLS"), "TLS 1.3")
c.close()
events = s.stream(COMPLETE, {"prompt": [5] * 20, "max_tokens": 50, "ignore_eos": True})
ok(len(events) > 10 and events[-1] == "[DONE]", "a stream", events[-2:])
status, body = s.post("/detokenize", {"tokens": [300] * 8000})
ok(status == 200 and len(body["prompt"]) >= 8000, "a long answer", (status, len(str(body))))
status, body = s.post("/tokenize", {"prompt": "a b " * 15000})
ok(status == 200 and body["count"] >= 30000, "and a longer one", status)
same(s.request("POST", COMPLETE, b" " * 70000, {"Content-Type": "application/json"})[0], 413, "a body that is too large")
c = connect(s.port)
c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
for _ in range(70):
    c.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
ok(read_to_end(c).startswith(b"HTTP/1.1 413 "), "one that is far too large: the answer comes within the body, and ends with close_notify")
c.close()
c = connect(s.port)
c.sendall(b"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: 73\r\n\r\n"
          + json.dumps({"prompt": [5], "max_tokens": 20, "ignore_eos": True, "stream": True}).encode().ljust(73))
answer = read_to_end(c)
ok(answer.endswith(b"data: [DONE]\n\n") and b"chunked" not in answer, "HTTP/1.0: an answer that ends with close_notify", answer[-200:])
c.close()
c = connect(s.port)
c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n")
ok(read_to_end(c).startswith(b"HTTP/1.1 400 "), "framing is checked")
c.close()
same(s.metrics()["http_tls_handshakes_failed_total"], 0, "--admin-port has TLS as well, and no handshake has failed")

# ---- tigon ----

admin = f"https://localhost:{s.admin_port}"
for args, status, want in ((["--url", admin, "--tls-ca", CERT], 0, "pages"), (["--url", f"https://127.0.0.1:{s.admin_port}/", "--tls-ca", CERT], 0, "pages"),
                           (["--url", admin], 1, "--tls-ca FILE names certificates to trust"),
                           (["--url", admin, "--tls-ca", second[0]], 1, "NOT trusted"),
                           (["--url", f"https://127.0.0.2:{s.admin_port}", "--tls-ca", CERT], 1, "cannot connect to the server: Connection refused"),
                           (["--url", admin, "--tls-ca", KEY], 1, f"--tls-ca: {KEY}: there is no certificate in PEM"),
                           (["--url", "http://localhost:1", "--tls-ca", CERT], 1, "--tls-ca is for an --url with https://"),
                           (["--url", f"http://localhost:{s.admin_port}"], 1,
                            'status 400: the answer is not tigond\'s: "This port is for TLS: the URL is https://HOST:PORT/"')):
    r = subprocess.run([TIGON, "cache", *args], capture_output=True, text=True, timeout=60)
    ok(r.returncode == status and want in r.stdout + r.stderr, f"tigon cache {' '.join(args)}: {want}", r.stdout + r.stderr)
r = subprocess.run([TIGON, "bench", "serve", "--url", f"https://localhost:{s.port}", "--tls-ca", CERT, "--concurrency", "4", "--requests", "8",
                    "--max-tokens", "5", "--ignore-eos", "--json"], capture_output=True, text=True, timeout=60)
ok(r.returncode == 0 and '"failed": 0' in r.stdout.replace('"failed":0', '"failed": 0'), "tigon bench serve", r.stdout + r.stderr)

# ---- versions ----

old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
old.set_ciphers("ALL:@SECLEVEL=0")
warnings.simplefilter("ignore", DeprecationWarning)
old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
ok(fails(s.port, old), "TLS 1.1 is refused")
weak = client(TlsServer.ca, maximum_version=ssl.TLSVersion.TLSv1_2)
weak.set_ciphers("ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384:@SECLEVEL=0")
ok(fails(s.port, weak), "ciphers without authentication are refused")
both = client(TlsServer.ca, maximum_version=ssl.TLSVersion.TLSv1_2)
both.set_alpn_protocols(["h2", "http/1.1"])
c = connect(s.port, both)
same((c.version(), c.selected_alpn_protocol()), ("TLSv1.2", "http/1.1"), "TLS 1.2, and HTTP/1.1 by ALPN")
c.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
ok(read_to_end(c).startswith(b"HTTP/1.1 200 "), "which is answered")
c.close()

# ---- clients that leave ----


def start(extra):
    c = connect(s.port)
    c.sendall(raw_post(CHAT, {**LONG, **extra}))
    return c


def read_some(c):
    while c.recv(4096).count(b"data:") < 1:
        pass


def half(c):
    """Ends the client's half of the connection below TLS."""
    socket.socket.shutdown(c, socket.SHUT_WR)


for name, extra, leave in (("a whole answer", {}, lambda c: c.close()), ("a stream", {"stream": True}, lambda c: (read_some(c), c.close())),
                           ("half of the connection", {}, half)):
    c = start(extra)
    running = s.wait_metric("num_requests_running", 1)
    leave(c)
    took = s.wait_metric("num_requests_running", 0)
    ok(running is not None and took is not None and took < 2, f"{name}: the client leaves, and its pages are free", took)
    c.close()

# The client says that it sends nothing more (close_notify), and reads on. It gets the answer, unless libmicrohttpd looks for more
# of the request before it writes: then it gets nothing.
plain = socket.create_connection(("127.0.0.1", s.port), timeout=60)
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = client(TlsServer.ca).wrap_bio(incoming, outgoing, server_hostname="localhost")


def drive(step):
    """The result of a step, for which bytes are sent and received as it wants."""
    while True:
        try:
            got = step()
            plain.sendall(outgoing.read())
            return got
        except ssl.SSLWantReadError:
            plain.sendall(outgoing.read())
            piece = plain.recv(65536)
            if not piece:
                return b""
            incoming.write(piece)


drive(tls.do_handshake)
drive(lambda: tls.write(raw_post(COMPLETE, {"prompt": [5], "max_tokens": 30, "ignore_eos": True}, "Connection: close\r\n")))
try:
    tls.unwrap()
except ssl.SSLWantReadError:
    plain.sendall(outgoing.read())
got = b""
while True:
    try:
        piece = drive(lambda: tls.read(65536))
    except (ssl.SSLZeroReturnError, ConnectionResetError):  # the second, because the server has not read close_notify
        break
    got += piece
took = s.wait_metric("num_requests_running", 0)
ok(took is not None and (not got or b'"completion_tokens":30' in got), "after close_notify of the client the answer comes, or none", got[-300:])
plain.close()

# ---- a KeyUpdate and a request in one segment ----

listener = socket.create_server(("127.0.0.1", 0))
peer = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{listener.getsockname()[1]}", "-CAfile", CERT], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
near, far = listener.accept()[0], socket.create_connection(("127.0.0.1", s.port), timeout=60)


def relay(seconds):
    """Passes bytes on in both directions until there were none for so long."""
    while ready := select.select([near, far], [], [], seconds)[0]:
        for c in ready:
            data = c.recv(65536)
            if not data:
                return
            (far if c is near else near).sendall(data)


relay(0.5)
peer.stdin.write(b"K\n")  # openssl's command for it
peer.stdin.flush()
update = near.recv(65536)
peer.stdin.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
peer.stdin.flush()
far.sendall(update + near.recv(65536))
relay(5)
for c in near, far, listener:
    c.close()
got = peer.communicate(timeout=60)[0]
ok(b"KEYUPDATE" in got and b"HTTP/1.1 200 " in got, "the request is answered", got[-300:])

# ---- no TLS, and silence ----

c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
ok(read_to_end(c).startswith(b"HTTP/1.1 400 ") and s.get("/health")[0] == 200, "plain HTTP gets an answer that says so, in plain")
c.close()
failed = s.metrics()["http_tls_handshakes_failed_total"]
ok(failed >= 3, "handshakes that failed are counted", failed)


def hello():
    """The first message of a client's handshake."""
    out = ssl.MemoryBIO()
    try:
        client(TlsServer.ca).wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return out.read()


HELLO = hello()
for name, want in (("localhost", None), ("a-1.example", None), ("my_host", "TLSV1_UNRECOGNIZED_NAME"), ("my host", "TLSV1_UNRECOGNIZED_NAME")):
    other = client(TlsServer.ca, check_hostname=False)
    c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    try:
        reason = other.wrap_socket(c, server_hostname=name) and None
    except ssl.SSLError as e:
        reason = e.reason
    c.close()
    same(reason, want, f"the server name {name}")
same(s.text().count('asks for the server name "my_host"'), 1, "the log says why")
c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
c.sendall(HELLO)
answer = b""
while len(answer) <= 500 and (piece := c.recv(4096)):  # its records may come one by one
    answer += piece
ok(answer[:1] == b"\x16" and len(answer) > 500 and hashlib.sha256(b"HelloRetryRequest").digest() not in answer,
   "one message of a client suffices", answer[:100])
c.close()
for name, data in (("nothing", b""), ("a byte", HELLO[:1]), ("half of its first message", HELLO[:100]), ("its first message", HELLO),
                   ("garbage in a record", b"\x16\x03\x01\x00\x10" + b"x" * 16), ("a record that is too long", b"\x16\x03\x01\xff\xff" + b"x" * 500),
                   ("a message that is too long", b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"x" * 16380)):
    c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    c.sendall(data)
    c.close()
    ok(s.get("/health")[0] == 200, f"a client that leaves after {name}")


def cpu():
    """Seconds of CPU time that the server has used."""
    with open(f"/proc/{s.process.pid}/stat") as f:
        return sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")


held = []
for i in range(200):
    c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    c.sendall((b"", HELLO[:1], HELLO[:100], HELLO)[i % 4])
    held.append(c)
same([s.get("/health")[0] for _ in range(3)], [200] * 3, "200 handshakes that do not go on: others are served")
for _ in range(3):
    held.append(connect(s.port))
    socket.socket.send(held[-1], b"\x17\x03\x03\x10\x00x")  # the beginning of a record
before = cpu()
time.sleep(1)
used = cpu() - before
ok(used < 0.2, f"and the server sleeps meanwhile ({used:.2f} s of CPU time)")


def is_closed(c):
    c = socket.socket(fileno=os.dup(c.fileno()))
    c.settimeout(0)
    try:
        while piece := c.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


wait_for(lambda: sum(is_closed(c) for c in held) >= 140, 5)
n_closed = sum(is_closed(c) for c in held)
ok(140 <= n_closed <= 155, f"of one address only some may wait: {n_closed} were closed")

# ---- certificates that change ----

use(*second)
ok(wait_for(lambda: "cert.pem has changed: the certificate is valid" in s.text(), 10), "a new pair is read", s.text()[-500:])
TlsServer.ca = second[0]
old_stream = start({"stream": True, "max_tokens": 600})
read_some(old_stream)
same(serial(s.port, second[0]), "second", "new connections get it")
use(*third)
ok(wait_for(lambda: s.text().count("has changed") == 2, 10), "another one while a stream runs")
same([serial(p, third[0]) for p in (s.port, s.admin_port)], ["third"] * 2, "at both ports")
TlsServer.ca = third[0]
rest = b""
while b"[DONE]" not in rest:
    rest += old_stream.recv(65536)
ok(rest.count(b"data:") > 10, "the stream goes on to its end")
old_stream.close()
use(third[0], first[1])
ok(wait_for(lambda: "it is not the key of the certificate" in s.text(), 10), "another key: a sentence says so")
same(serial(s.port, third[0]), "third", "and the earlier pair stays in use")
line = [x for x in s.text().splitlines() if "is not the key" in x]
ok(len(line) == 1 and line[0].endswith("; the earlier certificate stays in use"), "once", line)
os.remove(KEY)
ok(wait_for(lambda: "No such file" in s.text(), 10) and serial(s.port, third[0]) == "third", "the key is gone: as well")
use(*first)
ok(wait_for(lambda: s.text().count("has changed") == 3, 10) and serial(s.port, first[0]) == "first", "a good pair again")

# ---- many handshakes at once ----

use(*make_pair("slow", ("rsa:3072",)))  # a handshake of 2 ms
ok(wait_for(lambda: s.text().count("has changed") == 4, 10), "a key that takes long")
for c in held:
    c.close()
held = [socket.create_connection(("127.0.0.1", s.port), timeout=60, source_address=(f"127.0.0.{2 + i % 3}", 0)) for i in range(120)]
s.process.send_signal(signal.SIGSTOP)  # so that all of them come at once
for c in held:
    c.sendall(HELLO)
s.process.send_signal(signal.SIGCONT)
answers = [c.recv(1) for c in held]
ok(answers == [b"\x16"] * len(held), "120 handshakes at once: all are answered", answers)
TlsServer.ca = os.path.join(folder.name, "slow.cert")
same(s.get("/health")[0], 200, "as is another client")
delayed = s.metrics()["http_tls_handshakes_delayed_total"]
ok(delayed > 0, f"some have waited for their turn: {delayed}")
s.stop("the server ends with handshakes that do not go on")
done()
