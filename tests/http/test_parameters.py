"""Parameters of chat and completions that vLLM has, the whole way: stop_reason and include_stop_str_in_output,
return_tokens_as_token_ids, truncate_prompt_tokens, best_of, continue_final_message; and /tokenizer_info."""
import json
import os

from harness import MODEL, Server, done, goldens, ok, same, token_ids

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
case = next(c for c in goldens() if c["name"] == "define-violin")
TEXT, IDS, PROMPT = case["output"], case["output_ids"], case["prompt_ids"]

s = Server()


def choices(path, body):
    """The choices of a whole answer. A stream of the same request has to add up to them."""
    status, whole = s.post(path, body)
    if status != 200:
        raise RuntimeError(f"{status}: {whole}")
    sums = {}
    for event in s.stream(path, body)[:-1]:
        for c in event["choices"]:
            text, end = sums.get(c["index"], ("", None))
            piece = c["delta"].get("content", "") if "delta" in c else c["text"]
            sums[c["index"]] = text + piece, {k: c[k] for k in ("finish_reason", "stop_reason")} if c["finish_reason"] else end
            if ("stop_reason" in c) != bool(c["finish_reason"]):
                ok(False, "the last chunk alone has a stop_reason", c)
    got = [(c["message"]["content"] if "message" in c else c["text"], c["finish_reason"], c["stop_reason"]) for c in whole["choices"]]
    same([(sums[i][0], *sums[i][1].values()) for i in sorted(sums)], got, "the stream says the same")
    return got


def refused(path, body, param, text):
    status, answer = s.post(path, body)
    error = answer.get("error", {})
    ok(status == 400 and error["param"] == param and text in error["message"], f"refused: {text}", answer)


# ---- the end of an answer ----

CUT = 6  # a token in the middle of the answer
for path, ask in ((CHAT, {"messages": case["messages"]}), (COMPLETE, {"prompt": PROMPT})):
    ask["temperature"] = 0
    same(choices(path, ask), [(TEXT, "stop", None)], "an end token of the model is no reason")
    same(choices(path, {**ask, "max_tokens": 3})[0][1:], ("length", None), "nor is the number of tokens")
    for include in (False, True):
        ask["include_stop_str_in_output"] = include
        same(choices(path, {**ask, "n": 2, "stop": ["nothing", "stringed inst"]}),
             [(TEXT[:TEXT.index("stringed inst") + (len("stringed inst") if include else 0)], "stop", "stringed inst")] * 2,
             f"a stop string, included: {include}")
        before = s.post("/detokenize", {"tokens": IDS[:IDS.index(IDS[CUT]) + include]})[1]["prompt"]
        same(choices(path, {**ask, "stop_token_ids": [IDS[CUT]]}), [(before, "stop", IDS[CUT])], f"a stop token, included: {include}")
        same(choices(path, {**ask, "stop_token_ids": [IDS[-1]]}), [(TEXT, "stop", None)], "an end token stays one")
    same(choices(path, {**ask, "ignore_eos": True, "stop_token_ids": [IDS[-1]]}), [(TEXT, "stop", IDS[-1])], "unless the client alone names it")

# ---- tokens by their ids ----

ask = {"prompt": "define bow", "temperature": 0, "max_tokens": 5, "logprobs": 2, "ignore_eos": True, "return_token_ids": True}
plain = s.post(COMPLETE, ask)[1]["choices"][0]
named = s.post(COMPLETE, {**ask, "return_tokens_as_token_ids": True})[1]["choices"][0]
same(named["logprobs"]["tokens"], [f"token_id:{t}" for t in plain["token_ids"]], "tokens by their ids")
same({k: v for k, v in named["logprobs"].items() if k.startswith("t") and k not in ("tokens", "top_logprobs")},
     {k: v for k, v in plain["logprobs"].items() if k.startswith("t") and k not in ("tokens", "top_logprobs")}, "with the same numbers")
same(named["text"], plain["text"], "and the same text")

# ---- prompts that are cut ----

KEPT = token_ids(30, 100)
ask = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
want = s.post(COMPLETE, {**ask, "prompt": KEPT})[1]["choices"][0]["text"]
for n in (50, 5000, 20000):  # 20000 are more than twice the context
    status, got = s.post(COMPLETE, {**ask, "prompt": token_ids(31, n) + KEPT, "truncate_prompt_tokens": len(KEPT)})
    same((status, got["usage"]["prompt_tokens"], got["choices"][0]["text"]), (200, len(KEPT), want), f"{n} tokens are cut off")
text = "violin " * 20000 + "define bow"
ids = s.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]
refused(COMPLETE, {**ask, "prompt": text}, "prompt", "context is 4096 tokens")
status, got = s.post(COMPLETE, {**ask, "prompt": text, "truncate_prompt_tokens": -1, "return_token_ids": True})
same((status, got["choices"][0]["prompt_token_ids"]), (200, ids[-4092:]), "-1 leaves room for max_tokens")
status, got = s.post(COMPLETE, {**ask, "prompt": text, "truncate_prompt_tokens": 3, "echo": True, "logprobs": 0})
l = got["choices"][0]["logprobs"]
same((got["choices"][0]["text"], len(l["tokens"]), l["token_logprobs"][0]), ("".join(l["tokens"]), 7, None), "an echo has the kept tokens")
ok(got["choices"][0]["text"].startswith(s.post("/detokenize", {"tokens": ids[-3:]})[1]["prompt"]), "and begins with their text", got)
chat = {"messages": [{"role": "user", "content": text}], **ask}
ids = s.post("/tokenize", {"messages": chat["messages"]})[1]["tokens"]
status, got = s.post(CHAT, {**chat, "truncate_prompt_tokens": 64, "return_token_ids": True})
same((status, got["prompt_token_ids"]), (200, ids[-64:]), "in chat as well")
refused(CHAT, {**chat, "truncate_prompt_tokens": 4097}, "truncate_prompt_tokens", "from 1 to 4096")
refused(COMPLETE, {**ask, "prompt": text, "truncate_prompt_tokens": 4096}, "prompt", "4096 in the prompt, 4 to generate")

# ---- the best of several ----

ask = {"prompt": ["define bow", "define violin"], "temperature": 1, "seed": 7, "max_tokens": 6, "ignore_eos": True, "logprobs": 0}
drawn = s.post(COMPLETE, {**ask, "n": 5})[1]
best = s.post(COMPLETE, {**ask, "n": 2, "best_of": 5})[1]


def likelihood(choice):
    return sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])


want = [c["text"] for part in (drawn["choices"][:5], drawn["choices"][5:]) for c in sorted(part, key=likelihood, reverse=True)[:2]]
same([c["text"] for c in best["choices"]], want, "the likeliest of each prompt, the best first")
same([c["index"] for c in best["choices"]], [0, 1, 2, 3], "in the order of their indices")
same(best["usage"]["completion_tokens"], drawn["usage"]["completion_tokens"], "the usage counts all")
del ask["logprobs"]
silent = s.post(COMPLETE, {**ask, "n": 2, "best_of": 5})[1]["choices"]
same([(c["text"], c["logprobs"]) for c in silent], [(t, None) for t in want], "no log-probabilities are shown unless asked for")
refused(COMPLETE, {**ask, "best_of": 5, "stream": True}, "best_of", "when stream is true")
refused(COMPLETE, {**ask, "suffix": "."}, "suffix", "do not fill in its middle")

# ---- a message that is left open ----

BEGIN = TEXT[:TEXT.index("stringed")]
OPEN = {"continue_final_message": True, "add_generation_prompt": False}
chat = {"messages": [*case["messages"], {"role": "assistant", "content": BEGIN}], **OPEN}
whole = s.post("/apply-template", {"messages": case["messages"]})[1]["prompt"] + BEGIN
same(s.post("/apply-template", chat), (200, {"prompt": whole}), "/apply-template: as the beginning of an answer")
ids = s.post("/tokenize", chat)[1]["tokens"]
same(ids, s.post("/tokenize", {"prompt": whole, "add_special_tokens": False})[1]["tokens"], "/tokenize")
ask = {"temperature": 0, "max_tokens": 8}
got = choices(CHAT, {**chat, **ask})
same(got[0][0], s.post(COMPLETE, {**ask, "prompt": ids})[1]["choices"][0]["text"], "the answer goes on from there")
status, message = s.post("/v1/messages", {"messages": chat["messages"], **ask})
same(message["content"][0]["text"] if status == 200 else message, got[0][0], "as in /v1/messages")
same(s.post(CHAT, {**chat, **ask})[1]["usage"]["prompt_tokens"], len(ids), "the prompt is the message's beginning")
refused(CHAT, {**chat, "add_generation_prompt": True}, "continue_final_message", "needs add_generation_prompt false")

# ---- /tokenizer_info ----

status, info = s.get("/tokenizer_info")
with open(os.path.join(MODEL, "tokenizer_config.json")) as f, open(os.path.join(MODEL, "chat_template.jinja")) as t:
    same((status, json.loads(info)), (200, {**json.load(f), "chat_template": t.read()}), "/tokenizer_info")
same(s.request("POST", "/tokenizer_info", b"{}", {"Content-Type": "application/json"})[0], 405, "which is read alone")

s.stop()
done()
