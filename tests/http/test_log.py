"""A log that nobody reads: a pipe with room for 4 KiB. The daemon answers, counts what it dropped, and ends."""
import fcntl
import os
import re
import time

from harness import Server, done, ok, parallel, same, wait_for


class Unread(Server):
    """Nobody reads its log behind the line that names the port."""

    def open_log(self):
        self.reader, writer = os.pipe()
        fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self.reader, False)
        self.read = ""
        return os.fdopen(writer, "w")

    def text(self):
        if "listening on" not in self.read:
            self.read_on()
        return self.read

    def read_on(self):
        try:
            while more := os.read(self.reader, 65536):
                self.read += more.decode()
        except BlockingIOError:
            pass


s = Unread()
s.log.close()  # the daemon alone has it
answers = parallel([lambda: [s.complete("a", max_tokens=1)[0] for _ in range(100)]] * 8)
same({status for part in answers for status in part}, {200}, "800 requests with an unread log are answered")
begin = time.time()
same(s.get("/health")[0], 200, "/health answers")
ok(time.time() - begin < 2, "at once")
dropped = s.metrics()["log_dropped_lines_total"]
ok(dropped > 0, "/metrics counts the lines that were dropped", dropped)

s.read_on()
s.complete("b", max_tokens=1)  # its line may come after its answer


def told():
    """How many lines the log says were dropped. It may say so in two lines: the pipe is small, so lines are dropped
    while it is read, too."""
    s.read_on()
    return sum(int(n) for n in re.findall(r" warning: (\d+) lines of this log were dropped", s.read))


ok(wait_for(lambda: told() >= dropped), "when it is read again, lines say how many", s.read[-600:])

parallel([lambda: [s.complete("c", max_tokens=1)[0] for _ in range(50)]] * 4)
s.stop("SIGTERM ends it while its log is full: status 0")
done()
