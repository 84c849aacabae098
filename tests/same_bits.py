#!/usr/bin/env python3
"""Whether two builds of tigond answer alike, to the last bit of every log-probability.

    same_bits.py record TIGOND FILE [--model DIR] [--dtype TYPE] [--kernels VARIANT] [--mode MODE] [--prompts N] [OPTION ...]
    same_bits.py compare FILE FILE
    same_bits.py check TIGOND [--model DIR] [--dtype TYPE] [--kernels VARIANT] [--prompts N] [OPTION ...]

record sends 100 requests, always the same ones, and writes their answers to FILE, a line of JSON each, below a line that
says of which model they are. Numbers are kept as the text that the server printed: nine digits, which tell every float
from every other. --prompts takes fewer of the 100, evenly spread. A model without *.safetensors gets synthetic weights and
the tokenizer of models/lexis; a GGUF file has to be made of models/lexis. Each OPTION goes to every daemon (--program-cache DIR, ...),
unless a mode has another value for it. MODE is one of

    plain    one request at a time, and no prefix cache (the default)
    batched  all requests at once
    cached   each request behind one with a part of its prompt, or with all of it: the prefix cache has to find that
    disk     as cached, with a restart between the two, so that it is found in files
    host     as cached, but all that comes before is asked first, in so little memory that it is found in the host's
    apart    all requests at once to a decode worker, which has a prefill worker compute the prompts: all but those whose own
             log-probabilities are asked for, which come from one process anyway

compare names the first difference, counts the requests that differ, and ends with status 1 when there is one. It takes
files of different modes as well: the mode must not change an answer. Files of different models, number formats or kernels
are refused. Where one file has fewer requests, only these are compared.

check does both in one, as a test: the answers of every other mode are those of plain. Its kernels are those that the device
takes by itself, unless VARIANT names others; those of record are x86, which it notes in FILE.
"""
import argparse
import glob
import json
import os
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "http"))
import harness  # noqa: E402
from harness import MODEL, Server, done, goldens, ok, parallel  # noqa: E402

PAGE = 64
MODES = ("plain", "batched", "cached", "disk", "host", "apart")
KERNELS = {"record": ("generic", "x86", "nvidia"), "check": ("auto", "generic", "x86", "nvidia")}
COUNT = 100
# Many lie around the ends of pages, which are also those of the recurrent layers' chunks.
LENGTHS = ([1, 2, 3, 17, 31, 32, 33] + [63, 64, 65] * 4 + [62, 66] + [n + d for n in (128, 192, 256) for d in (-1, 0, 1)] * 2 +
           [n + d for n in (320, 384, 512, 640, 1024) for d in (-1, 0, 1)])
LONG = [2047, 2048, 2049, 3000, 4095, 4096]
GREEDY = {"temperature": 0}
# What a request asks for besides its log-probabilities. Request i asks for entry i modulo their number.
KINDS = (
    GREEDY,
    {"temperature": 1},
    {"temperature": 0.9, "n": 4},
    {**GREEDY, "echo": True},
    {"temperature": 0.7, "prompt_logprobs": 5},
    {"temperature": 0.8, "presence_penalty": 0.6, "frequency_penalty": 0.4},
    {**GREEDY, "repetition_penalty": 1.3},
    {"temperature": 1.2, "top_k": 20},
    {"temperature": 1, "top_p": 0.8},
    {"temperature": 1.3, "min_p": 0.05},
    {"temperature": 1, "top_k": 50, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.1, "presence_penalty": -0.5, "n": 4},
    {"temperature": 1, "echo": True, "prompt_logprobs": 3, "n": 2},
    {**GREEDY, "echo": True, "max_tokens": 0},
)


servers = []  # all that were started


def synthetic(model):
    """A directory with a config.json alone."""
    return not model.endswith(".gguf") and not glob.glob(os.path.join(model, "*.safetensors"))


def bodies(model):
    """The requests: a prompt in two is random ids, the other one a piece of lexis's recorded prompts and answers."""
    with open(os.path.join(MODEL if model.endswith(".gguf") else model, "config.json")) as f:
        config = json.load(f)
    longest, vocab = config["max_position_embeddings"], config["vocab_size"]
    text = [token for c in goldens() for token in c["prompt_ids"] + c["output_ids"]]
    r = random.Random(11)
    # Synthetic models are large: their prompts have half the tokens.
    lengths = LENGTHS + (LONG[1::4] if synthetic(model) else LONG)
    lengths += [r.randrange(1, 300 if synthetic(model) else 1000) for _ in range(COUNT - len(lengths))]
    r.shuffle(lengths)
    for i, length in enumerate(lengths):
        r = random.Random(i)
        body = {"seed": i, "logprobs": 5, "max_tokens": r.randrange(8, 17), "ignore_eos": i % 3 > 0, **KINDS[i % len(KINDS)],
                "return_token_ids": True}
        length = min(length, longest - max(1, body["max_tokens"]))
        at = r.randrange(len(text))
        ids = [r.randrange(3, vocab) for _ in range(length)] if i % 2 else (text[at:] + text * (1 + length // len(text)))[:length]
        yield i, {"prompt": ids, **body}


def part_of(i, body):
    """What is asked before the request, so that the cache has some of it."""
    n = len(body["prompt"])
    if i % 4 < 2 and not scored(body):
        return body
    r = random.Random(i)
    return {"prompt": body["prompt"][:r.randrange(min(n, PAGE + 1), n + 1)], "max_tokens": 1, "temperature": 0}


def scored(body):
    """The prompt's own log-probabilities are asked for: all of it has to be computed."""
    return "echo" in body or "prompt_logprobs" in body


def ask(server, body):
    """What the answer says of its request, and how many tokens of the prompt were cached."""
    status, headers, answer = server.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"},
                                             timeout=7200)
    if status != 200:
        raise RuntimeError(f"status {status}: {answer.decode()}\n{json.dumps(body)[:1000]}")
    choices = json.loads(answer, parse_float=str, parse_int=str)["choices"]
    return choices, int(re.match(r"cached=(\d+)", headers["X-Tigon-Cache"])[1])


def ask_all(server, requests):
    answers = parallel([lambda body=body: ask(server, body)[0] for _, body in requests])
    for a in answers:
        if isinstance(a, Exception):
            raise a
    return answers


def ask_behind(server, requests, between=None):
    """Asks each request behind a part of it, which comes directly before it. With `between` all parts come before, and then
    it is called, for the server that is asked for the rest."""
    parts = [part_of(i, body) for i, body in requests]
    told = []
    if between:
        told = [ask(server, part)[0] for part in parts]
        server = between()
    answers = []
    for k, (i, body) in enumerate(requests):
        before = told[k] if between else ask(server, parts[k])[0]
        answer, cached = ask(server, body)
        if len(parts[k]["prompt"]) > PAGE and not scored(body) and not cached:
            raise RuntimeError(f"request {i}: nothing was found of the {len(parts[k]['prompt'])} tokens that were asked before")
        if parts[k] is body and answer != before:
            raise RuntimeError(f"request {i} is answered in another way the second time: {difference(before, answer)}")
        answers.append(answer)
    return answers


def start(args, *more):
    large = ("--synthetic-weights", "1", "--tokenizer", MODEL, "--max-num-seqs", "16", "--cache-memory", "1500M",
             "--max-model-len", "4608") if synthetic(args.model) else ()
    servers.append(Server("--dtype", args.dtype, "--kernels", args.kernels, *large, *args.options, *more, model=args.model, timeout=3600))
    return servers[-1]


def start_on(args, folder):
    """A daemon that keeps its cache in a folder, and knows its content."""
    server = start(args, "--cache-dir", folder)
    while json.loads(server.get("/cache")[1])["totals"]["tiers"]["disk"]["status"] == "opening":
        time.sleep(0.02)
    return server


def answers_of(args, requests):
    if args.mode == "disk":
        with tempfile.TemporaryDirectory(prefix="same-bits-") as folder:
            first = start_on(args, folder)

            def restart():
                first.stop("the cache is written")
                return start_on(args, folder)
            return ask_behind(first, requests, restart)
    if args.mode == "host":
        server = start(args, "--cache-memory", "10M", "--max-num-seqs", "4", "--host-cache-memory", "512M")
        answers = ask_behind(server, requests, lambda: server)
        if not server.metrics()['cache_tier_hits_total{tier="host"}']:
            raise RuntimeError("nothing came from the host's memory")
        return answers
    if args.mode == "apart":
        beat = ("--transfer-heartbeat", "60000")
        prefill = start(args, "--role", "prefill", "--transfer-listen", "tcp://127.0.0.1:0", *beat)
        address = re.search(r"decode workers at (tcp://\S+?),? ", prefill.text())[1]
        decode = start(args, "--role", "decode", "--prefill", address, "--disaggregation-min-tokens", "1", *beat)
        if decode.wait_metric("transfer_peers", 1, 60) is None:
            raise RuntimeError("the workers do not meet:\n" + decode.text() + prefill.text())
        answers = ask_all(decode, requests)
        sent, came = sum(not scored(body) for _, body in requests), decode.metrics()["transfer_received_total"]
        if came != sent:
            raise RuntimeError(f"{came} of {sent} prompts came from the prefill worker:\n" + decode.text() + prefill.text())
        return answers
    server = start(args, *(("--prefix-cache", "off") if args.mode == "plain" else ()))
    if args.mode == "plain":
        return [ask(server, body)[0] for _, body in requests]
    return ask_all(server, requests) if args.mode == "batched" else ask_behind(server, requests)


def chosen(args):
    """The requests of a run, evenly spread; tells the harness which daemon is asked."""
    harness.TIGOND = os.path.abspath(args.tigond)
    args.model = os.path.normpath(args.model)
    every = list(bodies(args.model))
    return [every[k * COUNT // args.prompts] for k in range(args.prompts)]


def check(args):
    requests, want = chosen(args), None
    for args.mode in MODES:
        answers = answers_of(args, requests)
        want = want or answers
        differ = [d for a, b in zip(want, answers) if (d := difference(a, b, "choices"))]
        ok(not differ, f"{args.mode}: {len(answers)} requests", "\n".join(differ[:3]))
        for s in servers:
            s.kill()
    done()


def record(args):
    requests = chosen(args)
    begin = time.time()
    answers = answers_of(args, requests)
    with open(args.file, "w") as f:
        head = {"model": os.path.basename(args.model), "dtype": args.dtype, "kernels": args.kernels, "mode": args.mode}
        for line in (head, *({"i": i, "request": body, "choices": a} for (i, body), a in zip(requests, answers))):
            f.write(json.dumps(line) + "\n")
    tokens = sum(len(body["prompt"]) for _, body in requests)
    print(f"{args.file}: {len(answers)} requests with {tokens} tokens in their prompts, {time.time() - begin:.0f} s")
    return 0


def difference(a, b, at=""):
    """Where two answers differ, and the value of each there; None: they do not."""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(f"{at}.{k}", a.get(k), b.get(k)) for k in (*a, *(k for k in b if k not in a))]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(f"{at}[{k}]", x, y) for k, (x, y) in enumerate(zip(a, b))]
    else:
        return None if a == b else f"{at}: {json.dumps(a)[:300]} and {json.dumps(b)[:300]}"
    return next((d for k, x, y in pairs if (d := difference(x, y, k))), None)


def read(path):
    with open(path) as f:
        head, *lines = (json.loads(line) for line in f)
    return {k: head[k] for k in ("model", "dtype", "kernels")}, {line["i"]: line for line in lines}


def compare(args):
    (head, a), (other, b) = read(args.a), read(args.b)
    few, many = sorted((a, b), key=len)
    if head != other or not few or not few.keys() <= many.keys() or any(few[i]["request"] != many[i]["request"] for i in few):
        print(f"{args.a} and {args.b} do not have answers of the same model to the same requests: {head}, {other}")
        return 2
    differ = [(i, d) for i in few if (d := difference(a[i]["choices"], b[i]["choices"], "choices"))]
    for i, d in differ[:1]:
        request = {**a[i]["request"], "prompt": f"{len(a[i]['request']['prompt'])} tokens"}
        print(f"request {i}, {json.dumps(request)}\n    {d}")
    print(f"{args.a} and {args.b}: {len(differ)} of {len(few)} requests differ")
    return 1 if differ else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "check"):
        p = commands.add_parser(name)
        p.add_argument("tigond")
        p.add_argument("--model", default=MODEL)
        p.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
        p.add_argument("--kernels", default="auto" if name == "check" else "x86", choices=KERNELS[name])
        p.add_argument("--prompts", type=int, default=COUNT, choices=range(1, COUNT + 1), metavar="N")
        if name == "record":
            p.add_argument("file")
            p.add_argument("--mode", default="plain", choices=MODES)
    p = commands.add_parser("compare")
    p.add_argument("a")
    p.add_argument("b")
    args, args.options = parser.parse_known_args()
    if args.command == "compare" and args.options:
        parser.error(f"{args.options} is too much")
    return {"record": record, "compare": compare, "check": check}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
