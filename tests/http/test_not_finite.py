"""A model that computes NaN: the request fails with status 500, or with an error in its stream; other requests go on."""
from harness import Server, done, ok, parallel, prefill_worker, decode_worker, same, wait_for

NAN = {"FAKE_NAN_SEED": "1300", "FAKE_STEP_US": "3000"}  # With seed 1300 + n the draw of token n fails; n counts from 0.
PATH = "/v1/completions"


def ask(length, **more):
    """A request with a prompt of `length` tokens."""
    return {"prompt": list(range(100, 100 + length)), "max_tokens": 9, "ignore_eos": True, "temperature": 1, **more}


def fails(s, body, name):
    status, answer = s.post(PATH, body)
    error = answer.get("error") or {}
    ok(status == 500 and error.get("type") == "server_error" and "NaN" in error.get("message", ""), f"{name}: 500",
       (status, answer))


s = Server(env={**NAN, "FAKE_STEP_US": "20000", "FAKE_NAN_SCORE": "333"})
fails(s, ask(100, seed=1300), "the first token")
same(s.post(PATH, ask(100, seed=1300, max_tokens=0))[0], 200, "which max_tokens 0 does not draw")
fails(s, ask(101, seed=1303), "a later token")
fails(s, ask(102, seed=1302, n=4), "all choices")
fails(s, {**ask(102, seed=1301), "prompt": [list(range(8)), list(range(90))]}, "one of two prompts")
fails(s, ask(300, seed=1300, max_tokens=1, logprobs=2, echo=True), "log-probabilities of the prompt")
fails(s, ask(240, seed=7, max_tokens=1, logprobs=2, echo=True), "those of one token of it")
same(s.post(PATH, ask(230, seed=7, max_tokens=1, logprobs=2, echo=True))[0], 200, "not of another prompt")
fails(s, ask(100, seed=1300, stream=True), "a stream whose first token fails")
events = s.stream(PATH, ask(97, seed=1304))
ok(len(events) > 2 and "NaN" in events[-2]["error"]["message"] and events[-1] == "[DONE]", "a stream that has begun", events)

answers = parallel([lambda: s.post(PATH, ask(101, seed=1305, max_tokens=60)), lambda: s.post(PATH, ask(101, seed=7, max_tokens=60))])
same([status for status, _ in answers], [500, 200], "a request beside one that fails goes on")
same(answers[1][1]["usage"]["completion_tokens"], 60, "to its end")
ok(s.wait_metric("num_requests_running", 0) is not None, "no request is left")  # counted behind the answers
same(s.metrics()["requests_not_finite_total"], 9, "/metrics counts the requests that failed")
ok(wait_for(lambda: s.text().count(" error: cmpl-") == 9), "and the log names them", s.text()[-2000:])
same(s.post(PATH, ask(100, seed=7))[1]["usage"]["prompt_tokens_details"]["cached_tokens"], 64,
     "pages of the prompts that were right are used again")
s.stop()

# Prefill and decode apart: the prefill worker's draw fails, and so does each further try.
p = prefill_worker(env=NAN)
d = decode_worker([p.endpoint], "--disaggregation-min-tokens", "16", env=NAN)
ok(d.wait_metric("transfer_peers", 1) is not None, "the workers have met")
fails(d, ask(100, seed=1300), "a prompt that another worker computed")
same(d.post(PATH, ask(100, seed=7))[0], 200, "another request goes on")
failed = p.metrics()["requests_not_finite_total"]
ok(failed > 0, "the prefill worker counts the prompt, too", failed)
ok(wait_for(lambda: p.text().count("for a decode worker: the model computed NaN") == failed), "and says so in its log",
   (p.text()[-2000:], failed))
d.stop("the decode worker ends with status 0")
p.stop("the prefill worker, too")
done()
