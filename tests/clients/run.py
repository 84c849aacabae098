"""Runs client libraries from PyPI against one tigond with models/lexis: `run.py TIGOND [CLIENT ...]`, else all of them.

A client is a row of CLIENTS and the file test_NAME.py. Clients exclude each other's versions, so each has an environment of
its own in build/clients/NAME, which is made when its row changes. Two clients are made and run at a time; they share the server.

Each prints TAP lines, which are numbered anew here. The last line is "N passed, N failed"; the exit status is 1 when
anything failed.
"""
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from harness import ROOT, Server, ok  # noqa: E402

CLIENTS = {
    "openai": ["openai==3.57.0"],
    "anthropic": ["anthropic==2.14.0"],
    "langchain": ["langchain-openai==1.7.4"],
    "instructor": ["instructor==1.17.0"],
    "pydantic_ai": ["pydantic-ai-slim[openai]==2.68.0"],
    "openai_agents": ["openai-agents==0.24.0"],
    "llama_index": ["llama-index-llms-openai-like==0.8.1"],
    "smolagents": ["smolagents[openai]==1.26.0"],
    "litellm": ["litellm==1.110.2"],
    "llm": ["llm==0.36"],
    "lm_eval": ["lm-eval[api]==0.4.13"],
    # The last version without torch, which is 3 GB of CUDA libraries at PyPI.
    "guidellm": ["guidellm==0.3.1"],
    "aider": ["aider-chat==0.86.2"],
    "ollama": ["ollama==0.6.3"],
    "schemathesis": ["schemathesis==4.32.5"],
}
# The packages that those packages need are PyPI's newest before this day: a run makes the same environments next year.
PYPI_DAY = "2026-11-29"
INSTALLER = "uv==0.13.9"

ENVIRONMENTS = os.path.join(ROOT, "build", "clients")
# The servers compile no kernel that tests of `make check` have compiled (tests/meson.build).
KERNELS = {"POCL_CACHE_DIR": os.path.join(ROOT, "build", "cache", "pocl"), "TIGOND_ARGS": "--program-cache="}
# An environment and all its tests; one that hangs does not stop the others.
MAKING_SECONDS, TEST_SECONDS = 900, 600

# The clients reach this machine alone: for all others they are given a proxy that does not exist. The other variables keep
# litellm, langsmith, agents, aider and Hugging Face's libraries from asking for lists of prices and models, and from reporting.
QUIET = {
    **{name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")},
    "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false",
    "AIDER_ANALYTICS": "false", "AIDER_CHECK_UPDATE": "false",
}


def run(command, seconds, **kwargs):
    """(whether it ended with status 0, its output). Past its time all that it started ends."""
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace", start_new_session=True, **kwargs)
    try:
        output = p.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        output = p.communicate()[0] + f"\nnot over after {seconds} s"
    return p.returncode == 0, output


def is_made(where, requirements):
    stamp = os.path.join(where, "requirements.txt")
    return os.path.exists(stamp) and open(stamp).read() == requirements


def make_environment(where, requirements, install):
    """Makes an environment if there is none of these requirements; what went wrong, or None."""
    if is_made(where, requirements):
        return None
    good, text = install(where)
    if not good:
        return text
    with open(os.path.join(where, "requirements.txt"), "w") as f:
        f.write(requirements)
    return None


def is_silent(text):
    """Whether uv or pip, by its output, got no answer of PyPI."""
    return "Failed to fetch" in text or "connection broken" in text


def give_up(package, text):
    """Ends the program because a package cannot be installed."""
    print(text)
    print(f"tests/clients: {package} cannot be installed" + (", because PyPI does not answer" if is_silent(text) else ""))
    print("0 passed, 1 failed")
    sys.exit(1)


def make_installer():
    """The installer, in an environment of its own."""
    def install(where):
        venv.create(where, with_pip=True, clear=True)
        return run([os.path.join(where, "bin", "python"), "-m", "pip", "install", "-q", INSTALLER], MAKING_SECONDS)
    where = os.path.join(ENVIRONMENTS, "uv")
    wrong = make_environment(where, INSTALLER, install)
    if wrong:
        give_up(INSTALLER, wrong)
    return os.path.join(where, "bin", "uv")


def requirements_of(name):
    return "\n".join([*CLIENTS[name], PYPI_DAY])


def make_client(uv, name):
    """The environment of a client: what went wrong, or None."""
    def install(where):
        # With the system's certificates and pip's patience uv reaches PyPI wherever pip does, behind a proxy as well.
        env = {**os.environ, "UV_CACHE_DIR": os.path.join(ENVIRONMENTS, "cache"), "UV_PYTHON_DOWNLOADS": "never",
               "UV_SYSTEM_CERTS": "true", "UV_HTTP_TIMEOUT": "180"}
        good, text = run([uv, "venv", "-q", "--clear", "--python", sys.executable, where], MAKING_SECONDS, env=env)
        return (good, text) if not good else run(
            [uv, "pip", "install", "-q", "--python", where, "--exclude-newer", PYPI_DAY, *CLIENTS[name]], MAKING_SECONDS, env=env)
    return make_environment(os.path.join(ENVIRONMENTS, name), requirements_of(name), install)


def megabytes(where):
    """Of the files below a folder."""
    return sum(os.lstat(os.path.join(d, f)).st_size for d, _, files in os.walk(where) for f in files) / 1e6


def test(name, url):
    """(whether it ended with status 0, its output). Its home is empty: no settings of this machine's user, no trace left."""
    with tempfile.TemporaryDirectory(prefix="tigon-client-") as home:
        foreign = ("OPENAI_", "ANTHROPIC_", "XDG_", "HF_", "PYTHON")
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(foreign)}, **QUIET,
               "HOME": home, "TMPDIR": home, "TIGON_URL": url, "PYTHONPATH": os.path.join(os.path.dirname(HERE), "http"),
               "OPENAI_API_KEY": "any", "OPENAI_BASE_URL": url + "/v1", "ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": url,
               "PATH": os.path.join(ENVIRONMENTS, name, "bin") + os.pathsep + os.environ["PATH"]}
        return run([os.path.join(ENVIRONMENTS, name, "bin", "python"), os.path.join(HERE, f"test_{name}.py")], TEST_SECONDS,
                   env=env, cwd=home)


def make_and_test(uv, name, url):
    """(TAP points as (good, text) with the lines that explain them, a remark)"""
    where, begin = os.path.join(ENVIRONMENTS, name), time.time()
    wrong = make_client(uv, name)
    made = time.time()
    if wrong:
        return [(False, f"{' '.join(CLIENTS[name])} can be installed", wrong.splitlines()[-20:])], f"no environment after {made - begin:.1f} s"
    good, output = test(name, url)
    points = []
    for line in output.splitlines():
        m = re.match(r"(not )?ok\b[ \d]*(?:- )?(.*)", line)
        if m:
            points.append((not m[1], m[2], []))
        elif points and line.startswith("#"):
            points[-1][2].append(line.lstrip("# "))
    if good != all(p[0] for p in points) or not points:
        points.append((False, "it ends as its points say", [x for x in output.splitlines() if not x.startswith("ok ")][-30:]))
    return points, f"environment {megabytes(where):.0f} MB in {made - begin:.1f} s, tests in {time.time() - made:.1f} s"


def main():
    names = sys.argv[2:] or list(CLIENTS)
    unknown = [n for n in names if n not in CLIENTS]
    if len(sys.argv) < 2 or unknown:
        sys.exit(f"usage: run.py TIGOND [CLIENT ...]; there are {', '.join(CLIENTS)}")
    begin, results = time.time(), []
    os.environ.update(KERNELS)
    uv = make_installer()
    missing = [n for n in names if not is_made(os.path.join(ENVIRONMENTS, n), requirements_of(n))]
    if missing:  # the first one shows whether PyPI answers
        wrong = make_client(uv, missing[0])
        if wrong and is_silent(wrong):
            give_up(CLIENTS[missing[0]][0], wrong)
    s = Server(timeout=MAKING_SECONDS)  # it compiles its kernels if nobody has
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, (points, remark) in zip(names, pool.map(lambda name: make_and_test(uv, name, s.url), names)):
            print(f"# {name}: {remark}", flush=True)
            results += [ok(good, f"{name}: {text}", "\n".join(more)) for good, text, more in points]
    results.append(s.stop())
    failed = results.count(False)
    print(f"in {time.time() - begin:.0f} s")
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
