"""Start and end: 503 while loading and draining, SIGTERM, a second signal, a thread or an exit handler that hangs, a lost device."""
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

from harness import MODEL, TIGOND, Server, done, ok, parallel, raw_connection, raw_post, same, wait_for

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "tell me everything"}], "ignore_eos": True, "temperature": 0}
JSON = {"Content-Type": "application/json"}

# loading
s = Server(env={"FAKE_LOAD_MS": "1500"}, wait=False)
for method, path, body in (("GET", "/health", None), ("GET", "/v1/models", None), ("POST", CHAT, json.dumps(ASK)),
                           ("POST", "/tokenize", '{"prompt": "a"}')):
    status, headers, answer = s.request(method, path, body, JSON)
    ok(status == 503 and headers["Retry-After"] and json.loads(answer)["error"]["code"] == "model_loading",
       f"{path} while loading: 503 with Retry-After", (status, answer))
same([s.get(p)[0] for p in ("/version", "/metrics")], [200, 200], "/version and /metrics while loading")
while s.get("/health")[0] != 200:
    time.sleep(0.05)
same(s.chat("define violin")[0], 200, "then it answers")
s.stop()

# a signal while loading
s = Server(env={"FAKE_LOAD_MS": "10000"}, wait=False)
begin = time.time()
s.stop("SIGTERM while loading: status 0")
ok(time.time() - begin < 2, "at once")

# drain: running ones finish, new ones are refused, the end comes when the last is through
s = Server(env={"FAKE_STEP_US": "10000"})
kept = s.connect()
kept.request("GET", "/health")
kept.getresponse().read()


def ask(stream):
    def run():
        status, _, body = s.request("POST", CHAT, json.dumps({**ASK, "max_tokens": 150, "stream": stream}), JSON)
        return status, body
    return run


def end():
    s.wait_metric("num_requests_running", 2)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    refused = []
    for c in (kept, s.connect()):
        c.request("POST", CHAT, json.dumps(ASK), JSON)
        r = c.getresponse()
        refused.append((r.status, r.headers["Retry-After"] is not None, json.loads(r.read())["error"]["code"]))
    return refused


begin = time.time()
whole, stream, refused = parallel([ask(False), ask(True), end])
ok(whole[0] == 200 and json.loads(whole[1])["usage"]["completion_tokens"] == 150, "a running answer finishes", whole)
ok(stream[0] == 200 and stream[1].endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in stream[1],
   "a running stream finishes", stream)
same(refused, [(503, True, "shutting_down")] * 2, "new requests get 503, on old and new connections")
status = s.process.wait(25)
ok(status == 0 and time.time() - begin < 10, f"then the server ends ({time.time() - begin:.1f} s)", s.text())

# systemd is told when the server is ready and when it ends. --drain-timeout is longer than TimeoutStopSec, so systemd is asked for
# the time.
with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
    systemd.bind(f"{folder}/notify")
    systemd.settimeout(60)

    def hear(word):
        while True:
            told = systemd.recv(4096).decode()
            if word in told.splitlines():
                return told

    s = Server("--drain-timeout", "600", env={"NOTIFY_SOCKET": f"{folder}/notify"})
    ok(hear("READY=1"), "systemd is told that the server is ready")
    s.process.send_signal(signal.SIGTERM)
    told = hear("STOPPING=1")
    found = re.search(r"^EXTEND_TIMEOUT_USEC=(\d+)$", told, re.M)
    ok(found and 610e6 <= int(found[1]) <= 615e6, "and that it may take its time to stop", told)
    ok("STATUS=Draining: 0 requests, at most 600 s" in told, "what systemctl status shows meanwhile", told)
    same(s.process.wait(25), 0, "which it does not need without requests")

# A client that reads nothing does not hold the server for all of --drain-timeout. One that waits for its first token does nothing
# wrong: its answer comes, though it takes longer than any time but --drain-timeout.
idle = Server("--drain-timeout", "600")
idle_client = raw_connection(idle.port)
idle_client.sendall(raw_post(CHAT, {**ASK, "n": 8, "max_tokens": 1200, "logprobs": True, "top_logprobs": 20, "stream": True}))
idle.wait_metric("generation_tokens_total", 9600)
patient = Server("--drain-timeout", "600", env={"FAKE_STEP_US": "1000000"})
patient_client = raw_connection(patient.port)
patient_client.sendall(raw_post(CHAT, {**ASK, "max_tokens": 18}))
patient.wait_metric("num_requests_running", 1)
for x in (idle, patient):
    x.process.send_signal(signal.SIGTERM)
drained_since = time.time()

# SIGHUP, which a terminal that is closed may send twice. nohup sets it to be ignored, and the server would leave it so.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
s = Server(env={"FAKE_STEP_US": "10000"})


def hang_up():
    s.wait_metric("num_requests_running", 1)
    for _ in range(2):
        s.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)


whole, _ = parallel([ask(False), hang_up])
ok(whole[0] == 200 and json.loads(whole[1])["usage"]["completion_tokens"] == 150, "SIGHUP, twice: a running answer finishes", whole)
same(s.process.wait(25), 0, "then the server ends with status 0")

# An exit handler of a library hangs: the process ends without it, or at the next signal.
hung = [Server("--drain-timeout", "0", env={"FAKE_EXIT_MS": "90000"}) for _ in range(2)]
for x in hung:
    x.process.send_signal(signal.SIGTERM)
hung_since = time.time()
ok(wait_for(lambda: all("exit handler" in x.text() for x in hung), 30), "all threads have ended, and an exit handler hangs")
begin = time.time()
hung[0].process.send_signal(signal.SIGTERM)
ok(wait_for(lambda: hung[0].process.poll() is not None, 15), "a second signal is read even then", hung[0].text()[-2000:])
same(hung[0].process.poll(), 1, "status 1")
ok(time.time() - begin < 3 and "second signal" in hung[0].text(), "at once", hung[0].text()[-2000:])
ok(wait_for(lambda: hung[1].process.poll() is not None, 30), "without a signal the process ends as well", hung[1].text()[-2000:])
same(hung[1].process.poll(), 0, "with status 0")
ok(time.time() - hung_since < 15 and "an exit handler is still busy: exiting without it" in hung[1].text(),
   f"after {time.time() - hung_since:.1f} s, not more than 15", hung[1].text()[-2000:])

# The engine thread is within a step that does not end: the process ends without it, or at the next signal.
impatient = Server("--drain-timeout", "3", env={"FAKE_STEP_US": "20000"})  # for the next test; its start takes no time behind the signals
stuck = [Server("--drain-timeout", "3", env={"FAKE_STEP_US": "90000000"}) for _ in range(2)]
for x in stuck:
    c = raw_connection(x.port)
    c.sendall(raw_post(CHAT, ASK))
    x.client = c
    x.wait_metric("num_requests_running", 1)
    x.process.send_signal(signal.SIGTERM)
stuck_since = time.time()

# requests that cannot finish in time get an error
s = impatient
streams = [raw_connection(s.port) for _ in range(2)]
streams[0].sendall(raw_post(CHAT, {**ASK, "stream": True}))
streams[1].sendall(raw_post(CHAT, ASK))
s.wait_metric("num_requests_running", 2)
begin = time.time()
s.process.send_signal(signal.SIGINT)


def read_all(c):
    data = b""
    while piece := c.recv(65536):
        data += piece
    return data


stream, whole = parallel([lambda c=c: read_all(c) for c in streams])
status = s.process.wait(25)
took = time.time() - begin
ok(status == 0 and 2 < took < 8, f"requests without end: status 0 after {took:.1f} s", s.text()[-2000:])
ok(b'"code":"shutting_down"' in stream and stream.rstrip().endswith((b"[DONE]", b"0"))
   and stream.count(b"[DONE]") == 1, "the stream ends with an error and [DONE]", stream[-600:])
ok(whole.startswith(b"HTTP/1.1 503") and b"shutting_down" in whole, "the whole answer is a 503", whole)

ok(wait_for(lambda: "ending the threads" in stuck[0].text(), 30), "the time for requests is over: the threads are ended")
begin = time.time()
stuck[0].process.send_signal(signal.SIGTERM)
same(stuck[0].process.wait(10), 1, "a second signal meanwhile: status 1")
ok(time.time() - begin < 5, "at once")
same(stuck[1].process.wait(25), 0, "a step that does not end: status 0")
ok(time.time() - stuck_since < 30 and "the engine thread is still busy: exiting without it" in stuck[1].text(),
   f"after {time.time() - stuck_since:.1f} s", stuck[1].text()[-2000:])

same(idle.process.wait(60), 0, "a client that reads nothing: status 0")
ok("the server is shutting down and the client reads nothing" in idle.text() and time.time() - drained_since < 60,
   f"after {time.time() - drained_since:.1f} s, not 600", idle.text()[-2000:])
data = read_all(patient_client)
ok(b'"completion_tokens":18' in data and time.time() - drained_since > 16, "an answer that takes longer than 15 s comes whole",
   data[-600:])
same(patient.process.wait(25), 0, "then the server ends with status 0")

# a second signal
s = Server(env={"FAKE_STEP_US": "20000"})
c = raw_connection(s.port)
c.sendall(raw_post(CHAT, ASK))
s.wait_metric("num_requests_running", 1)
s.process.send_signal(signal.SIGTERM)
# Two signals that arrive before the first is read are one.
ok(wait_for(lambda: "draining: " in s.text(), 30), "a first signal is read")
begin = time.time()
s.process.send_signal(signal.SIGTERM)
same(s.process.wait(10), 1, "a second signal: status 1")
ok(time.time() - begin < 5, "at once")

# the device is lost
s = Server(env={"FAKE_STEP_US": "50000", "FAKE_FAIL_STEP": "20"})


def ask_once(stream):
    def run():
        c = raw_connection(s.port)
        c.sendall(raw_post(CHAT, {**ASK, "stream": stream}))
        return read_all(c)
    return run


stream, whole = parallel([ask_once(True), ask_once(False)])
ok(b'"code":"device_error"' in stream and b"[DONE]" in stream, "device lost: an error in the stream", stream[-500:])
ok(whole.startswith(b"HTTP/1.1 503") and b"device_error" in whole, "503 for a whole answer", whole)
status = s.process.wait(25)
ok(status == 1 and "tigond: the device is lost" in s.text(), "and status 1 with a sentence", (status, s.text()))


# faults that end the start: one sentence, status 1
def fails(name, want, *args, env=None):
    try:
        out = subprocess.run([TIGOND, *args], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired:
        return ok(False, name, "it runs")
    lines = [x for x in out.stderr.splitlines() if x.startswith("tigond: ")]
    return ok(out.returncode == 1 and len(lines) == 1 and want in lines[0] and not out.stdout, name, out)


taken = socket.create_server(("127.0.0.1", 0))
port = str(taken.getsockname()[1])
fails("no options", "--model DIR is required")
fails("an unknown option", "did you mean --model?", "--modle", "x")
for wrong in ("localhost", "127.0.0.1/33", "::1/129", "10.0.0.0/", "10.0.0.0/8,"):
    fails(f"an address that is none: {wrong}", "--trusted-proxy: ", "--model", MODEL, "--port", "0", "--trusted-proxy", wrong)
fails("a host with its port", '--allowed-host: "b:80" is not', "--model", MODEL, "--port", "0", "--allowed-host", "a,b:80")
fails("a wrong value", "--port: 99999 is not between", "--model", MODEL, "--port", "99999")
fails("a missing directory", "No such file or directory", "--model", "/nowhere")
fails("a file that is no model", "neither a directory nor a GGUF file", "--model", MODEL + "/config.json")
fails("a missing tokenizer", "--tokenizer /nowhere", "--model", MODEL, "--tokenizer", "/nowhere")
fails("a port in use", "Address already in use; --port N takes another", "--model", MODEL, "--port", port)
fails("a host that is none", "--host", "--model", MODEL, "--host", "256.1.1.1")
fails("less than a page", "less than one page", "--model", MODEL, "--max-batched-tokens", "64", "--page-size", "128")
with tempfile.TemporaryDirectory() as empty:
    # nothing is logged before it
    out = subprocess.run([TIGOND, "--model", empty, "--port", "0"], capture_output=True, text=True, timeout=60)
    same((out.returncode, out.stderr), (1, f"tigond: --model {empty}: there is neither a config.json nor a GGUF file\n"), "a directory without a model")
    fails("a tokenizer directory without one", "tokenizer.json", "--model", MODEL, "--tokenizer", empty, "--port", "0")
fails("an engine that does not start", "told to fail", "--model", MODEL, "--port", "0", env={"FAKE_LOAD_FAILS": "1"})
out = subprocess.run([TIGOND, "--version"], capture_output=True, text=True)
ok(out.returncode == 0 and out.stdout.startswith("tigond ") and not out.stderr, "--version", out)
out = subprocess.run([TIGOND, "--help"], capture_output=True, text=True)
ok(out.returncode == 0 and "--max-num-seqs N" in out.stdout and not out.stderr, "--help", out)
done()
