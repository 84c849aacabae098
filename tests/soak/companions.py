"""Two good clients beside the attacks, until SIGTERM: companions.py PORT.

    conversation  stores a response once, and goes on from it by two turns every few seconds. Their texts, and the stored response,
                  must be those of the first time
    schema        asks for JSON of a schema every few seconds. The JSON must be valid, with the bytes of the first time

Both come from 127.0.0.1. It prints a line when each has had its first answers, which come before the attacks. At the end it
prints, as JSON, how often each has asked since, the longest time in seconds that it waited, and each thing that was wrong.
"""
import http.client
import json
import re
import signal
import sys
import threading
import time

EVERY = 3  # seconds between two rounds
SCHEMA = {"type": "object", "required": ["name", "kind", "n", "list"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12, "pattern": "^[a-z ]*$"}, "kind": {"enum": ["bow", "arrow", None]},
    "n": {"type": "integer", "minimum": -5, "maximum": 120},
    "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}}}

port = int(sys.argv[1])
over = threading.Event()


def ask(method, path, body=None):
    """The answer as JSON. RuntimeError: another status than 200."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
        r = c.getresponse()
        data = r.read()
    finally:
        c.close()
    if r.status != 200:
        raise RuntimeError(f"{method} {path}: status {r.status}: {data[:300]!r}")
    return json.loads(data)


class Conversation:
    def __init__(self):
        self.first = self.respond("What is a violin?", None)

    def respond(self, text, previous):
        return ask("POST", "/v1/responses", {"input": text, "previous_response_id": previous, "temperature": 0, "max_output_tokens": 24,
                                             "metadata": {"client": "companion"}})

    def round(self):
        """The part of a round that is the same in all rounds. The two turns are deleted, so that the server keeps one response alone."""
        second = self.respond("How many strings has it?", self.first["id"])
        third = self.respond("And a cello?", second["id"])
        items = ask("GET", f"/v1/responses/{third['id']}/input_items?order=asc")["data"]
        for r in second, third:
            ask("DELETE", f"/v1/responses/{r['id']}")
        return [ask("GET", f"/v1/responses/{self.first['id']}") == self.first, [[part["text"] for part in item["content"]] for item in items],
                *([item["content"] for item in r["output"]] for r in (second, third))]


class Schema:
    def round(self):
        answer = ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Describe a bow."}], "temperature": 0, "max_tokens": 400,
            "response_format": {"type": "json_schema", "json_schema": {"name": "thing", "strict": True, "schema": SCHEMA}}})
        text = answer["choices"][0]["message"]["content"]
        v = json.loads(text)
        if not (list(v) == list(SCHEMA["properties"]) and re.fullmatch("[a-z ]{1,12}", v["name"]) and v["kind"] in ("bow", "arrow", None) and
                type(v["n"]) is int and -5 <= v["n"] <= 120 and 1 <= len(v["list"]) <= 3 and all(type(x) is bool for x in v["list"])):
            raise RuntimeError(f"not of the schema: {text}")
        return text


class Companion(threading.Thread):
    """Compares each round with the first one, which the constructor makes."""

    def __init__(self, client):
        super().__init__()
        self.client, self.want = client, client.round()
        self.rounds, self.slowest, self.wrong = 0, 0.0, []

    def run(self):
        while not over.wait(EVERY):
            begin = time.monotonic()
            try:
                got = self.client.round()
                if got != self.want:
                    self.wrong.append(f"got {got}, want {self.want}"[:2000])
            except (OSError, http.client.HTTPException, RuntimeError, ValueError) as e:
                self.wrong.append(f"{type(e).__name__}: {e}"[:2000])
            self.rounds += 1
            self.slowest = max(self.slowest, time.monotonic() - begin)


signal.signal(signal.SIGTERM, lambda *_: over.set())
companions = {"conversation": Companion(Conversation()), "schema": Companion(Schema())}
for c in companions.values():
    c.start()
print("each has its first answers", flush=True)
for c in companions.values():
    c.join()
print(json.dumps({name: {"rounds": c.rounds, "slowest": c.slowest, "wrong": c.wrong} for name, c in companions.items()}), flush=True)
