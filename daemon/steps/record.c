#include "daemon/steps/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

struct record {
	FILE *f; /* NULL: stopped */
	uint64_t begin_ns;
	uint32_t pace; /* of the last line with one; 0: there is none */
};

static bool is_recording(const struct record *r)
{
	return r && r->f;
}

/* Writes the rest of a line, unless recording has stopped. If the write fails, stops recording. */
PRINTF(2, 3) static void end_line(struct record *r, const char *fmt, ...)
{
	va_list ap;

	if (!is_recording(r))
		return;
	va_start(ap, fmt);
	vfprintf(r->f, fmt, ap);
	va_end(ap);
	fputc('\n', r->f);
	if (!ferror(r->f))
		return;
	log_warning("--record: cannot write any more, recording stops: %s", strerror(errno));
	fclose(r->f);
	r->f = NULL;
}

int record_open(const char *path, const struct scheduler_config *c, struct record **ret,
		struct err *e)
{
	/* O_NONBLOCK, because a FIFO must not stop the daemon: neither while nobody reads it, nor when its reader is
	 * too slow. */
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0600);
	const char *separator = "";
	struct record *r;
	struct stat st;

	if (fd < 0)
		return err_set(e, errno, "--record %s: %s", path,
			       errno == ENXIO ? "a FIFO that nobody reads" : strerror(errno));
	/* Prompts must stay private, so a file that existed before gets mode 0600, too. A device or a pipe keeps its
	 * mode. */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fchmod(fd, 0600) < 0) {
		err_set(e, errno, "--record %s: cannot be made its owner's alone: %s", path,
			strerror(errno));
		close(fd);
		return -e->code;
	}
	r = calloc(1, sizeof(*r));
	if (r)
		r->f = fdopen(fd, "w");
	if (!r || !r->f) {
		close(fd);
		free(r);
		return err_no_memory(e);
	}
	r->begin_ns = clock_now_ns();
	fprintf(r->f, "{\"tigond_record\":1,\"config\":{");
#define FIELD(name, max)                                                         \
	fprintf(r->f, "%s\"" #name "\":%" PRIu64, separator, (uint64_t)c->name); \
	separator = ",";
	RECORD_CONFIG(FIELD)
#undef FIELD
	end_line(r, "}}");
	*ret = r;
	return 0;
}

void record_close(struct record *r)
{
	if (!r)
		return;
	if (r->f && fclose(r->f) != 0)
		log_warning("--record: the end could not be written: %s", strerror(errno));
	free(r);
}

static void put_ids(struct record *r, const char *name, const int32_t *v, uint32_t n)
{
	fprintf(r->f, ",\"%s\":[", name);
	for (uint32_t i = 0; i < n; i++)
		fprintf(r->f, "%s%d", i ? "," : "", v[i]);
	fputc(']', r->f);
}

static void put_tokens(struct record *r, const struct draw_result *results, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		fprintf(r->f, "%s%d", i ? "," : "", results[i].token);
}

void record_submit(struct record *r, uint64_t id, const struct scheduler_request *q)
{
	if (!is_recording(r))
		return;
	fprintf(r->f, "{\"submit\":%" PRIu64 ",\"at\":%.6f", id,
		(double)(clock_now_ns() - r->begin_ns) * 1e-9);
	put_ids(r, "prompt", q->prompt, q->n_prompt);
	put_ids(r, "end_tokens", q->end_tokens, q->n_end_tokens);
	put_ids(r, "boundaries", (const int32_t *)q->boundaries, q->n_boundaries);
	end_line(
		r,
		",\"max_tokens\":%u,\"min_tokens\":%u,\"n\":%u,\"priority\":%d,\"space\":[\"%"
		"016" PRIx64 "\",\"%016" PRIx64 "\"],\"cache_disabled\":%d,\"prompt_logprobs\":%d,"
		"\"first_score\":%u,\"pooling\":%d,\"penalised\":%d,\"handoff\":%d,\"n_have\":%u,\"owner\":%" PRIu64
		",\"needs_last\":%d}",
		q->max_tokens, q->min_tokens, q->n_choices, q->priority, q->space.id[0],
		q->space.id[1], q->cache_disabled, q->prompt_logprobs, q->first_score, q->pooling,
		sampling_penalised(&q->sampling), q->handoff, q->n_have, q->owner, q->needs_last);
}

void record_plan(struct record *r, const struct plan *p)
{
	if (p && is_recording(r))
		end_line(r, "{\"plan\":\"%016" PRIx64 "\"}", plan_hash(p));
	else if (!p)
		end_line(r, "{\"plan\":null}");
}

void record_commit(struct record *r, const struct draw_result *results, uint32_t n)
{
	if (!is_recording(r))
		return;
	fputs("{\"commit\":[", r->f);
	put_tokens(r, results, n);
	end_line(r, "]}");
}

void record_abort(struct record *r, uint64_t id)
{
	end_line(r, "{\"abort\":%" PRIu64 "}", id);
}

void record_finish(struct record *r, uint64_t id, uint32_t choice)
{
	end_line(r, "{\"finish\":%" PRIu64 ",\"choice\":%u}", id, choice);
}

void record_fail(struct record *r)
{
	end_line(r, "{\"fail\":true}");
}

void record_received(struct record *r, uint64_t id, const struct draw_result *draws, uint32_t n)
{
	if (!is_recording(r))
		return;
	fprintf(r->f, "{\"received\":%" PRIu64 ",\"tokens\":[", id);
	put_tokens(r, draws, n);
	end_line(r, "]}");
}

void record_receive_failed(struct record *r, uint64_t id, bool again)
{
	end_line(r, "{\"receive_failed\":%" PRIu64 ",\"again\":%d}", id, again);
}

void record_shipped(struct record *r, uint64_t id)
{
	end_line(r, "{\"shipped\":%" PRIu64 "}", id);
}

void record_pace(struct record *r, uint32_t n_tokens)
{
	if (!r || r->pace == n_tokens)
		return;
	r->pace = n_tokens;
	end_line(r, "{\"pace\":%" PRIu32 "}", n_tokens);
}

void record_flush(struct record *r)
{
	end_line(r, "{\"flush\":true}");
}
