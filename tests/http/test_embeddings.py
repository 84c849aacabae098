"""/v1/embeddings, /v1/score and /v1/rerank: shapes, values, refusals; the same bits alone, in a batch, cut and after a hit."""
import base64
import io
import json
import math
import os
import struct
import tempfile
import threading
import zipfile

from harness import MODEL, Server, TIGOND, decode_worker, done, make_model, ok, parallel, prefill_worker, same, token_ids

FAKE = "fake" in os.path.basename(TIGOND)
D = json.load(open(os.path.join(MODEL, "config.json")))["hidden_size"]
TEXT = "a violin is a bowed stringed instrument"
LONG = [token_ids(100 + i, n) for i, n in enumerate((700, 64, 65, 1, 300, 129))]


def embed(s, given, path="/v1/embeddings", **more):
    """The vectors, or the error; in the order of their index."""
    status, answer = s.post(path, {"model": "lexis", "input": given, **more})
    if status != 200:
        raise RuntimeError(f"{status}: {answer}")
    assert [d["index"] for d in answer["data"]] == list(range(len(answer["data"])))
    return [d["embedding"] for d in answer["data"]]


def refused(s, path, body, param, say, status=400, code=None):
    got, answer = s.post(path, body)
    error = answer.get("error", {})
    ok(got == status and error.get("param") == param and say in error.get("message", "") and (not code or error.get("code") == code),
       f"refused: {error.get('message')}", (got, answer))


def near(a, b, bound=1e-6):
    return len(a) == len(b) and all(abs(x - y) <= bound * max(1, abs(y)) for x, y in zip(a, b))


def unit(v):
    norm = math.sqrt(sum(x * x for x in v))
    return [x / norm for x in v]


def array(archive, name):
    """An array of an .npz, flat."""
    with io.BytesIO(archive.read(name + ".npy")) as f:
        f.read(8)
        head = f.read(struct.unpack("<H", f.read(2))[0])
        kind = "f" if b"f4" in head else "i"
        data = f.read()
    return struct.unpack(f"<{len(data) // 4}{kind}", data)


s = Server("--max-batched-tokens", "256")

# ---- shapes

status, answer = s.post("/v1/embeddings", {"model": "lexis", "input": TEXT, "user": "someone"})
n = len(s.post("/tokenize", {"prompt": TEXT})[1]["tokens"])
ok(status == 200 and answer["object"] == "list" and answer["model"] == "lexis" and answer["id"].startswith("embd-") and
   [sorted(d) for d in answer["data"]] == [["embedding", "index", "object"]] and answer["data"][0]["object"] == "embedding",
   "the shape of an answer", (status, answer))
same((answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]), (n, n), "its usage")
vector = answer["data"][0]["embedding"]
ok(len(vector) == D and all(isinstance(x, float) for x in vector) and abs(sum(x * x for x in vector) - 1) < 1e-6, "a vector of norm 1")
ids = s.post("/tokenize", {"prompt": TEXT})[1]["tokens"]
same([embed(s, g) for g in ([TEXT], ids, [ids], [TEXT, TEXT])], [[vector]] * 3 + [[vector] * 2], "lists, ids and lists of ids")
same(embed(s, TEXT, path="/embeddings"), [vector], "without /v1")
(text,) = embed(s, TEXT, encoding_format="base64")
same(list(struct.unpack(f"<{D}f", base64.b64decode(text, validate=True))), [struct.unpack("<f", struct.pack("<f", x))[0] for x in vector],
     "base64 of little-endian floats")
for k in (1, 5, D):
    (cut,) = embed(s, TEXT, dimensions=k)
    ok(len(cut) == k and (near(cut, unit(vector[:k])) if any(vector[:k]) else not any(cut)), f"{k} dimensions", cut[:9])
(cut,) = embed(s, TEXT, dimensions=5, encoding_format="base64")
same(len(base64.b64decode(cut)), 20, "of base64, too")
(mean,) = embed(s, LONG[0], pooling="mean")
ok(mean != embed(s, LONG[0])[0] and embed(s, LONG[0], pooling="last") == embed(s, LONG[0]), "the request chooses the pooling")
same(embed(s, LONG[3], pooling="mean"), embed(s, LONG[3]), "which makes no difference to one token")
same(embed(s, LONG[0], truncate_prompt_tokens=100), embed(s, LONG[0][-100:]), "the last tokens of a prompt")
same(embed(s, LONG[1], truncate_prompt_tokens=-1), embed(s, LONG[1]), "as many as fit")
same(embed(s, [7] * 5000, truncate_prompt_tokens=-1), embed(s, [7] * 4096), "of a prompt that is too long")
same(embed(s, "word " * 500000 + TEXT, truncate_prompt_tokens=5), embed(s, ids[-5:]), "of half a million tokens")
same(len(embed(s, list(range(3, 4099)))), 1, "a prompt may fill the context")
many = embed(s, [[i % 1000 + 1, i + 2] for i in range(2048)])
ok(len(many) == 2048 and embed(s, [500, 1501]) == many[1499:1500], "2048 inputs")

# ---- refusals

E = "/v1/embeddings"
for body, param, say in (
        ({}, "input", "missing"), ({"input": None}, "input", "missing"), ({"input": ""}, "input", "is empty"),
        ({"input": []}, "input", "is empty"), ({"input": ["a", ""]}, "input[1]", "is empty"), ({"input": [[]]}, "input[0]", "is empty"),
        ({"input": ["a", 3]}, "input[1]", "a string"), ({"input": {"a": 1}}, "input", "must be"), ({"input": [99999999]}, "input[0]", "vocabulary"),
        ({"input": "a", "dimensions": 0}, "dimensions", "from 1"), ({"input": "a", "dimensions": D + 1}, "dimensions", str(D)),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "must be"),
        ({"input": "a", "pooling": "max"}, "pooling", "must be"), ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "0"),
        ({"input": ["a"] * 2049}, "input", "2049")):
    refused(s, E, body, param, say)
refused(s, E, {"input": "a", "model": "other"}, "model", "not found", 404)
refused(s, E, {"input": [7] * 4097}, "input", "context is 4096 tokens, and 4097", code="context_length_exceeded")
refused(s, E, {"input": "word " * 20000}, "input", "more than 8192 are in the input", code="context_length_exceeded")
refused(s, E, {"input": [[7], [8] * 4097, [9]]}, "input[1]", "4097 are in input[1]", code="context_length_exceeded")
refused(s, E, {"input": ["a", "b", "c", "word " * 20000]}, "input[3]", "more than 8192 are in input[3]", code="context_length_exceeded")
refused(s, E, {"input": ["a", "word " * 1100000], "truncate_prompt_tokens": 5}, "input[1]", "more than 1048576 tokens are in input[1]",
        code="context_length_exceeded")
refused(s, "/v1/completions", {"prompt": ["a", [7] * 4097][1:], "max_tokens": 5}, "prompt[0]", "4097 in prompt[0], 5 to generate", code="context_length_exceeded")
same(s.request("GET", E)[0], 405, "GET is not allowed")

# ---- the same bits

alone = {p: [embed(s, g, pooling=p, cache_prompt=False)[0] for g in LONG] for p in ("last", "mean")}
for p in alone:
    same(embed(s, LONG, pooling=p), alone[p], f"{p}: in a batch")
    same(embed(s, LONG, pooling=p), alone[p], f"{p}: after a hit")
    same(parallel([lambda g=g: embed(s, g, pooling=p)[0] for g in LONG]), alone[p], f"{p}: at the same time")
status, answer = s.post(E, {"input": LONG[0]})
cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
status, answer = s.post(E, {"input": LONG[0], "pooling": "mean"})
same((cached, answer["usage"]["prompt_tokens_details"]["cached_tokens"]), (640, 0), "a mean takes nothing from the cache")
other = Server("--max-batched-tokens", "1024", "--pooling", "mean")
same(embed(other, LONG), alone["mean"], "uncut, with the option --pooling")
same(embed(other, LONG, pooling="last"), alone["last"], "the last tokens, too")
other.stop("that server ends with status 0")

# A batch is not refused because others wait, and no more than its turn is taken.
few = Server("--max-num-seqs", "2", "--max-queued-requests", "8")
inputs = [[i + 1, i % 7 + 2] for i in range(1000 if FAKE else 50)]
alone_too = embed(few, inputs)
batches = [threading.Thread(target=lambda: got.append(embed(few, inputs))) for _ in range(3)]
got, between = [], []
for t in batches:
    t.start()
while any(t.is_alive() for t in batches):
    between.append(embed(few, LONG[0]))
ok(got == [alone_too] * 3 and between == [alone["last"][:1]] * len(between), f"three batches of {len(inputs)} inputs in a queue of eight", len(got))
few.stop("that server ends with status 0, too")

# beside a stream
events = []
reader = threading.Thread(target=lambda: events.extend(
    s.stream("/v1/completions", {"prompt": TEXT, "max_tokens": 200, "ignore_eos": True, "temperature": 0})))
reader.start()
beside = [embed(s, LONG, pooling=p) for p in ("last", "mean")]
reader.join()
ok(beside == [alone["last"], alone["mean"]] and events[-1] == "[DONE]" and len(events) > 100, "beside a stream", len(events))

if not FAKE and "float32" in os.environ.get("TIGOND_ARGS", ""):
    with zipfile.ZipFile(os.path.join(MODEL, "activations.npz")) as z:
        prompt, states = list(array(z, "prompt_ids")), array(z, "final_norm")
    rows = [states[i * D:(i + 1) * D] for i in range(len(prompt))]
    (got,) = embed(s, prompt)
    ok(near(got, unit(rows[-1]), 1e-5), "the last hidden state of the reference")
    (got,) = embed(s, prompt, pooling="mean")
    ok(near(got, unit([sum(column) for column in zip(*rows)]), 1e-5), "the mean of the reference")

# ---- scores

S, R = "/v1/score", "/v1/rerank"
QUERY, DOCUMENTS = "Which instrument is played with a bow?", ["violin: a bowed instrument", "the sea is deep", "a bow", "violin: a bowed instrument"]


def likelihood(first, second):
    """From an echo's log-probabilities."""
    first, second = ([i for t in texts for i in s.post("/tokenize", {"prompt": t})[1]["tokens"]] for texts in (first, second))
    status, answer = s.post("/v1/completions", {"prompt": first + second, "echo": True, "logprobs": 0, "max_tokens": 0})
    return sum(answer["choices"][0]["logprobs"]["token_logprobs"][len(first):]) / len(second)


status, answer = s.post(S, {"model": "lexis", "text_1": QUERY, "text_2": DOCUMENTS})
ok(status == 200 and answer["object"] == "list" and answer["id"].startswith("score-") and
   [(d["index"], d["object"]) for d in answer["data"]] == [(i, "score") for i in range(4)], "the shape of scores", (status, answer))
scores = [d["score"] for d in answer["data"]]
want = [likelihood([QUERY], [d]) for d in DOCUMENTS]
ok(near(scores, want, 1e-5) and max(scores) <= 0 and scores[0] == scores[3], "the mean log-probability of text_2 behind text_1", (scores, want))
same([[d["score"] for d in s.post(S, {"text_1": a, "text_2": b})[1]["data"]] for a, b in
      ((QUERY, DOCUMENTS[1]), ([QUERY] * 4, DOCUMENTS), ([QUERY], DOCUMENTS))], [scores[1:2], scores, scores], "one, pairs, a list of one")
status, answer = s.post("/score", {"text_1": DOCUMENTS[:2], "text_2": QUERY})
ok(status == 200 and len(answer["data"]) == 2, "several texts before one", answer)
text = "x " * 400
before = s.post(S, {"text_1": text, "text_2": "a"})[1]
status, answer = s.post(S, {"text_1": text, "text_2": ["a", "b c"]})
ok(answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 300, "text_1 is found in the cache", answer["usage"])
same(answer["data"][0]["score"], before["data"][0]["score"], "which changes no bit")
same(s.post(S, {"text_1": text, "text_2": ["a", "b c"], "cache_prompt": False})[1]["data"], answer["data"], "nor does a batch")
# The last token of text_1 is computed for the first score, so of whole pages all but the last can be found.
for n in (127, 128, 129, 192):
    text = next(t for k in range(200) if len(s.post("/tokenize", {"prompt": (t := f"{n} " + "y " * k + "y")})[1]["tokens"]) == n)
    s.post(S, {"text_1": text, "text_2": "a " * 200})
    status, answer = s.post(S, {"text_1": text, "text_2": "b"})
    same(answer["usage"]["prompt_tokens_details"]["cached_tokens"], (n - 1) // 64 * 64, f"a text_1 of {n} tokens is found as far as it can be")

status, answer = s.post(R, {"model": "lexis", "query": QUERY, "documents": DOCUMENTS})
want = sorted(range(4), key=lambda i: -likelihood([DOCUMENTS[i], "\n"], [QUERY]))
ok(status == 200 and answer["id"].startswith("rerank-") and [r["index"] for r in answer["results"]] == want and
   all(sorted(r) == ["index", "relevance_score"] for r in answer["results"]), "documents in the order of the query's likelihood",
   (status, answer, want))
best = answer["results"]
ok(near([r["relevance_score"] for r in best], [likelihood([DOCUMENTS[i], "\n"], [QUERY]) for i in want], 1e-5), "which is the score")
status, answer = s.post("/rerank", {"query": QUERY, "documents": [{"text": d} for d in DOCUMENTS], "top_n": 2, "return_documents": True})
same(answer["results"], [{**r, "document": {"text": DOCUMENTS[r["index"]]}} for r in best[:2]], "the two best, with their texts")
status, answer = s.post("/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True, "raw_scores": False, "top_n": 3})
same(answer, [{"index": r["index"], "score": r["relevance_score"], "text": DOCUMENTS[r["index"]]} for r in best[:3]],
     "Text Embeddings Inference's form: a list of the same")
same([s.post(R, {"query": QUERY, "documents": DOCUMENTS, "top_n": n})[1].get("results") for n in (9, 0)], [best] * 2, "more than there are, or 0: all")
long = "word \"é\"\n" * 3000
status, answer = s.post(R, {"query": "a", "documents": ["b", long[:5000]], "return_documents": True})
ok(status == 200 and {r["document"]["text"] for r in answer["results"]} == {"b", long[:5000]}, "a long text is returned whole", answer)

for body, param, say in (
        ({"text_2": "a"}, "text_1", "missing"), ({"text_1": "a"}, "text_2", "missing"), ({"text_1": "a", "text_2": ""}, "text_2", "is empty"),
        ({"text_1": ["a", "b"], "text_2": ["c", "d", "e"]}, "text_2", "2 texts and text_2 3"), ({"text_1": "a", "text_2": []}, "text_2", "0 texts"),
        ({"text_1": "a", "text_2": ["b", 3]}, "text_2[1]", "a string"), ({"text_1": "a", "text_2": ["b"] * 1025}, "text_2", "1025 texts")):
    refused(s, S, body, param, say)
for body, param, say in (
        ({"documents": ["a"]}, "query", "missing"), ({"query": "a"}, "documents", "missing"), ({"query": "a", "documents": []}, "documents", "0 texts"),
        ({"query": "a", "documents": "b"}, "documents", "an array"), ({"query": "a", "documents": [{"title": "b"}]}, "documents[0].text", "a string"),
        ({"query": "a", "texts": ["b", 3]}, "texts[1]", "a string"), ({"query": "a", "documents": [""]}, "documents[0]", "is empty"), ({"query": "a", "documents": ["b"], "top_n": -1}, "top_n", "from 0")):
    refused(s, R, body, param, say)
long = "word " * 5000
n, one = (len(s.post("/tokenize", {"prompt": t})[1]["tokens"]) for t in (long, "a"))
for path, body, param, say in (
        (S, {"text_1": long, "text_2": ["a", "b"]}, "text_1", f"context is 4096 tokens, and {n + one} are in text_1 and text_2[0] together"),
        (S, {"text_1": ["a"], "text_2": ["a", long]}, "text_2[1]", f"and {n + one} are in text_1[0] and text_2[1] together"),
        (S, {"text_1": ["a", long], "text_2": ["a", "b"]}, "text_1[1]", f"are in text_1[1] and text_2[1] together"),
        (S, {"text_1": "a", "text_2": long * 3}, "text_2", "more than 8192 are in text_1 and text_2 together"),
        (S, {"text_1": ["a", long * 3], "text_2": "b"}, "text_1[1]", "more than 8192 are in text_1[1] and text_2 together"),
        (R, {"query": "a", "documents": ["b", "c", long]}, "documents[2]", "are in documents[2] and query together"),
        (R, {"query": long, "texts": ["b", "c"]}, "query", "are in texts[0] and query together")):
    refused(s, path, body, param, say, code="context_length_exceeded")
refused(s, S, {"text_1": "a", "text_2": "b", "model": "x"}, "model", "not found", 404)

# ---- counted; nothing is left

before = s.metrics()
embed(s, LONG)
s.post(R, {"query": QUERY, "documents": DOCUMENTS})
after = s.metrics()
same([after[k] - before[k] for k in ("embeddings_total", "scored_texts_total", 'request_success_total{finished_reason="stop"}',
                                     "generation_tokens_total", "requests_not_finite_total")], [6, 4, 10, 0, 0], "the metrics count them")
ok(s.wait_metric("num_requests_running", 0) is not None, "no request is left")
s.stop()

if FAKE:
    # a text whose only byte has no token
    with tempfile.TemporaryDirectory() as where:
        model = make_model(os.path.join(where, "lexis"), [])
        tokenizer = os.path.join(model, "tokenizer.json")
        with open(tokenizer) as f:
            t = json.load(f)
        os.remove(tokenizer)
        del t["model"]["vocab"]["\u0101"]  # the byte 1
        with open(tokenizer, "w") as f:
            json.dump(t, f)
        s = Server(model=model)
        for path, body, param in ((S, {"text_1": "\x01", "text_2": "a"}, "text_1"), (S, {"text_1": "a", "text_2": ["b", "\x01"]}, "text_2[1]"),
                                  (R, {"query": "a", "documents": ["b", "\x01"]}, "documents[1]"), (R, {"query": "\x01", "texts": ["b"]}, "query"),
                                  ("/v1/embeddings", {"input": ["a", "\x01"]}, "input[1]")):
            refused(s, path, body, param, "no tokens")
        s.stop()

    s = Server(env={"FAKE_NAN_SCORE": "333"})
    status, answer = s.post(E, {"input": [[5, 6], [5, 333, 6]], "pooling": "mean"})
    ok(status == 500 and "NaN" in answer["error"]["message"], "a hidden state that is no number", (status, answer))
    same(s.post(E, {"input": [5, 6]})[0], 200, "another request goes on")
    s.stop()
    # A decode worker computes its vectors itself; a prefill worker has no such endpoint.
    p = prefill_worker()
    d = decode_worker([p.endpoint], "--disaggregation-min-tokens", "16")
    ok(d.wait_metric("transfer_peers", 1) is not None, "two workers have met")
    same(embed(d, LONG), alone["last"], "the decode worker gives the same vectors")
    same((p.metrics()["transfer_sent_total"], d.metrics()["transfer_missed_total"]), (0, 0), "no prompt was handed over, or missed")
    same(p.post(E, {"input": "a"})[0], 404, "the prefill worker has no embeddings")
    d.stop("the decode worker ends with status 0")
    p.stop("the prefill worker, too")
done()
