"""Which requests are allowed: spellings of paths, names of hosts, pages of web sites, keys, the admin listener, /abort. Also
files and directories that other users can read or write."""
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

from harness import MODEL, TIGOND, Server, done, ok, parse_events, raw_connection, same, wait_for

NAME = "org/lexis"
TIGON = os.path.abspath(sys.argv[2])


def status(s, method, path, headers=None, body=None):
    return s.request(method, path, body, headers)[0]


def code(answer):
    return json.loads(answer[2])["error"]["code"]


def raw(s, data):
    """(status, body)"""
    c = raw_connection(s.port)
    c.sendall(data)
    c.settimeout(2)
    got = b""
    try:
        while piece := c.recv(65536):
            got += piece
    except TimeoutError:
        pass
    c.close()
    return int(got.split(b" ")[1]), got.split(b"\r\n\r\n", 1)[1]


s = Server("--served-model-name", NAME)

# ---- spellings of paths ----

for method, path, want in (("GET", "/%63ache", 200), ("GET", "/%68%65alth", 200), ("POST", "/%63ache/fl%75sh", 200),
                           ("POST", "/cache%2Fflush", 404), ("POST", "/cache%2fflush", 404), ("GET", "/metrics%00x", 404),
                           ("GET", "/cache%00", 404), ("GET", "/%2563ache", 404), ("GET", "/v1%2Fmodels", 404),
                           ("GET", "/./cache", 404), ("GET", "//cache", 404), ("GET", "/v1/../cache", 404)):
    same(status(s, method, path), want, f"{method} {path}: {want}")
for path, want in (("org/lexis", 200), ("org%2Flexis", 200), ("%6Frg%2flexi%73", 200), ("org%252Flexis", 404),
                   ("org/lexis%00", 404), ("org%2Flexis%2F", 404)):
    same(status(s, "GET", "/v1/models/" + path), want, f"the model {path}: {want}")
same(json.loads(s.request("GET", "/cache?limit=%31&tokens=%31")[2])["truncated"], False, "escapes in a query")

# ---- hosts on loopback ----

for host in ("localhost", f"localhost:{s.port}", "127.0.0.1", "127.1.2.3:1", "[::1]:8080", "LOCALHOST"):
    same(status(s, "GET", "/cache", {"Host": host}), 200, f"Host: {host}")
for path in ("/cache", "/v1/models", "/health", "/nothing"):
    answer = s.request("GET", path, headers={"Host": "rebound.example"})
    ok(answer[0] == 403 and code(answer) == "host_not_allowed" and b"--allowed-host" in answer[2],
       f"another host: {path} is refused, and the option is named", answer)
same(status(s, "OPTIONS", "/v1/chat/completions", {"Host": "rebound.example"}), 403, "nor are OPTIONS told")
same(raw(s, b"GET /health HTTP/1.0\r\n\r\n")[0], 200, "a probe by HTTP/1.0 needs no host")
same(raw(s, b"GET /v1/models HTTP/1.0\r\n\r\n")[0], 403, "other requests do")
same(raw(s, b"GET /cache HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n")[0], 403, "an empty host is none")

# ---- targets with a host (RFC 9112, section 3.2.2), which counts more than the header ----

for target, host, want in (("http://localhost:1/version", "localhost", 200), ("HTTP://127.0.0.1/v1/%6dodels", "rebound.example", 200),
                           ("http://localhost/v1/models/" + NAME, "localhost", 200), ("http://localhost/cache?limit=1", "localhost", 200),
                           ("http://rebound.example/version", "localhost", 403), ("http:///version", "localhost", 400),
                           ("http://localhost:x@evil.example/version", "localhost", 400), ("/version", "localhost:x@evil.example", 400),
                           ("http://localhost@evil.example/version", "localhost", 400), ("http://localhost:x/version", "localhost", 400),
                           ("%68ttp://localhost/version", "localhost", 404), ("/version", "user@localhost", 400),
                           ("http://localhost", "localhost", 200), ("ftp://localhost/version", "localhost", 404)):
    same(raw(s, f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())[0], want, f"GET {target}: {want}")
body = json.dumps({"prompt": "Define violin.", "max_tokens": 2}).encode()
got = raw(s, b"POST http://localhost/v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
same((got[0], json.loads(got[1])["object"]), (200, "text_completion"), "POST")
same(raw(s, b"GET http://localhost/version HTTP/1.1\r\nConnection: close\r\n\r\n")[0], 400, "the header is needed all the same")

# ---- pages of web sites ----

for site, want in (("cross-site", 403), ("Cross-Site", 403), ("same-origin", 200), ("none", 200)):
    same(status(s, "POST", "/cache/flush", {"Sec-Fetch-Site": site}), want, f"a flush with Sec-Fetch-Site {site}: {want}")
same(status(s, "DELETE", "/v1/models/" + NAME, {"Sec-Fetch-Site": "cross-site"}), 403, "no DELETE of another site")
same(status(s, "DELETE", "/v1/models/" + NAME), 405, "nor any other")
same(status(s, "GET", "/v1/models", {"Sec-Fetch-Site": "cross-site"}), 200, "reading is for pages, too")
same([(status(s, "GET", p, {"Origin": "http://page"}), s.request("GET", p)[1]["Access-Control-Allow-Origin"])
      for p in ("/cache", "/metrics", "/v1/models")], [(403, None), (403, None), (200, "*")], "but not of the operator's paths")
s.stop()

s = Server("--allowed-host", "api.example,Other.Example")
same([status(s, "GET", "/cache", {"Host": h}) for h in ("api.example", "API.example:80", "other.example", "localhost", "example")],
     [200, 200, 200, 200, 403], "--allowed-host")
s.stop()
s = Server("--allowed-host", "*")
same(status(s, "GET", "/cache", {"Host": "rebound.example"}), 200, "--allowed-host '*' allows all")
s.stop()
s = Server("--cors-origin", "https://app.example,http://localhost:3000")


def cors(method, path, headers):
    """The answer's status and headers of CORS."""
    got, answer, _ = s.request(method, path, headers=headers)
    return got, {k.lower().removeprefix("access-control-"): v for k, v in answer.items()
                 if k.lower().startswith("access-control-") or k.lower() == "vary"}


EXPOSED = "X-Request-Id, X-Tigon-Cache, request-id, Retry-After"
for origin in "https://app.example", "http://localhost:3000":
    same(cors("GET", "/v1/models", {"Origin": origin}),
         (200, {"allow-origin": origin, "expose-headers": EXPOSED, "vary": "Origin"}), f"{origin} may read answers")
    same(cors("GET", "/nothing", {"Origin": origin})[1]["allow-origin"], origin, "errors too")
same(cors("OPTIONS", "/v1/messages", {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}),
     (200, {"allow-origin": "https://app.example", "expose-headers": EXPOSED, "vary": "Origin", "allow-methods": "POST, OPTIONS",
            "allow-headers": "Authorization, Content-Type, X-API-Key, X-Request-Id, Anthropic-Version, Anthropic-Beta",
            "max-age": "86400"}), "and ask what they may send")
for headers in {"Origin": "https://app.example.evil"}, {"Origin": "http://app.example"}, {"Origin": "null"}, {"Origin": ""}, {}:
    same([cors(m, "/v1/models", headers) for m in ("GET", "OPTIONS")], [(200, {"vary": "Origin"})] * 2, f"others may not: {headers}")
ASK = json.dumps({"prompt": "Define violin.", "max_tokens": 2}).encode()
for path in "/v1/completions", "/api/show", "/nothing":
    for headers, allowed in (({}, True), ({"Origin": "https://app.example"}, True), ({"Origin": "https://evil.example"}, False),
                             ({"Origin": "https://evil.example", "Content-Type": "text/plain"}, False), ({"Origin": "null"}, False),
                             ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-site"}, False),
                             ({"Origin": "https://own.example", "Sec-Fetch-Site": "same-origin"}, True)):
        answer = s.request("POST", path, ASK, headers)
        same(answer[0] != 403, allowed, f"POST {path} with {headers}: allowed {allowed}")
ok(code(s.request("POST", "/v1/completions", ASK, {"Origin": "null"})) == "cross_origin", "with the code")
CROSS = {"Sec-Fetch-Site": "cross-site"}
same([status(s, "DELETE", "/v1/responses/resp_1", {**CROSS, "Origin": o}) for o in ("https://app.example", "https://evil.example")], [404, 403],
     "a page that is named may delete")
same([cors(m, p, {**CROSS, "Origin": "https://app.example"}) for m, p in (("GET", "/cache"), ("POST", "/cache/flush"))], [(403, {})] * 2,
     "but the operator's paths are for no page")
s.stop()
s = Server("--cors-origin", "none")
same([cors(m, "/v1/models", {"Origin": "https://none"}) for m in ("GET", "OPTIONS")], [(200, {"vary": "Origin"})] * 2, "--cors-origin none")
same([s.request("POST", "/v1/completions", ASK, h)[0] for h in ({}, {"Origin": "https://none"})], [200, 403], "and no page may compute")
s.stop()
s = Server("--host", "0.0.0.0")
same(status(s, "GET", "/v1/models", {"Host": "rebound.example"}), 200, "elsewhere every host is fine")
same([line.split(": ", 1)[1] for line in s.text().splitlines() if "warning: --host" in line],
     ["--host 0.0.0.0: everybody who reaches this address is served; --api-key-file FILE asks clients for a key"],
     "and one sentence warns that everybody is served")
s.stop()

# ---- keys ----

folder = tempfile.TemporaryDirectory(prefix="tigon-private-")


def key_file(name, *keys, mode=0o600):
    path = os.path.join(folder.name, name)
    with open(path, "w") as f:
        f.write("# keys\n" + "".join(k + "\n" for k in keys))
    os.chmod(path, mode)
    return path


keys = key_file("keys", "sk-one", "sk-two")
s = Server("--host", "0.0.0.0", "--api-key-file", keys)
ok("warning: --host" not in s.text(), "with keys nothing warns")
ASK = b'{"prompt": "a", "max_tokens": 1}'
NONE = 'the request has no key: this server needs one, as "Authorization: Bearer KEY" or "x-api-key: KEY"'
WRONG = "the request's key is none of this server's keys"
for name, headers, want in (
        ("a key", {"Authorization": "Bearer sk-one"}, 200), ("the other one", {"Authorization": "bearer  sk-two"}, 200),
        ("x-api-key", {"x-api-key": "sk-two"}, 200), ("blanks around", {"x-api-key": "  sk-two \t"}, 200), ("both, one right", {"Authorization": "Bearer x", "X-API-Key": "sk-one"}, 200),
        ("no key", {}, 401), ("a wrong key", {"Authorization": "Bearer sk-three"}, 401), ("a part", {"x-api-key": "sk-on"}, 401),
        ("more than a key", {"x-api-key": "sk-one2"}, 401), ("an empty key", {"Authorization": "Bearer "}, 401),
        ("another scheme", {"Authorization": "Basic sk-one"}, 401), ("a comment", {"x-api-key": "# keys"}, 401)):
    answer = s.request("POST", "/v1/completions", ASK, headers)
    ok(answer[0] == want and (want == 200 or (code(answer) == "invalid_api_key" and answer[1]["WWW-Authenticate"] == "Bearer")),
       f"{name}: {want}", answer)
    if want == 401:
        same(json.loads(answer[2])["error"]["message"], NONE if name in ("no key", "an empty key", "another scheme") else WRONG,
             f"{name}: its own sentence")
same([status(s, "GET", p) for p in ("/v1/models", "/version", "/nothing")], [401] * 3, "other requests need one, too")
same([status(s, "GET", p) for p in ("/health", "/livez", "/readyz", "/ping")], [200] * 4, "but not probes")
same(status(s, "OPTIONS", "/v1/completions", {"Origin": "http://page"}), 200, "and OPTIONS")
for value in (b"\0sk-one", b"sk-\0one"):
    got = raw(s, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nx-api-key: " + value + b"\r\nConnection: close\r\n\r\n")
    ok(got[0] in (400, 401), f"{value!r}, with a zero byte, is no key", got)
s.stop()

# ---- the admin listener ----

OPERATOR = (("GET", "/cache"), ("GET", "/metrics"), ("POST", "/cache/flush"), ("POST", "/abort?id=x"))


def admin_port(s):
    return int(re.search(r"--admin-port: \S+ port (\d+)", s.text())[1])


def at_admin(s, method, path, headers=None, body=None):
    c = http.client.HTTPConnection("127.0.0.1", admin_port(s), timeout=60)
    c.request(method, path, body, headers or {})
    r = c.getresponse()
    answer = r.status, r.headers, r.read()
    c.close()
    return answer


s = Server()
same([status(s, *o) for o in OPERATOR], [200, 200, 200, 404], "a main port on loopback has the operator's paths")
s.stop()
s = Server("--host", "0.0.0.0")
answers = [s.request(*o) for o in OPERATOR]
ok([a[0] for a in answers] == [404] * 4 and all(code(a) == "unknown_url" and b"--admin-port" in a[2] for a in answers),
   "one that others reach has not, and says where they are", answers)
same(status(s, "GET", "/health"), 200, "but what is for clients")
s.stop()
s = Server("--admin-port", "0")
same([status(s, *o) for o in OPERATOR], [404] * 4, "beside an admin port neither has one on loopback")
same([at_admin(s, *o)[0] for o in OPERATOR], [200, 200, 200, 404], "which has them")
same([at_admin(s, "GET", "/v1/models")[0], at_admin(s, "POST", "/v1/completions", {}, ASK)[0], at_admin(s, "GET", "/health")[0]],
     [200] * 3, "and everything else too")
same(at_admin(s, "GET", "/cache", {"Host": "rebound.example"})[0], 403, "for this machine's names alone")
cached = subprocess.run([TIGON, "cache", "--url", f"http://127.0.0.1:{admin_port(s)}"], capture_output=True, text=True, timeout=60)
ok(cached.returncode == 0 and "nodes" in cached.stdout, "tigon cache asks there", cached)
s.stop()

admins = key_file("admins", "ad-one", "ad-two")
s = Server("--api-key-file", keys, "--admin-host", "0.0.0.0", "--admin-port", "0", "--admin-key-file", admins)
same([at_admin(s, *o, {"x-api-key": "ad-two"})[0] for o in OPERATOR], [200, 200, 200, 404], "the admin port has keys of its own")
same([at_admin(s, *o, {"x-api-key": "sk-one"})[0] for o in OPERATOR], [401] * 4, "and does not take those of clients")
same(status(s, "GET", "/v1/models", {"x-api-key": "ad-one"}), 401, "nor the other way")
same(at_admin(s, "GET", "/health")[0], 200, "a probe needs none there either")
for name, file, want in (("the admin key", admins, 0), ("a client's", keys, 1)):
    got = subprocess.run([TIGON, "cache", "flush", "--url", f"http://127.0.0.1:{admin_port(s)}", "--api-key-file", file],
                         capture_output=True, text=True, timeout=60)
    ok(got.returncode == want, f"tigon cache with {name}", got)
s.stop()

# ---- /abort ----

s = Server("--max-num-seqs", "1", env={"FAKE_STEP_US": "2000"})
c = s.connect()
c.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 4000, "stream": True, "ignore_eos": True}),
          {"Content-Type": "application/json"})
r = c.getresponse()
name = r.headers["X-Request-Id"]
r.readline()
answer = s.request("POST", "/abort?id=" + name)
same((answer[0], json.loads(answer[2])), (200, {"aborted": name}), "a request is ended by its id")
events = parse_events(r.read().lstrip())
c.close()
same([e["error"]["code"] for e in events if "error" in e], ["request_aborted"], "its stream says so")
ok(s.wait_metric("num_requests_running", 0) is not None, "and its seat is free")
same(s.complete("a", max_tokens=1)[0], 200, "for the next one")
answers = []
t = threading.Thread(target=lambda: answers.append(s.request("POST", "/v1/completions", json.dumps(
    {"prompt": "a", "max_tokens": 4000, "ignore_eos": True}), {"X-Request-Id": "my own/id"})))
t.start()
ok(wait_for(lambda: status(s, "POST", "/abort?id=my%20own%2Fid", {"X-Request-Id": "my own/id"}) == 200),
   "or by the id that its client gave it, which the operator's request may have too")
t.join()
same((answers[0][0], code(answers[0])), (410, "request_aborted"), "an answer that has not begun is an error")
answer = s.request("POST", "/abort?id=" + name)
ok(answer[0] == 404 and code(answer) == "request_not_found", "a request that has ended is not found", answer)
same([status(s, "POST", "/abort"), status(s, "GET", "/abort?id=x"), status(s, "POST", "/abort?id=x", {"Origin": "http://page"}),
      status(s, "POST", "/abort?id=x", {"Sec-Fetch-Site": "cross-site"})], [400, 405, 403, 403], "wrong ways to ask")
s.stop()

# ---- files and directories that other users can read or write ----


def refused(name, *args):
    r = subprocess.run([TIGOND, "--model", MODEL, "--port", "0", *args], capture_output=True, text=True, timeout=60)
    return ok(r.returncode == 1 and args[-2] in r.stderr, name, (r.returncode, r.stderr))


refused("keys that others may read", "--api-key-file", key_file("open", "a", mode=0o644))
refused("a file without keys", "--api-key-file", key_file("none"))
refused("no file", "--api-key-file", os.path.join(folder.name, "missing"))
refused("a proxy that is no address", "--trusted-proxy", "10.0.0.0/33")
refused("an admin host without its port", "--port", "0", "--admin-host", "127.0.0.1")
refused("admin keys without its port", "--port", "0", "--admin-key-file", admins)
refused("an admin address that others reach, without keys", "--admin-port", "0", "--admin-host", "0.0.0.0")
place = os.path.join(folder.name, "cache")
os.mkdir(place)
for mode in (0o777, 0o775, 0o707):
    os.chmod(place, mode)
    refused(f"--cache-dir with mode {mode:o}", "--cache-dir", place)
if os.geteuid() == 0:
    os.chmod(place, 0o700)
    os.chown(place, 1, 1)
    refused("--cache-dir of another user", "--cache-dir", place)
    os.chown(place, 0, 0)
os.chmod(place, 0o755)
s = Server("--cache-dir", place)
s.stop("one that others may read is taken")
done()
