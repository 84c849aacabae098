"""Requests that two programs could read in two ways (RFC 9112) are refused, and their connection is closed."""
import json

from harness import Server, done, ok, raw_connection, same

s = Server()
BODY = b'{"prompt": "a", "max_tokens": 1}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def answer(data):
    """(status, body, whether the server closed the connection within a second of silence)"""
    c = raw_connection(s.port)
    c.sendall(data)
    c.settimeout(1)
    got = b""
    closed = False
    try:
        while not closed:
            piece = c.recv(65536)
            closed = not piece
            got += piece
    except TimeoutError:
        pass
    c.close()
    return int(got.split(b" ")[1]), got.split(b"\r\n\r\n", 1)[1], closed


def request(headers, body=BODY, version=b"1.1", host=b"Host: localhost\r\n"):
    return b"POST /v1/completions HTTP/" + version + b"\r\n" + host + headers + b"\r\n" + body


def refused(name, data, want, status=400):
    got, body, closed = answer(data)
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError):
        message = body.decode()
    ok(got == status and closed and want in message, f"{name}: {status} and closed", (got, message, closed))


for name, data in (
        ("one length", request(LENGTH)), ("chunked", request(b"Transfer-Encoding: Chunked\r\n", CHUNKED)),
        ("HTTP/1.0 without a host", b"GET /health HTTP/1.0\r\n\r\n"),
        ("every mark in a name", request(b"!#$%&'*+-.^_`|~09azAZ: x\r\n" + LENGTH)),
        ("a content coding that is none", request(b"Content-Encoding: identity\r\n" + LENGTH))):
    same(answer(data)[0], 200, name)

refused("two lengths, equal", request(LENGTH * 2), "2 Content-Length")
refused("two lengths, other", request(LENGTH + b"Content-Length: 5\r\n"), "2 Content-Length")
refused("length and coding", request(LENGTH + b"Transfer-Encoding: chunked\r\n", CHUNKED), "Content-Length and a Transfer-Encoding")
for coding in (b"gzip, chunked", b"chunked, chunked", b"identity", b"xchunked", b"chunked;q=1", b""):
    refused(f"coding {coding.decode()!r}", request(b"Transfer-Encoding: " + coding + b"\r\n", CHUNKED), "Transfer-Encoding")
refused("two codings", request(b"Transfer-Encoding: chunked\r\n" * 2, CHUNKED), "Transfer-Encoding")
refused("a coding with HTTP/1.0", request(b"Transfer-Encoding: chunked\r\n", CHUNKED, b"1.0"), "Transfer-Encoding")
for name in (b"Content-Length ", b"Content-Length\t", b" Content-Length", b"Transfer-Encoding ", b"X(a)", b"X@", b"\xc3\xa9", b"X\x01"):
    refused(f"the name {name!r}", request(name + b": 3\r\n"), "name")
refused("a folded length", request(b"Content-Length: 3\r\n 2\r\n"), "several lines")
refused("a folded coding", request(b"Transfer-Encoding:\r\n chunked\r\n", CHUNKED), "several lines")
for name, lines in (("a word more", b"X-A: a\r\n b\r\n"), ("a blank more", b"X-A: a\r\n \r\n"), ("three lines", b"X-A: a\r\n\tb\r\n c\r\n"),
                    ("blanks before", b"X-A:      a\r\n b\r\n"), ("no value before", b"X-A:\r\n b\r\n")):
    for more in (b"", b"X-B: b\r\n" * 500):
        refused(f"a folded header, {name}, {len(more)} bytes behind", request(lines + LENGTH + more), "several lines")
        refused(f"the last header, {len(more)} bytes before", request(LENGTH + more + lines), "several lines")
ZERO = b"Content-Length: %d\0" % len(BODY)
for name, lines in (("a length", ZERO + b" 5\r\n"), ("a length, at the end", ZERO + b"\r\n"),
                    ("another value", b"X-A: a\0b\r\n" + LENGTH), ("two of them, LF alone", b"X-A: a\0\0\n" + LENGTH)):
    refused(f"a zero byte in {name}", request(lines), "zero byte")
    refused(f"a zero byte in {name}, not the last", request(lines + b"X-B: b\r\n"), "zero byte")
refused("a zero byte in the last header, LF alone", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\0" b"5\n\n" + BODY,
        "zero byte")
refused("a zero byte in a coding", request(b"Transfer-Encoding: chunked\0\r\n", CHUNKED), "zero byte")
refused("a zero byte in a host", request(LENGTH, host=b"Host: localhost\0.example.org\r\n"), "zero byte")
same(answer(request(LENGTH.replace(b"\r", b"") + b"X-A:\nX-B: \t b \t\r\nX-C:c\n"))[0], 200, "LF alone, no value, blanks around one")
refused("no host", request(LENGTH, host=b""), "0 Host")
refused("two hosts", request(LENGTH, host=b"Host: localhost\r\nHost: [::1]\r\n"), "2 Host")
refused("gzip", request(b"Content-Encoding: gzip\r\n" + LENGTH), "Content-Encoding", 415)
for n in (33, 40, 48):
    refused(f"{n} KiB of headers", request(b"X-A: " + b"a" * (n << 10) + b"\r\n" + LENGTH), "at most 32768", 431)
same(answer(request(b"X-A: " + b"a" * (31 << 10) + b"\r\n" + LENGTH))[0], 200, "31 KiB of headers")
refused("GET, too", b"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: [::1]\r\n\r\n", "2 Host")
refused("OPTIONS, too", b"OPTIONS /version HTTP/1.1\r\n\r\n", "0 Host")
refused("an unknown path, too", b"GET /nothing HTTP/1.1\r\n\r\n", "0 Host")

# requests that libmicrohttpd itself refuses
before = s.metrics()["http_malformed_requests_total"]
for name, data in (("NUL in a name", request(b"X-\0K: x\r\n" + LENGTH)), ("no colon", request(b"foo\r\n" + LENGTH)),
                   ("a length that is no number", request(b"Content-Length: +3\r\n")),
                   ("a wrong chunk", request(b"Transfer-Encoding: chunked\r\n", b"zz\r\n"))):
    got, _, closed = answer(data)
    ok(got == 400 and closed, f"{name}: 400 and closed", (got, closed))
same(s.metrics()["http_malformed_requests_total"] - before, 4, "/metrics counts them")

# smuggling: the second request must not be answered
inner = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
c = raw_connection(s.port)
c.sendall(request(b"Content-Length : %d\r\n" % len(inner), inner))
c.settimeout(1)
got = b""
while piece := c.recv(65536):
    got += piece
ok(b"version" not in got and got.count(b"HTTP/1.1 ") == 1, "a request in a body whose length is hidden is not answered", got)
s.stop()
done()
