#include "daemon/transfer/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "protocol/transfer/wire_fit.h"

int trace_open(struct trace *t, const char *path, struct err *e)
{
	int fd, code;

	t->path = path;
	if (!path)
		return 0;
	/* O_NONBLOCK: a pipe without a reader must not stop the thread. */
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0666);
	t->file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!t->file) {
		code = errno;
		if (fd >= 0)
			close(fd);
		return err_set(e, code, "--transfer-trace %s: %s", path, strerror(code));
	}
	/* Each line is one write, so that a reader sees whole lines. */
	setvbuf(t->file, NULL, _IOLBF, 0);
	return 0;
}

void trace_close(struct trace *t)
{
	if (t->file)
		fclose(t->file);
}

void trace_write(struct trace *t, uint64_t ns, const char *event, uint64_t delivery,
		 const struct wire_window *w)
{
	const struct wire_window none = {0};
	char more[LOG_MORE_MAX];

	if (!t->file)
		return;
	if (!w)
		w = &none;
	if (fprintf(t->file, "%" PRIu64 "\t%s\t%" PRIx64 "\t%u\t%u\t%u\t%u\t%" PRIu64 "\n", ns,
		    event, delivery, w->first_layer, w->n_layers, w->first_token, w->n_tokens,
		    wire_window_bytes(w)) >= 0)
		return;
	clearerr(t->file);
	if (log_due(&t->said_error, clock_now_ns(), more))
		log_warning("--transfer-trace %s: %s%s", t->path, strerror(errno), more);
}
