"""`tigon devices` on this machine's devices: what it prints, what it keeps, and where.

    test_devices.py TIGON TIGOND
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "http"))
from harness import done, ok, same  # noqa: E402

TIGON, TIGOND = sys.argv[1:3]
scratch = tempfile.TemporaryDirectory()
home = os.path.join(scratch.name, "home")
cache = os.path.join(scratch.name, "cache")
os.mkdir(home)
environment = {k: v for k, v in os.environ.items() if k not in ("POCL_CACHE_DIR", "XDG_CACHE_HOME", "CACHE_DIRECTORY")}
environment["HOME"] = home


def run(*args, program=TIGON):
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=120, env=environment)


def names(lines):
    """The lines without the memory of the devices: a CPU's is what others leave."""
    return [re.sub(r", [0-9.]+ GiB$", "", line) for line in lines]


def files(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


r = run("devices", "--program-cache", cache)
ok(r.returncode == 0 and not r.stderr, "the devices are measured", r)
lines = r.stdout.splitlines()
heads = [line for line in lines if not line.startswith(" ")]
for at, head in enumerate(heads):
    ok(re.fullmatch(rf"{at}: .+, driver .+, \d+\.\d GiB", head), "a device has a number, a name, a driver and memory", head)
    rows = dict(re.fullmatch(r"   (\w+) +(.+)", line).groups() for line in lines[lines.index(head) + 1:][:4])
    same(list(rows), ["kernels", "abilities", "launch", "reading"], "and four rows")
    abilities = rows["abilities"].split(", ")
    ok(abilities[0] == "plain", "it runs plain OpenCL C", rows)
    ok(rows["kernels"] == ("nvidia" if "mma.sync bf16" in abilities else "x86" if "vdpbf16ps" in abilities else "generic"),
       "the kernels follow from its abilities", rows)
    if head.startswith(f"{at}: pthread") or "oclgrind" in head.lower():
        ok(not {"dp4a", "mma.sync bf16", "mma.sync int8", "wgmma"} & set(abilities), "a CPU has no PTX", rows)
    launch, reading = rows["launch"].split(), rows["reading"].split()
    ok(launch[1] == "us" and 0.1 <= float(launch[0]) < 1e4, "a launch takes some microseconds", rows)
    ok(reading[1] == "GB/s" and 0.1 < float(reading[0]) < 2e4, "it reads some GB/s", rows)
same(len(lines), 5 * len(heads), "there is nothing else")
ok(any(f.endswith(".clbin") for f in files(cache)), "the answers are kept in the program cache", files(cache))
r = run("devices", "--list")
same(names(r.stdout.splitlines()), names(heads), "--list: the devices alone")
same([f for f in files(home) if not f.startswith(os.path.join(home, ".cache", "tigon"))], [], "nothing is left elsewhere")
r = run("--list-devices", program=TIGOND)
same(names(r.stdout.splitlines()), names(heads), "as tigond lists them")
for args, want in ((("x",), "unexpected"), (("--lst",), "did you mean --list?"), (("--program-cache", "/proc/x"), "/proc/x")):
    r = run("devices", *args)
    ok(r.returncode == 1 and want in r.stderr and len(r.stderr.splitlines()) == 1, f"{args}: one sentence", r)
r = run("devices", "--help")
ok(r.returncode == 0 and "--list" in r.stdout, "--help", r)
done()
