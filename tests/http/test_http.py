"""Paths, methods, headers and bodies: requests that need no model."""
import json
import os
import shutil
import subprocess
import tempfile
import time

from harness import MODEL, Server, done, ok, raw_connection, raw_post, same, wait_for

s = Server("--max-body", "65536")
CHAT = "/v1/chat/completions"
SHORT = {"messages": [{"role": "user", "content": "define river"}], "max_tokens": 2, "temperature": 0}


def error_of(body):
    return json.loads(body)["error"]


# GET routes
same(s.get("/health"), (200, b'{"status":"ok"}'), "/health")
same(sorted(json.loads(s.get("/version")[1])), ["version"], "/version")
models = json.loads(s.get("/v1/models")[1])
same([m["id"] for m in models["data"]], ["lexis"], "/v1/models has the model's name")
same(json.loads(s.get("/v1/models/lexis")[1]), models["data"][0], "/v1/models/lexis")
status, _, body = s.request("GET", "/v1/models/other")
same((status, error_of(body)["code"]), (404, "model_not_found"), "/v1/models/other")
same(s.get("/v1/models/le%78is")[0], 200, "an escaped path")
same(s.get("/health?x=1")[0], 200, "a query is passed over")

# methods
for method in "GET", "PUT", "DELETE", "PATCH", "HEAD":
    status, headers, body = s.request(method, CHAT)
    ok(status == 405 and headers["Allow"] == "POST, OPTIONS", f"{method} of a POST path is 405 with Allow",
       (status, headers.items()))
status, headers, body = s.request("POST", "/health", b"{}")
ok(status == 405 and headers["Allow"] == "GET, HEAD, OPTIONS", "POST of a GET path is 405 with Allow")
same(error_of(body)["message"], "/health does not take POST; its methods are GET, HEAD, OPTIONS", "and a sentence")
status, headers, body = s.request("HEAD", "/v1/models")
ok(status == 200 and body == b"" and int(headers["Content-Length"]) > 50, "HEAD has a length and no body")
status, headers, body = s.request("OPTIONS", CHAT, headers={
    "Origin": "http://page", "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type"})
ok(status == 200 and headers["Access-Control-Allow-Origin"] == "*"
   and "POST" in headers["Access-Control-Allow-Methods"]
   and headers["Access-Control-Allow-Headers"] == "authorization, content-type", "OPTIONS with CORS",
   headers.items())
for wanted in ("a, b\x0f", "x" * 3000):
    status, headers, _ = s.request("OPTIONS", CHAT, headers={"Access-Control-Request-Headers": wanted})
    same((status, headers["Access-Control-Allow-Headers"]), (200, "Authorization, Content-Type, X-API-Key, X-Request-Id, Anthropic-Version, Anthropic-Beta"), "what is no list of names is not repeated")
status, headers, body = s.request("GET", "/v1/nothing")
same((status, error_of(body)["code"]), (404, "unknown_url"), "an unknown path")
same(s.request("OPTIONS", "/v1/nothing")[0], 200, "OPTIONS of an unknown path")
ok(s.request("GET", "/health")[1]["Access-Control-Allow-Origin"] == "*", "answers carry CORS too")

# content types
for kind, want in (("application/json", 200), ("application/json; charset=utf-8", 200),
                   ("Application/JSON", 200), ("text/plain", 415), ("application/jsonp", 415),
                   ("application/x-www-form-urlencoded", 415), ("multipart/form-data; boundary=x", 415)):
    status, _, body = s.request("POST", CHAT, json.dumps(SHORT), {"Content-Type": kind})
    same(status, want, f"content type {kind}: {want}")
same(error_of(body)["code"], "unsupported_media_type", "415 has its error")

# bodies
big = json.dumps({**SHORT, "user": "x" * 100000}).encode()
status, _, body = s.request("POST", CHAT, big, {"Content-Type": "application/json"})
same((status, error_of(body)["code"]), (413, "request_too_large"), "a body over the limit is 413")


def chunks(n):
    for _ in range(n):
        yield b" " * 10000


status, _, body = s.request("POST", CHAT, chunks(9), {"Content-Type": "application/json"})
same(status, 413, "so is a chunked one")
status, headers, body = s.request("POST", CHAT, chunks(40), {"Content-Type": "application/json", "X-Request-Id": "far-too-long"})
ok((status, error_of(body)["code"]) == (413, "request_too_large") and "65536" in error_of(body)["message"],
   "a chunked one that is far too long: 413", (status, body))
same((headers["Connection"], headers["Content-Type"], headers["X-Request-Id"], headers["Access-Control-Allow-Origin"]),
     ("close", "application/json", "far-too-long", "*"), "with headers")
ok(wait_for(lambda: "413 request_too_large" in "".join(x for x in s.text().splitlines() if "far-too-long" in x)), "and in the log")
for request, status in ((f"POST {CHAT}", b"413"), ("GET /health", b"413"), ("HEAD /health", b"413"), ("POST /nothing", b"404")):
    c = raw_connection(s.port)
    c.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    got = b""
    sent = 0
    while not got and sent < 4:  # until the server answers
        c.sendall((b"11000\r\n" + b" " * 0x11000 + b"\r\n") * (4 if sent == 0 else 1))
        sent += 1
        c.settimeout(2)
        try:
            while piece := c.recv(65536):
                got += piece
        except TimeoutError:
            pass
    ok(bool(got.partition(b"\r\n\r\n")[2]) != request.startswith("HEAD"), f"{request}: a body, or none of HEAD", got)
    same(got.split(b" ")[1:2], [status], f"{request}, an endless body: {status.decode()} within the body, and the end")
    try:
        for _ in range(100):
            c.sendall(b"11000\r\n" + b" " * 0x11000 + b"\r\n")
            time.sleep(0.01)
        cut = False
    except ConnectionError:
        cut = True
    ok(cut, "a client that goes on is cut")
    c.close()
c = raw_connection(s.port)
c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          f"Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n".encode())
ok(c.recv(65536).startswith(b"HTTP/1.1 413"), "with Expect: 413 at once, in place of 100")
c.close()
c = raw_connection(s.port)
body = json.dumps(SHORT).encode()
c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode())
ok(c.recv(65536).startswith(b"HTTP/1.1 100"), "Expect: 100-continue")
c.sendall(body)
ok(c.recv(65536).startswith(b"HTTP/1.1 200"), "and then the answer")
c.close()
c = raw_connection(s.port)
try:
    c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              f"Content-Length: 100000000\r\n\r\n".encode())
    answer = c.recv(65536)
except ConnectionError as e:
    answer = e
ok(isinstance(answer, bytes) and answer.startswith(b"HTTP/1.1 413"), "far too long: 413 at once", answer)
c.close()


def pieces():
    data = json.dumps(SHORT).encode()
    for i in range(0, len(data), 7):
        yield data[i:i + 7]


status, _, body = s.request("POST", CHAT, pieces(), {"Content-Type": "application/json"})
same(status, 200, "a chunked upload")
for bad, name in ((b"", "empty"), (b"{", "unfinished"), (b"[]", "a list"), (b'"x"', "a string"),
                  (b"\xff\xfe", "not UTF-8"), (b"null", "null"), (b"[" * 5000, "deeply nested")):
    status, _, body = s.request("POST", CHAT, bad, {"Content-Type": "application/json"})
    ok(status == 400 and error_of(body)["type"] == "invalid_request_error", f"a body that is {name}: 400", body)

# keep-alive, also across errors and streams
c = s.connect()
statuses = []
for path, data in ((CHAT, SHORT), ("/nope", {}), (CHAT, {}), (CHAT, {**SHORT, "stream": True}), (CHAT, SHORT)):
    c.request("POST", path, json.dumps(data), {"Content-Type": "application/json"})
    sock = c.sock
    r = c.getresponse()
    r.read()
    statuses.append(r.status)
same(statuses, [200, 404, 400, 200, 200], "five requests on one connection")
ok(c.sock is sock, "which stayed open")
c.close()
# two requests sent at once: the second waits for the first
c = raw_connection(s.port)
c.sendall(raw_post(CHAT, SHORT) + raw_post(CHAT, SHORT))
data = b""
while data.count(b"HTTP/1.1 200") < 2 or data.count(b'"usage"') < 2:
    piece = c.recv(65536)
    if not piece:
        break
    data += piece
same(data.count(b'"usage"'), 2, "pipelined requests")
c.close()
c = raw_connection(s.port)
c.sendall(f"POST {CHAT} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
          + f"Content-Length: {len(json.dumps({**SHORT, 'stream': True}))}\r\n\r\n".encode()
          + json.dumps({**SHORT, "stream": True}).encode())
data = b""
while piece := c.recv(65536):
    data += piece
ok(data.endswith(b"data: [DONE]\n\n") and b"chunked" not in data, "an HTTP/1.0 client gets its stream", data)
c.close()
for garbage in (b"NOT HTTP AT ALL", b"GET /health", b"GET /health HTTP/2.0", b"GET /health HTTP/1.1\r\nbroken",
                b"POST /tokenize HTTP/1.1\r\nContent-Length: -5", b"GET /" + b"a" * 100000 + b" HTTP/1.1"):
    c = raw_connection(s.port)
    c.sendall(garbage + b"\r\n\r\n")
    try:
        data = c.recv(65536)
    except ConnectionError:
        data = b""
    ok(data == b"" or data.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), f"refused: {garbage[:40]}", data)
    c.close()

# headers of answers
status, headers, body = s.request("POST", CHAT, json.dumps(SHORT), {"Content-Type": "application/json"})
same(headers["Content-Type"], "application/json", "content type of a body")
same(headers["X-Request-Id"], json.loads(body)["id"], "X-Request-Id is the answer's id")
status, headers, body = s.request("POST", CHAT, json.dumps({**SHORT, "stream": True}),
                                  {"Content-Type": "application/json"})
ok(headers["Content-Type"].startswith("text/event-stream") and headers["Content-Length"] is None
   and headers["Cache-Control"] == "no-cache", "headers of a stream", headers.items())

# metrics
m = s.metrics()
ok(m[f'http_responses_total{{route="{CHAT}",code="413"}}'] == 6 and m[f'http_responses_total{{route="{CHAT}",code="415"}}'] == 4,
   "responses are counted by route and code", m)
ok(m["prompt_tokens_total"] > 0 and m["time_to_first_token_seconds_count"] > 0, "so are tokens and times")
text = s.get("/metrics")[1].decode()
for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total",
             "generation_tokens_total", "request_success_total", "time_to_first_token_seconds",
             "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
             "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
             "request_generation_tokens", "request_params_max_tokens", "request_params_n",
             "request_max_num_generation_tokens", "iteration_tokens_total", "request_inference_time_seconds",
             "request_time_per_output_token_seconds", "prompt_tokens_cached_total", "cache_config_info"):
    ok(f"# TYPE tigon_{name} " in text, f"/metrics has {name}")

# the log
line = [x for x in s.text().splitlines() if headers["X-Request-Id"] in x]
ok(len(line) == 1 and "generated 2" in line[0] and "finish length" in line[0], "one line a request", line)
s.stop()

# names
s = Server("--served-model-name", "words")
same([m["id"] for m in json.loads(s.get("/v1/models")[1])["data"]], ["words"], "--served-model-name")
same([s.chat("define river", model=m, max_tokens=1)[0] for m in ("words", "lexis", "other", None)],
     [200, 200, 404, 200], "names that are understood")
same(s.chat("define river", model="lexis", max_tokens=1)[1]["model"], "words", "answers have the served name")
same(s.post("/tokenize", {"prompt": "a", "model": "other"})[0], 404, "/tokenize checks the name too")

# /tokenize and /detokenize
status, a = s.post("/tokenize", {"prompt": "A violin <|im_end|>"})
ok(status == 200 and a["count"] == len(a["tokens"]) and a["max_model_len"] == 4096 and a["tokens"][-1] == 2,
   "/tokenize", a)
text = "A violin <|im_end|>"
same(s.post("/detokenize", {"tokens": a["tokens"]}), (200, {"prompt": text, "content": text}), "/detokenize")
same(s.post("/tokenize", {"content": text}), (200, {"tokens": a["tokens"]}), "/tokenize in llama.cpp's form")
accents = s.post("/tokenize", {"content": "A violin é 日 🎻", "with_pieces": True})[1]["tokens"]
same((b"".join(bytes(t["piece"]) if isinstance(t["piece"], list) else t["piece"].encode() for t in accents).decode(), [t["id"] for t in accents]),
     ("A violin é 日 🎻", s.post("/tokenize", {"prompt": "A violin é 日 🎻"})[1]["tokens"]), "with pieces, which are the text")
status, a = s.post("/tokenize", {"messages": [{"role": "user", "content": "define violin"}]})
same(a["tokens"], [1, 337, 280, 207, 571, 2531, 2, 207, 1, 530, 345, 394, 207, 3, 207, 207, 4, 207, 207],
     "/tokenize with messages")
chat = {"messages": [{"role": "user", "content": "define violin"}]}
status, rendered = s.post("/apply-template", chat)
same((status, list(rendered)), (200, ["prompt"]), "/apply-template")
same(s.post("/detokenize", {"tokens": a["tokens"]})[1]["prompt"], rendered["prompt"], "has the text of the same tokens")
same(s.post("/apply-template", {**chat, "add_generation_prompt": False}),
     (200, {"prompt": "<|im_start|>user\ndefine violin<|im_end|>\n"}), "without the beginning of an answer")
tool = {"type": "function", "function": {"name": "look_up"}}
ok("look_up" in s.post("/apply-template", {**chat, "tools": [tool], "tool_choice": "required"})[1]["prompt"], "with tools")
same(s.post("/v1/chat/completions/input_tokens", chat), (200, {"object": "response.input_tokens", "input_tokens": 19}),
     "/v1/chat/completions/input_tokens")
same([s.post("/apply-template", b)[0] for b in ({**chat, "model": "other"}, {"messages": []}, {"prompt": "a"})],
     [404, 400, 400], "and refuses what chat refuses")
same(s.post("/detokenize", {"tokens": [8192]})[0], 400, "/detokenize refuses what is not in the vocabulary")
same(s.post("/tokenize", {})[0], 400, "/tokenize of nothing")
long = "violin " * 200000
begin = time.time()
status, a = s.post("/tokenize", {"prompt": long})
ok(status == 200 and a["count"] > 200000, f"/tokenize of 1.4 MB ({time.time() - begin:.2f} s)")
s.stop()

# a tokenizer that begins texts with a token of its own
with tempfile.TemporaryDirectory() as where:
    with open(os.path.join(MODEL, "tokenizer.json")) as f:
        tokenizer = json.load(f)
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "BOS", "type_id": 0}},
                                                 {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"BOS": {"id": "BOS", "ids": [0], "tokens": ["<|endoftext|>"]}}}
    with open(os.path.join(where, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    shutil.copy(os.path.join(MODEL, "chat_template.jinja"), where)
    s = Server("--tokenizer", where)
    plain = s.post("/tokenize", {"prompt": "A violin", "add_special_tokens": False})[1]["tokens"]
    same(s.post("/tokenize", {"prompt": "A violin"})[1]["tokens"], [0] + plain, "BOS before a text")
    same([s.post("/tokenize", {"content": "A violin", **more})[1]["tokens"] for more in ({}, {"add_special": True})],
         [plain, [0] + plain], "in llama.cpp's form with add_special alone")
    same(s.post("/tokenize", {"messages": SHORT["messages"]})[1]["tokens"].count(0), 0, "not before a chat")
    for ask, want in (({"prompt": "A violin"}, [0] + plain), ({"prompt": plain}, plain),
                      ({"prompt": "A violin", "add_special_tokens": False}, plain)):
        status, a = s.post("/v1/completions", {**ask, "max_tokens": 1, "return_token_ids": True})
        ok(status == 200 and a["choices"][0]["prompt_token_ids"] == want
           and a["usage"]["prompt_tokens"] == len(want), f"/v1/completions of {ask}", a)
    s.stop()

# system_fingerprint
s = Server()
marks = [s.chat("define river", max_tokens=1)[1]["system_fingerprint"],
         s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[1]["system_fingerprint"]]
s.stop()
s = Server("--dtype", "float32")
marks.append(s.chat("define river", max_tokens=1)[1]["system_fingerprint"])
s.stop()
ok(len(marks[0]) == 19 and marks[0].startswith("fp_") and marks[0] == marks[1] != marks[2],
   "system_fingerprint is of the configuration", marks)

# curl, if there is one
s = Server()
try:
    out = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", s.url + CHAT, "-H", "Content-Type: application/json",
         "-d", json.dumps(SHORT)], capture_output=True, text=True, timeout=60)
    answer, status = out.stdout.rsplit("\n", 1)
    ok(status == "200" and json.loads(answer)["choices"][0]["message"]["role"] == "assistant", "curl: chat", out)
    out = subprocess.run(["curl", "-sSN", s.url + CHAT, "-H", "Content-Type: application/json",
                          "-d", json.dumps({**SHORT, "stream": True})], capture_output=True, text=True, timeout=60)
    ok(out.stdout.endswith("data: [DONE]\n\n"), "curl -N: a stream", out)
    # more than 1 MB: curl asks with Expect first
    out = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", s.url + "/tokenize", "-H",
                          "Content-Type: application/json", "--data-binary", "@-"],
                         input=json.dumps({"prompt": "violin " * 300000}), capture_output=True, text=True, timeout=60)
    ok(out.stdout.endswith("\n200"), "curl: a body over 1 MB", out.stderr)
    out = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", s.url + CHAT, "-H", "Content-Type: application/json",
                          "-H", "Transfer-Encoding: chunked", "-d", json.dumps(SHORT)], capture_output=True,
                         text=True, timeout=60)
    ok(out.stdout.endswith("\n200"), "curl: a chunked upload", out)
except FileNotFoundError:
    print("# no curl here")
s.stop()
done()
