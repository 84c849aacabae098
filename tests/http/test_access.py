"""Reports about each request: its line in the log, X-Request-Id, and the counts of /metrics."""
import json
import re
import time

from harness import Server, done, ok, raw_connection, same, wait_for

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
JSON = {"Content-Type": "application/json"}
s = Server("--max-body", "65536", env={"FAKE_STEP_US": "4000", "FAKE_NAN_SEED": "1300"})
n_ids = 0


def lines(ending):
    return [x.split(" info: ", 1)[1] for x in s.text().splitlines() if x.endswith(ending)]


def ask(method, path, body=None, headers=None):
    """The answer's status and headers, and the request's line of the log. The line may be written after the answer has come."""
    global n_ids
    n_ids += 1
    ending = f", X-Request-Id test {n_ids:03}"
    status, headers, _ = s.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body),
                                   {**JSON, "X-Request-Id": f"test {n_ids:03}", **(headers or {})})
    wait_for(lambda: lines(ending))
    got = lines(ending)
    same(len(got), 1, f"{method} {path[:40]}: one line")
    return status, headers, (got + [""])[0].removesuffix(ending)


def matches(line, pattern, name):
    ok(re.fullmatch(pattern, line), name, f"line    {line}\npattern {pattern}")


PEER = r"from 127\.0\.0\.1:\d+"
TIMES = r", upload \d+\.\d ms, total \d+\.\d ms"
status, headers, line = ask("POST", COMPLETE, {"prompt": [5] * 20, "max_tokens": 3, "ignore_eos": True})
matches(line, f"POST /v1/completions {PEER}: 200, cmpl-[0-9a-f]+, prompt 20 tokens \\(cached=0; reason=short\\), generated 3, "
        rf"finish length, ttft \d+\.\d ms{TIMES}", "a request with tokens")
ttft, total = (float(re.search(rf"{x} ([\d.]+) ms", line).group(1)) for x in ("ttft", "total"))
ok(0 < ttft < total, "its times", line)
for name, want, (status, _, line) in (
        ("an unknown path", f"GET /nothing {PEER}: 404 unknown_url, total .*", ask("GET", "/nothing")),
        ("a wrong method", f"DELETE /v1/models {PEER}: 405 method_not_allowed, total .*", ask("DELETE", "/v1/models")),
        ("no call", f"GET /health {PEER}: 200, total .*", ask("GET", "/health")),
        ("a call without tokens", f"POST /tokenize {PEER}: 200, tok-[0-9a-f]+{TIMES}", ask("POST", "/tokenize", {"prompt": "a"})),
        ("a path without /v1", f"GET /models {PEER}: 200, total .*", ask("GET", "/models")),
        ("a parameter at fault", f"POST {COMPLETE} {PEER}: 400 invalid_value in n, cmpl-.*finish error.*",
         ask("POST", COMPLETE, {"prompt": "a", "n": 0})),
        ("not supported", f"POST {CHAT} {PEER}: 400 unsupported_parameter in mirostat, chatcmpl-.*",
         ask("POST", CHAT, {"messages": [{"role": "user"}], "mirostat": 1})),
        ("the model's name", f"POST {COMPLETE} {PEER}: 404 model_not_found in model, cmpl-.*",
         ask("POST", COMPLETE, {"prompt": "a", "model": "gpt"})),
        ("a body that is too large", f"POST {COMPLETE} {PEER}: 413 request_too_large, total .*", ask("POST", COMPLETE, b" " * 70000)),
        ("a wrong type", f"POST {COMPLETE} {PEER}: 415 unsupported_media_type, total .*",
         ask("POST", COMPLETE, b"a", {"Content-Type": "text/plain"})),
        ("a failure", f"POST {COMPLETE} {PEER}: 500 internal_error, cmpl-.*finish error.*",
         ask("POST", COMPLETE, {"prompt": [5] * 20, "seed": 1300, "temperature": 1, "max_tokens": 60})),
        ("a failure in a stream", f"POST {COMPLETE} {PEER}: 200 internal_error, cmpl-.*finish error.*",
         ask("POST", COMPLETE, {"prompt": [5] * 20, "seed": 1315, "temperature": 1, "max_tokens": 60, "stream": True}))):
    matches(line, want, name)
status, _, line = ask("GET", "/a%0ab%00c%20%22%25d%c3%a9")
ok(status == 404 and re.match(r"GET /a%0[aA]b[^ \"]* from ", line), "a path cannot begin a line of its own", line)
status, _, line = ask("GET", "/" + "x" * 3000)
ok(status == 404 and line.startswith("GET /xxx") and len(line) < 300, "a long path is cut", line)
_, _, line = ask("OPTIONS", CHAT)
matches(line, f"OPTIONS {CHAT} {PEER}: 200, total .*", "OPTIONS")

# requests that end without an answer
c = raw_connection(s.port)
c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\nX-Request-Id: half\r\n\r\n{")
time.sleep(0.1)
c.close()
ok(wait_for(lambda: lines("X-Request-Id half")), "a client that leaves within its body")
matches((lines("X-Request-Id half") + [""])[0], f"POST {COMPLETE} {PEER}: no answer, total .*", "got no answer")
c = raw_connection(s.port)
body = json.dumps({"prompt": [5] * 20, "max_tokens": 2000, "ignore_eos": True}).encode()
c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: left\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
time.sleep(0.2)
c.close()
ok(wait_for(lambda: lines("X-Request-Id left")), "a client that leaves before its answer")
matches((lines("X-Request-Id left") + [""])[0], f"POST {COMPLETE} {PEER}: no answer, cmpl-.*finish abort.*", "got no answer")

# X-Request-Id
for path, body in (COMPLETE, {"prompt": "a", "max_tokens": 1}), (COMPLETE, {"prompt": "a", "max_tokens": 1, "stream": True}), \
        (COMPLETE, {"prompt": 5}), ("/nothing", {}):
    same(s.request("POST", path, json.dumps(body), {**JSON, "X-Request-Id": "a b/~"})[1]["X-Request-Id"], "a b/~",
         f"the client's X-Request-Id comes back: {path} {json.dumps(body)}")
same(s.request("GET", "/health", headers={"X-Request-Id": "x" * 128})[1]["X-Request-Id"], "x" * 128, "128 characters")
same([s.request("GET", "/health", headers={"X-Request-Id": x})[1]["X-Request-Id"] for x in ("x" * 129, "", "a\tb", "\xe9")],
     [None] * 4, "129, none, a tab or a letter that is not ASCII do not")
_, headers, body = s.request("POST", COMPLETE, json.dumps({"prompt": "a", "max_tokens": 1}), {**JSON, "X-Request-Id": "x" * 129})
same(headers["X-Request-Id"], json.loads(body)["id"], "then it is the answer's id")

# metrics
text = s.get("/metrics")[1].decode()
ok(all('{model_name="lexis"' in x for x in text.splitlines() if x.startswith("tigon_")), "every metric names the model")
m = s.metrics()
same((m[f'http_responses_total{{route="{COMPLETE}",code="413"}}'], m['http_responses_total{route="other",code="404"}'],
      m['http_responses_total{route="/v1/models",code="405"}']), (1, 4, 1), "responses by route and code")
same({k.split('"')[3]: v for k, v in m.items() if k.startswith("errors_total") and v and "loading" not in k},
     {"invalid_value": 2, "unsupported_parameter": 1, "model_not_found": 1, "request_too_large": 1, "unsupported_media_type": 1,
      "unknown_url": 4, "method_not_allowed": 1, "internal_error": 2}, "errors by cause")
same(m['errors_total{type="server_error",cause="internal_error"}'], 2, "those of the server apart")
same(m['request_success_total{finished_reason="error"}'], 2, "what was refused is no request that failed")
same([v for k, v in m.items() if k.startswith("build_info{version=") or k.startswith('cache_config_info{block_size="64"')], [1, 1], "infos")
ok(m["process_resident_memory_bytes"] > 1e6 and m["process_open_fds"] > 5 and m["process_cpu_seconds_total"] > 0
   and time.time() - 600 < m["process_start_time_seconds"] < time.time() + 1, "numbers of the process", m)
before = m
s.complete([5] * 130, max_tokens=9, n=2, ignore_eos=True)
s.complete([5] * 130, max_tokens=9, ignore_eos=True)
wait_for(lambda: s.metrics()["request_prompt_tokens_count"] == before["request_prompt_tokens_count"] + 2)
m = s.metrics()
grown = {k: m[k] - before[k] for k in m if k in before}
same({k: grown[f"{k}_sum"] for k in ("request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens",
                                      "request_params_n", "request_params_max_tokens")},
     {"request_prompt_tokens": 260, "request_generation_tokens": 27, "request_max_num_generation_tokens": 18,
      "request_params_n": 3, "request_params_max_tokens": 18}, "numbers of requests")
same((grown["request_generation_tokens_count"], grown["request_params_n_count"]), (3, 2), "for each choice, and for each prompt")
same(grown["prompt_tokens_cached_total"], 128, "cached tokens")
# Steps computed 130 tokens of the first prompt, 2 of the second, and the tokens of each choice but its last one.
same(grown["iteration_tokens_total_sum"], 132 + 3 * 8, "tokens of steps")
ok(grown["iteration_tokens_total_count"] == grown["device_steps_total"], "as many as there were steps", grown)
ok(0 < grown["request_inference_time_seconds_sum"] < grown["e2e_request_latency_seconds_sum"]
   and 0.002 < grown["request_time_per_output_token_seconds_sum"] / 3 < 1, "times", grown)

# a value with a zero byte (tests/http/test_framing.py)
c = raw_connection(s.port)
c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: zero\0tail\r\nConnection: close\r\n\r\n")
answer = b"".join(iter(lambda: c.recv(65536), b""))
ok(b"\0" not in answer + s.text().encode() and b"tail" not in answer, "a zero byte reaches neither the answer nor the log", answer)
s.stop()
done()
