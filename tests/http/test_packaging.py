"""Two parts of packaging/ that are run here: the hook preStop of kubernetes.yaml, and the check of workers in haproxy.cfg."""
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from harness import ROOT, Server, done, ok, same, wait_for

folder = tempfile.TemporaryDirectory(prefix="tigon-packaging-")
keys = os.path.join(folder.name, "admin.keys")
with open(keys, "w") as f:
    f.write("\n  # the operator's\n ad-min \nanother\n")
os.chmod(keys, 0o600)


def read(name):
    with open(os.path.join(ROOT, "packaging", name), encoding="utf-8") as f:
        return f.read()


def replaced(text, *pairs):
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


# ---- preStop ----

s = Server("--admin-port", "0", "--admin-key-file", keys, env={"FAKE_STEP_US": "5000"})
admin = re.search(r"--admin-port: \S+ port (\d+)", s.text())[1]
block = re.search(r"preStop:.*?- \|\n(.*?)\n {10}\w", read("kubernetes.yaml"), re.S)[1]
indent = len(block) - len(block.lstrip())
script = replaced("\n".join(line[indent:] for line in block.splitlines()),
                  ("sleep 5\n", "sleep 0.1\n"), ("sleep 1\n", "sleep 0.1\n"), ("/run/tigon/admin.keys", keys),
                  ("http://127.0.0.1:8081/", "http://127.0.0.1:@PORT@/"), ("-m 5 ", "-m 2 "))


def pre_stop(port=admin):
    return subprocess.Popen(["/bin/sh", "-c", script.replace("@PORT@", port)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


if shutil.which("curl"):
    p = pre_stop()
    same((p.wait(30), p.stdout.read()), (0, ""), "preStop ends at once when nothing runs")
    events = []
    t = threading.Thread(target=lambda: events.extend(s.stream("/v1/completions", {"prompt": "a", "max_tokens": 300,
                                                                                  "ignore_eos": True})))
    t.start()
    time.sleep(0.3)
    p = pre_stop()
    time.sleep(0.7)
    ok(p.poll() is None and t.is_alive(), "while a stream runs it waits", (p.poll(), t.is_alive()))
    t.join()
    same((p.wait(30), p.stdout.read(), events[-1]), (0, "", "[DONE]"), "until the stream has ended")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        p = pre_stop(str(silent.getsockname()[1]))
        silent.settimeout(10)
        first = silent.accept()[0]
        time.sleep(1)
        ok(p.poll() is None, "a /metrics that is slow to answer is asked again", p.poll())
        first.close()
        again = silent.accept()[0]
    again.close()
    same((p.wait(30), p.stdout.read()), (0, ""), "until nothing listens there")
else:
    print("# no curl here: preStop is not run", flush=True)

# ---- HAProxy ----


def ask_haproxy(path, command):
    with socket.socket(socket.AF_UNIX) as c:
        c.connect(path)
        c.sendall(command.encode() + b"\n")
        data = b""
        while piece := c.recv(65536):
            data += piece
    return data.decode()


def states(path):
    """Each worker with the state that HAProxy's check found, and the reason."""
    rows = [line.split(",") for line in ask_haproxy(path, "show stat").splitlines() if line]
    names = [n.strip("# ") for n in rows[0]]
    found = [dict(zip(names, r)) for r in rows[1:]]
    return {r["svname"]: (r["status"], r["check_status"]) for r in found if r["pxname"] == "decode" and r["svname"] != "BACKEND"}


if shutil.which("haproxy"):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = Server("--admin-port", "0")
    admin_socket = os.path.join(folder.name, "admin.sock")
    path = os.path.join(folder.name, "haproxy.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(replaced(read("haproxy.cfg"), ("127.0.0.1:8080", f"127.0.0.1:{port}"), ("127.0.0.1:8101", f"127.0.0.1:{s.port}"),
                         ("127.0.0.1:8102", f"127.0.0.1:{other.port}"), ("/run/haproxy", folder.name)))
    log = open(os.path.join(folder.name, "log"), "w")
    haproxy = subprocess.Popen(["haproxy", "-db", "-f", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        want = {"01": ("UP", "L7OK"), "02": ("UP", "L7OK")}
        ok(wait_for(lambda: os.path.exists(admin_socket) and states(admin_socket) == want), "HAProxy's check finds both workers",
           os.path.exists(admin_socket) and states(admin_socket))
        other.stop()
        ok(wait_for(lambda: states(admin_socket)["02"][0] == "DOWN"), "and sees that one has ended", states(admin_socket))
    finally:
        haproxy.terminate()
        haproxy.wait()
else:
    print("# no haproxy here: its check is not run", flush=True)
s.stop()
done()
