"""README's commands: those about the cache and about workers apart print what README says, and end.

A block of README is the indented lines in a section. It runs in a shell as it is, with this test's programs, model and ports
in place of README's. A line that begins with # below a command is what the command prints."""
import os
import re
import signal
import subprocess

from harness import MODEL, ROOT, TIGOND, Server, done, free_ports, ok, same

with open(os.path.join(ROOT, "README.md")) as f:
    README = f.read()


def block(section):
    """The first indented lines of a section."""
    text = README.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.search(r"(?:^    .*\n)+", text, re.M)[0].replace("\n    ", "\n").removeprefix("    ")


def run(commands, replace):
    """Runs commands in a shell; its output. What it starts ends with it."""
    for old, new in {**replace, "build/tigond --model models/lexis": f"{TIGOND} --model {MODEL}"}.items():
        assert old in commands or old.startswith("build/"), f"README does not say {old} any more"
        commands = commands.replace(old, new)
    p = subprocess.Popen(["bash", "-c", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n" + commands], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return p.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired as e:
        os.killpg(p.pid, signal.SIGKILL)
        return f"not over after {e.timeout} s"


def says(commands):
    """What README says that the block prints."""
    return [line.removeprefix("# ") for line in commands.splitlines() if line.startswith("# ")]


def lines(output):
    return [line.strip().replace("x-tigon-cache", "X-Tigon-Cache") for line in output.splitlines()]


s = Server()
cached = block("What was cached")
port = {"127.0.0.1:8080": f"127.0.0.1:{s.port}"}
run(cached, port)
same(lines(run(cached, port)), says(cached), "the second time a prompt's pages are cached")
s.stop()

apart = block("Prefill and decode apart")
ports = dict(zip((":9200", "8200", "127.0.0.1:8080"), free_ports(3)))
decode = ports.pop("127.0.0.1:8080")
ports = {":9200": f":{ports[':9200']}", "8200": str(ports["8200"]), "127.0.0.1:8080": f"127.0.0.1:{decode}",
         "--role decode": f"--role decode --port {decode}"}
metrics = re.search(r"`(curl [^`]*grep \^tigon_transfer_received)`", README)[1]
got = lines(run(apart + metrics + "\n", ports))
same(got[:1], says(apart), "the workers meet, and one computes the other's prompt")
ok(any(re.fullmatch(r"tigon_transfer_received_total\S* 1", line) for line in got), "the metrics say so", got)
done()
