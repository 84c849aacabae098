"""lm-eval: how likely texts are, and generated texts with six stop strings, over completions and chat.

The task and its data are made here. Tokens are those of the server (tokenizer_backend=remote).
"""
import glob
import json
import subprocess
import sys

from client import MODEL, V1, case, done, ok, same

KINDS = ["bowed stringed instrument", "a large natural stream of water"]
STOPS = ["zzz", ";", "!!", "(larger", "Q:", "####"]
with open("words.jsonl", "w") as f:
    for i, word in enumerate(("violin", "river")):
        f.write(json.dumps({"question": f"What is a {word}?", "word": word, "right": i,
                            "kinds": [f"{word} (noun): {kind}" for kind in KINDS]}) + "\n")
HEAD = "dataset_path: json\ndataset_kwargs: {data_files: {test: words.jsonl}}\ntest_split: test\nmetadata: {version: 1}\n"
# The client does not apply templates with the server's tokenizer: the prompt of completions is the chat as the model reads it.
CHAT = json.dumps("<|im_start|>user\n{{question}}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
with open("kinds.yaml", "w") as f:
    f.write(HEAD + f"task: kinds\noutput_type: multiple_choice\ndoc_to_text: {CHAT}\ndoc_to_choice: kinds\ntarget_delimiter: ''\n"
            "doc_to_target: right\nmetric_list: [{metric: acc}]\n")
for task, text in ("define", CHAT), ("define_chat", "question"):
    with open(f"{task}.yaml", "w") as f:
        f.write(HEAD + f"task: {task}\noutput_type: generate_until\ndoc_to_text: {text}\ndoc_to_target: word\n"
                f"generation_kwargs: {{until: {json.dumps(STOPS)}, max_gen_toks: 48, temperature: 0}}\n"
                "metric_list: [{metric: exact_match}]\n")


def evaluate(model, task, path, *more):
    """(results, samples) of a task"""
    out = f"{model}-{task}"
    r = subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", model, "--tasks", task, "--include_path", ".",
                        "--model_args", f"model={MODEL},base_url={V1}/{path},tokenizer_backend=remote,num_concurrent=2,max_retries=1",
                        "--output_path", out, "--log_samples", *more],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode != 0:
        raise RuntimeError("\n".join(r.stdout.splitlines()[-12:]))
    results, samples = (glob.glob(f"{out}/**/{kind}_*", recursive=True)[0] for kind in ("results", "samples"))
    with open(results) as a, open(samples) as b:
        return json.load(a)["results"][task], [json.loads(line) for line in b]


@case
def likely():
    """how likely texts are"""
    results, samples = evaluate("local-completions", "kinds", "completions")
    same(results["acc,none"], 1.0, "completions: the right kinds are the likelier ones")
    ok(len(samples) == 2 and all(float(r[0]) < 0 for s in samples for r in s["filtered_resps"]), "completions: log-probabilities", samples)


@case
def generated():
    """generated texts"""
    texts = {}
    for path, task, *more in ("completions", "define"), ("chat/completions", "define_chat", "--apply_chat_template"):
        _, samples = evaluate("local-" + path.replace("/", "-"), task, path, *more)
        texts[path] = {s["doc"]["word"]: s["filtered_resps"][0] for s in samples}
        ok(all(text.startswith(f"{word} (noun): ") for word, text in texts[path].items()), f"{path}: a text for each", texts)
        ok(not any(stop in text for text in texts[path].values() for stop in STOPS), f"{path}: none goes past a stop string", texts)
    # The client gives a chat four of the stop strings, and completions all six and the end of the text.
    same(texts["completions"], texts["chat/completions"], "both ways give one answer")


done()
