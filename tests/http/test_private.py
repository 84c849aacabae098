"""Who may ask for what: spellings of paths, names of hosts, pages of web sites, keys, the admin listener."""
import json

from harness import Server, done, ok, raw_connection, same

NAME = "org/lexis"


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

# ---- pages of web sites ----

for site, want in (("cross-site", 403), ("Cross-Site", 403), ("same-origin", 200), ("none", 200)):
    same(status(s, "POST", "/cache/flush", {"Sec-Fetch-Site": site}), want, f"a flush with Sec-Fetch-Site {site}: {want}")
same(status(s, "DELETE", "/v1/models/" + NAME, {"Sec-Fetch-Site": "cross-site"}), 403, "no DELETE of another site")
same(status(s, "DELETE", "/v1/models/" + NAME), 405, "nor any other")
same(status(s, "GET", "/v1/models", {"Sec-Fetch-Site": "cross-site"}), 200, "reading is for pages, too")
s.stop()

s = Server("--allowed-host", "api.example,Other.Example")
same([status(s, "GET", "/cache", {"Host": h}) for h in ("api.example", "API.example:80", "other.example", "localhost", "example")],
     [200, 200, 200, 200, 403], "--allowed-host")
s.stop()
s = Server("--allowed-host", "*")
same(status(s, "GET", "/cache", {"Host": "rebound.example"}), 200, "--allowed-host '*' allows all")
s.stop()
s = Server("--host", "0.0.0.0")
same(status(s, "GET", "/v1/models", {"Host": "rebound.example"}), 200, "elsewhere every host is fine")
s.stop()
done()
