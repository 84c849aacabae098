#!/usr/bin/env python3
"""Runs tests of llama.cpp's server against tigond.

    run.py TIGOND LLAMA_CPP [--suite FILE]... [options of pytest]

LLAMA_CPP is a source tree of llama.cpp (https://github.com/ggml-org/llama.cpp, or the folder vendor/llama.cpp of the source
archive of PyPI's llama-cpp-python); nothing is written there. Needs pytest, requests, openai and filelock of PyPI.

Each test starts a server with the options of llama-server (class ServerProcess of llama.cpp's utils.py). Here it is a tigond
that serves models/lexis, with the options of tigond that mean the same, where there are some. SUITES are the tests about
what both servers have. Tests marked as slow, which load models from Hugging Face, are left out.

expected_failures.txt lists the cases that fail, under the causes. A listed case that passes is an error, as is a case that
fails and is not listed. So the run ends with status 0 if all went as the list says.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent.parent / "http"))

import pytest  # noqa: E402

import harness  # noqa: E402

SUITES = ("test_chat_completion.py", "test_compat_anthropic.py", "test_compat_oai_responses.py", "test_embedding.py",
          "test_rerank.py", "test_security.py::test_access_public_endpoint",
          "test_security.py::test_access_static_assets_without_api_key", "test_security.py::test_incorrect_api_key",
          "test_security.py::test_correct_api_key",
          "test_security.py::test_correct_api_key_anthropic_header", "test_security.py::test_openai_library_correct_api_key",
          "test_template.py", "test_tokenize.py", "test_tool_call.py")

# Templates that llama-server has built in, by the names that tests give.
IM = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
LLAMA3 = ("{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
          "{% endfor %}")
COMMAND_R = ("{% for m in messages %}<|START_OF_TURN_TOKEN|>{{ {'system': '<|SYSTEM_TOKEN|>', 'user': '<|USER_TOKEN|>',"
             " 'assistant': '<|CHATBOT_TOKEN|>'}[m.role] }}{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}")
TEMPLATES = {
    "chatml": IM + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama3": LLAMA3 + "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": COMMAND_R + "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}


def read_list(path):
    """Pairs of a case and the cause above it. A line that begins with a space is a case; one that ends with * stands for all
    cases that begin so."""
    cases, cause = [], None
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            cases.append((line.strip(), cause))
        elif line and not line.startswith("#"):
            cause = line
    return cases


class Files:
    """Files for the servers of a run: models with other templates, and files with keys."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tigond-llama-cpp-")
        self.n = 0

    def path(self):
        self.n += 1
        return pathlib.Path(self.folder.name, str(self.n))

    def model(self, template):
        """models/lexis with another template, unless that is None. Its answers are greedy where a request has no temperature,
        because llama-server's option for the seed has no counterpart."""
        path = self.path()
        path.mkdir()
        for file in pathlib.Path(harness.MODEL).iterdir():
            if file.is_file():
                (path / file.name).symlink_to(file)
        own = {"generation_config.json": json.dumps({"eos_token_id": harness.END, "temperature": 0})}
        if template is not None:
            own["chat_template.jinja"] = template
        for name, text in own.items():
            (path / name).unlink()
            (path / name).write_text(text)
        return str(path)

    def keys(self, key):
        path = self.path()
        path.touch(0o600)
        path.write_text(key + "\n")
        return str(path)


def options(server, files):
    """The options of tigond that mean those of a ServerProcess. Tests call the model by any name."""
    args = ["--served-model-name", server.model_alias or "lexis", "--served-model-name", "*", "--drain-timeout", "0"]
    if server.n_ctx:
        args += ["--max-model-len", str(min(server.n_ctx // (server.n_slots or 1), 4096))]
    if server.n_slots:
        args += ["--max-num-seqs", str(server.n_slots)]
    if server.pooling in ("last", "mean"):
        args += ["--pooling", server.pooling]
    if server.api_key:
        args += ["--api-key-file", files.keys(server.api_key)]
    if server.reasoning in ("on", "auto"):
        args += ["--default-chat-template-kwargs", '{"enable_thinking": true}']
    return args


def template(server):
    if server.chat_template_file:
        return pathlib.Path(server.chat_template_file).read_text()
    return TEMPLATES.get(server.chat_template, server.chat_template)


def adapt(utils):
    """Has llama.cpp's tests start tigond."""
    files = Files()

    def start(self, timeout_seconds=60):
        server = harness.Server(*options(self, files), model=files.model(template(self)), timeout=300)
        self.process, self.server_port, self.tigond = server.process, server.port, server
        utils.server_instances.add(self)

    utils.ServerProcess.start = start
    utils.ServerPreset.load_all = lambda: None


class Expectations:
    """The plug-in that compares what happens with the list."""

    def __init__(self, cases, whole):
        self.cases, self.whole = cases, whole
        self.used, self.results = set(), {}

    def pytest_collection_modifyitems(self, items):
        for item in items:
            name = item.nodeid.removeprefix("unit/")
            for case, cause in self.cases:
                if name == case or (case.endswith("*") and name.startswith(case[:-1])):
                    self.used.add(case)
                    item.add_marker(pytest.mark.xfail(reason=cause, strict=True))
                    break

    def pytest_runtest_logreport(self, report):
        outcome = "failed as listed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        if report.when == "call" or outcome != "passed":
            self.results[report.nodeid] = outcome

    def pytest_sessionfinish(self, session):
        self.stale = [case for case, _ in self.cases if case not in self.used] if self.whole else []
        if self.stale and session.exitstatus == 0:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter):
        counts = {}
        for outcome in self.results.values():
            counts[outcome] = counts.get(outcome, 0) + 1
        n, passed = len(self.results), counts.get("passed", 0)
        for case in self.stale:
            terminalreporter.write_line(f"listed, but there is no such case: {case}")
        terminalreporter.write_line(f"{passed} of {n} cases pass ({100 * passed / max(n, 1):.0f} %); "
                                    + ", ".join(f"{outcome}: {k}" for outcome, k in sorted(counts.items())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tigond")
    parser.add_argument("llama_cpp")
    parser.add_argument("--suite", action="append", help="a file of tests, or FILE::TEST; SUITES by default")
    args, rest = parser.parse_known_args()
    harness.TIGOND = os.path.abspath(args.tigond)
    os.chdir(pathlib.Path(args.llama_cpp, "tools", "server", "tests"))
    sys.path.insert(0, os.getcwd())
    sys.modules["wget"] = types.ModuleType("wget")  # utils.py needs it for downloads alone
    import utils
    adapt(utils)
    cases = read_list(HERE / "expected_failures.txt")
    expectations = Expectations(cases, whole=not args.suite and not rest)
    return pytest.main(["-p", "no:cacheprovider", "-m", "not slow", "-q", "--tb=short",
                        *(f"unit/{name}" for name in args.suite or SUITES), *rest], plugins=[expectations])


if __name__ == "__main__":
    sys.exit(main())
