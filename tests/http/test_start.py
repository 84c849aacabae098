"""A wrong option, or a wrong file of the model, ends the start with one sentence. Most options are checked before the model is
loaded. A default program cache that cannot be used is only a warning."""
import os
import shutil
import subprocess
import tempfile
import time

from harness import MODEL, TIGOND, Server, done, ok, same

folder = tempfile.TemporaryDirectory()
LATE = 8  # seconds that loading takes where `early` is checked


def path(*parts):
    return os.path.join(folder.name, *parts)


def refused(name, want, *args, model=MODEL, early=True, env=None):
    """Checks that tigond ends with status 1 and one sentence that has `want`; early: before the model is loaded."""
    begin = time.time()
    try:
        out = subprocess.run([TIGOND, "--model", model, "--port", "0", *args], capture_output=True, text=True, timeout=60,
                             env={**os.environ, "FAKE_LOAD_MS": str(LATE * 1000) if early else "0", **(env or {})})
    except subprocess.TimeoutExpired:
        return ok(False, name, "it runs")
    lines = [x for x in out.stderr.splitlines() if x.startswith("tigond: ")]
    return ok(out.returncode == 1 and len(lines) == 1 and want in lines[0] and (not early or time.time() - begin < LATE), name,
              (out.returncode, time.time() - begin, out.stderr[-1000:]))


# options
refused("--max-model-len beyond the model's positions", "--max-model-len 4097: the model has 4096 positions",
        "--max-model-len", "4097")
refused("--host-cache-memory of 1000 TiB", "--host-cache-memory asks for 1024000.00 GiB, and this process may have ",
        "--host-cache-memory", "1000T")
refused("--cache-dir that cannot be created", "--cache-dir /proc/x: ", "--cache-dir", "/proc/x")
refused("--cache-dir that is a file", "--cache-dir ", "--cache-dir", MODEL + "/config.json")
refused("--program-cache that cannot be created", "--program-cache /proc/x: ", "--program-cache", "/proc/x")
refused("--program-cache that cannot be written", "--program-cache /proc/self: ", "--program-cache", "/proc/self")
refused("--program-cache that is a file", "--program-cache ", "--program-cache", MODEL + "/config.json")
os.mkfifo(path("fifo"))
refused("--record into a FIFO that nobody reads", "--record " + path("fifo") + ": a FIFO that nobody reads",
        "--record", path("fifo"), early=False)

# the default program cache
s = Server("--max-model-len", "4096", env={"HOME": "/proc/x", "XDG_CACHE_HOME": "", "CACHE_DIRECTORY": "", "TMPDIR": path()})
own = path(f"tigon-{os.geteuid()}")
ok(f"warning: program cache: /proc/x/.cache/tigon: No such file or directory: compiled kernels are kept in {own}" in s.text(),
   "a default program cache that cannot be written is a warning", s.text())
ok(os.stat(own).st_mode & 0o777 == 0o700, "and another directory, of this user alone, takes its place")
s.stop()
os.chmod(own, 0o777)
s = Server(env={"HOME": "/proc/x", "XDG_CACHE_HOME": "", "CACHE_DIRECTORY": "", "TMPDIR": path()})
ok("each start compiles all kernels again" in s.text(), "unless others can write there", s.text())
s.stop()


# the model's files
def model(name, change):
    """Makes a directory with links to the model's files, and calls change(its path), which replaces one. Returns the path."""
    where = path(name)
    os.mkdir(where)
    for entry in os.listdir(MODEL):
        if os.path.isfile(os.path.join(MODEL, entry)):
            os.symlink(os.path.join(MODEL, entry), os.path.join(where, entry))
    change(where)
    return where


def replaced(name, content):
    def change(where):
        os.unlink(os.path.join(where, name))
        if content is not None:
            with open(os.path.join(where, name), "w") as f:
                f.write(content)
        else:
            os.mkfifo(os.path.join(where, name))
    return change


def device(name):
    def change(where):
        os.unlink(os.path.join(where, name))
        os.symlink("/dev/zero", os.path.join(where, name))
    return change


with open(MODEL + "/tokenizer_config.json") as f:
    whole = f.read()
for k, (name, content, want) in enumerate((
        ("tokenizer_config.json", "", "the file is empty"), ("tokenizer_config.json", whole[:len(whole) // 2], ""),
        ("chat_template.jinja", "", "the chat template is empty"), ("chat_template.jinja", "\n", "the chat template is empty"))):
    refused(f"{name}: {content[:20]!r}", f"/{name}: {want}", model=model(f"text{k}", replaced(name, content)), early=False)
for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
    refused(f"{name} is a FIFO", f"/{name}: not a regular file", model=model("fifo-" + name, replaced(name, None)), early=False)
    refused(f"{name} is a device", f"/{name}: not a regular file", model=model("device-" + name, device(name)), early=False)
shutil.rmtree(path(), ignore_errors=True)
done()
