"""Shared by the tests of clients: where the server is, and cases that fail alone.

A test of a client is a file of cases. The model is small and knows a dictionary only, so the requests force what they can (a
tool by its name, a schema, temperature 0), and the points are about what the client makes of the answer.
"""
import asyncio
import inspect
import os
import subprocess
import sys
import traceback

from harness import ROOT, done, ok, same  # noqa: F401: for the tests

URL = os.environ["TIGON_URL"]
V1 = URL + "/v1"
MODEL = "lexis"
PAGE = 64  # tokens; prefixes are cached by whole pages
_runner = asyncio.Runner()  # one loop for all cases: a client's connections belong to it


def case(f):
    """Runs a case, whose comment is its name. One that raises an exception is a point that failed."""
    try:
        if inspect.iscoroutinefunction(f):
            _runner.run(f())
        else:
            f()
    except Exception:
        ok(False, inspect.getdoc(f), traceback.format_exc(limit=2))


def runs_example(command, shows):
    """Whether a command about docs/examples ends with status 0, and shows this text. {} in it is that folder."""
    folder = os.path.join(ROOT, "docs", "examples")
    r = subprocess.run([sys.executable, *(c.replace("{}", folder) for c in command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    return ok(r.returncode == 0 and shows in r.stdout, "docs/examples: it shows an answer", r.stdout)


def caches_turns(turns, name):
    """Whether each turn found the prompt of the one before in the cache, but for a page at most.
    turns: (prompt tokens, cached tokens) of each."""
    return ok(len(turns) > 1 and all(cached >= before - PAGE for (before, _), (_, cached) in zip(turns, turns[1:])), name, turns)
