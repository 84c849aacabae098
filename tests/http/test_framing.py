"""Requests that two programs could read in two ways (RFC 9112) are refused, and their connection is closed."""
import json

from harness import Server, done, ok, raw_connection, same, wait_for

s = Server()
BODY = b'{"prompt": "a", "max_tokens": 1}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def answer(data):
    """(status, body, whether the server closed the connection within a second of silence); 0 and b"" without an answer"""
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
    return (int(got.split(b" ")[1]), got.split(b"\r\n\r\n", 1)[1], closed) if got else (0, b"", closed)


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
# behind a chunked body
for name, trailer in (("one", b"X-Sum: 1\r\n"), ("two", b"X-Sum: 1\r\nX-More: 2\r\n"), ("an empty one", b"X-Sum:\r\n")):
    same(answer(request(b"Transfer-Encoding: chunked\r\n", CHUNKED[:-2] + trailer + b"\r\n"))[0], 200, f"trailers: {name}")
for name, trailer in (("a bare CR", b"X-Sum: a\rb\r\n"), ("a folded one", b"X-Sum: a\r\n b\r\n"), ("a zero byte", b"X-Sum: a\0 b\r\nX: 1\r\n"),
                      ("a space in the name", b"X-Sum : a\r\n"), ("a length", b"Content-Length: 3\r\n"), ("a host", b"Host: a\r\n"),
                      ("a coding", b"Transfer-Encoding: chunked\r\n")):
    refused(f"trailers: {name}", request(b"Transfer-Encoding: chunked\r\n", CHUNKED[:-2] + trailer + b"\r\n"), "trailer")
hidden = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
for name, trailer in (("a colon", b"A: b\r\n: x\r\n"), ("a zero byte", b"\0: x\r\n")):
    got, body, closed = answer(request(b"Transfer-Encoding: chunked\r\n", CHUNKED[:-2] + trailer + hidden))
    ok(closed and b"HTTP/1.1" not in body, f"behind a trailer that begins with {name} no request is read", (got, body, closed))
for method in (b"GET", b"HEAD", b"OPTIONS", b"POST"):
    got, _, closed = answer(method + b" /version HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n" + hidden)
    ok(got == 400 and closed, f"{method.decode()} with Expect and without a body: 400 and closed", (got, closed))
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

# path and query
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
for name, query in (("one argument", b"x=1"), ("100 arguments", b"&".join([b"x"] * 100)), ("no argument", b""), ("16 KiB", b"x" * 16374)):
    same(answer(GET % (b"/version?" + query))[0], 200, f"a query with {name}")
for n in (101, 999, 1000, 1001, 5000, 10000):
    for argument in (b"", b"a", b"a=b", b"="):
        if n * (len(argument) + 1) < 16000:
            refused(f"{n} arguments {argument!r}", GET % (b"/version?" + b"&".join([argument] * n)), f"{n} arguments")
for n in (17, 31, 48, 60):
    for query in (b"?", b"?" + b"&" * 5000, b"/"):
        refused(f"{n} KiB of {query[:2]!r}", GET % (b"/version" + query + b"x" * ((n << 10) - len(query))), "at most 16384", 431)
c = raw_connection(s.port)
c.sendall(b"GET /version?a HTTP/1.1\r\nHo")
c.close()
same(answer(GET % b"/version")[0], 200, "a client that leaves within its headers")

# a zero byte in the request line
HOST = b"Host: localhost\r\n\r\n"
answer(b"GET /version HTTP/1.1\r\nX-Request-Id: the-last-whole-one\r\n" + HOST)
wait_for(lambda: "the-last-whole-one" in s.text())
seen = s.text()
for name, line in (
        ("a path", b"GET /version\0/x HTTP/1.1\r\n"), ("a path, at the end", b"GET /version\0 HTTP/1.1\r\n"),
        ("a path, at the beginning", b"GET \0/version HTTP/1.1\r\n"), ("a path, before a query", b"GET /version\0?x=1 HTTP/1.1\r\n"),
        ("a path, before a long query", b"GET /version\0?" + b"x&" * 2000 + b" HTTP/1.1\r\n"),
        ("a path, with a version behind", b"GET /version\0HTTP/1.1\0/x HTTP/1.1\r\n"),
        ("a path, with a version at the end", b"GET /version\0HTTP/1.1 HTTP/1.1\r\n"),
        ("a path with a blank", b"GET /version \0 HTTP/1.1\r\n"), ("a path, LF alone", b"GET /version\0 HTTP/1.1\n"),
        ("a query", b"GET /version?x=1\0&y HTTP/1.1\r\n"), ("a query, at the end", b"GET /version?x=1\0 HTTP/1.1\r\n"),
        ("an empty query", b"GET /version?\0 HTTP/1.1\r\n"), ("a query, behind '&'", b"GET /version?x&\0 HTTP/1.1\r\n"),
        ("a query's name", b"GET /version?x\0=1 HTTP/1.1\r\n"), ("a long query", b"GET /version?x\0" + b"&x" * 2000 + b" HTTP/1.1\r\n"),
        ("a method", b"GET\0X /version HTTP/1.1\r\n"), ("a method, at the end", b"GET\0 /version HTTP/1.1\r\n"),
        ("a method, behind it", b"GET \0 /version HTTP/1.1\r\n"), ("the method of another", b"GET\0 /version\0 HTTP/1.1\r\n")):
    refused(f"a zero byte in {name}", line + HOST, "zero byte")
refused("no headers, and a line that begins with a zero byte", b"GET /health HTTP/1.0\r\n\0X: a\r\n\r\n", "zero byte")
ok(wait_for(lambda: s.text().count("- - from ") == 19 + seen.count("- - from ")), "their lines in the log have neither", s.text()[-3000:])
ok("/version" not in s.text()[len(seen):], "and no other line has", s.text()[len(seen):])
for line in (b"\0GET /version HTTP/1.1\r\n", b"GET /version HTTP/1.1\0\r\n", b"GET /version HTTP/\0.1\r\n", b"GET /version\0HTTP/1.1\r\n"):
    got, _, closed = answer(line + HOST)
    ok(got in (0, 400) and closed, f"{line[:30]!r}: refused by libmicrohttpd, and closed", (got, closed))
for method in (b"G@T", b"G\x01T", b"\xc3\xa9"):
    refused(f"the method {method!r}", method + b" /version HTTP/1.1\r\n" + HOST, "the method")
same(answer(b"FROB /version HTTP/1.1\r\n" + HOST)[0], 405, "a method that is unknown")

# ends of lines: LF alone is allowed, CR alone is not
same(answer(b"GET /version HTTP/1.1\nHost: localhost\n\n")[0], 200, "LF alone")
for name, data in (
        ("in a value", request(b"X-A: a\rb\r\n" + LENGTH)), ("at the end of a value", request(b"X-A: a\r\r\n" + LENGTH)),
        ("before a value", request(b"X-A: \ra\r\n" + LENGTH)), ("in place of a value", request(LENGTH + b"X-A:\r\r\n")),
        ("as the end of a header", request(b"X-A: a\rX-B: b\r\n" + LENGTH)),
        ("that hides a length", request(b"X-A: a\rContent-Length: 5\r\n" + LENGTH)),
        ("behind a length", request(LENGTH.replace(b"\r\n", b"\r\r\n"))), ("in a host", request(LENGTH, host=b"Host: localhost\r\r\n")),
        ("in the last header, LF alone", request(LENGTH + b"X-A: a\rb\n")),
        ("in a path", b"GET /version\r HTTP/1.1\r\n" + HOST), ("in a query", b"GET /version?a\rb HTTP/1.1\r\n" + HOST),
        ("in a method", b"G\rET /version HTTP/1.1\r\n" + HOST), ("behind the version", b"GET /version HTTP/1.1\r\r\n" + HOST),
        ("before the method", b"\rGET /version HTTP/1.1\r\n" + HOST), ("in a name", request(b"X\rA: a\r\n" + LENGTH)),
        ("at the beginning of a header", request(b"\rX-A: a\r\n" + LENGTH)), ("in a coding", request(b"Transfer-Encoding: chunked\r\r\n", CHUNKED)),
        ("as an end of headers", request(LENGTH + b"\r\r\n"))):
    got, _, closed = answer(data)
    ok(got == 400 and closed, f"CR alone {name}: 400 and closed", (got, closed))
refused("CR alone", request(b"X-A: a\rb\r\n" + LENGTH), "a CR without an LF")

# requests that libmicrohttpd itself refuses
before = s.metrics()["http_malformed_requests_total"]
for name, data in (("NUL in a name", request(b"X-\0K: x\r\n" + LENGTH)), ("no colon", request(b"foo\r\n" + LENGTH)),
                   ("a length that is no number", request(b"Content-Length: +3\r\n")),
                   ("a wrong chunk", request(b"Transfer-Encoding: chunked\r\n", b"zz\r\n"))):
    got, _, closed = answer(data)
    ok(got == 400 and closed, f"{name}: 400 and closed", (got, closed))
same(s.metrics()["http_malformed_requests_total"] - before, 4, "/metrics counts them")
# libmicrohttpd answers with status 500 where a chunk's first line, with its extension, does not fit into its memory.
for name, body in (("the first chunk", b"5;" + b"x" * 70000), ("a later chunk", b"5\r\n     \r\n5;" + b"x" * 70000),
                   ("the last chunk", b"5\r\n     \r\n0;" + b"x" * 70000)):
    got, _, closed = answer(request(b"Transfer-Encoding: chunked\r\n", body))
    ok(got in (413, 500) and closed, f"an extension of 70,000 bytes of {name}: closed", (got, closed))
same(s.metrics()["http_malformed_requests_total"] - before, 7, "and counted")
same(answer(request(b"Transfer-Encoding: chunked\r\n", b"%x;%s\r\n%s\r\n0\r\n\r\n" % (len(BODY), b"x" * 20000, BODY)))[0], 200,
     "one of 20,000 bytes is passed over")

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
