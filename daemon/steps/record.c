#include "daemon/steps/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
};

int record_open(const char *path, const struct scheduler_config *c, struct record **ret,
		struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct record *r;

	struct stat st;

	if (fd < 0)
		return err_set(e, errno, "--record %s: %s", path, strerror(errno));
	/* An existing file keeps its mode, and prompts are private. A device or a pipe is left as it is. */
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
		return err_set(e, ENOMEM, "out of memory");
	}
	r->begin_ns = clock_now_ns();
	fprintf(r->f,
		"{\"tigond_record\":1,\"config\":{\"page_tokens\":%u,\"state_tokens\":%u,\"n_"
		"pages\":%u,\"n_slots\":%u,"
		"\"page_bytes\":%" PRIu64 ",\"slot_bytes\":%" PRIu64 ",\"cache_bytes\":%" PRIu64
		",\"cache_disabled\":%d,\"refuse_decoded\":%d,\"max_waiting\":%u,\"max_plans_out\":"
		"%u,\"max_seqs\":%u,"
		"\"max_prefill_tokens\":%u,\"max_model_len\":%u,\"vocab_size\":%u,"
		"\"handoff_min_tokens\":%u}}\n",
		c->page_tokens, c->state_tokens, c->n_pages, c->n_slots, c->page_bytes,
		c->slot_bytes, c->cache_bytes, c->cache_disabled, c->refuse_decoded, c->max_waiting,
		c->max_plans_out, c->max_seqs, c->max_prefill_tokens, c->max_model_len,
		c->vocab_size, c->handoff_min_tokens);
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

static bool recording(const struct record *r)
{
	return r && r->f;
}

/* After each line: a file that takes no more ends the recording. */
static void check(struct record *r)
{
	if (!ferror(r->f))
		return;
	log_warning("--record: cannot write any more, recording stops: %s", strerror(errno));
	fclose(r->f);
	r->f = NULL;
}

static void put_ids(FILE *f, const char *name, const int32_t *v, uint32_t n)
{
	fprintf(f, ",\"%s\":[", name);
	for (uint32_t i = 0; i < n; i++)
		fprintf(f, "%s%d", i ? "," : "", v[i]);
	fputc(']', f);
}

void record_submit(struct record *r, uint64_t id, const struct scheduler_request *q)
{
	if (!recording(r))
		return;
	fprintf(r->f, "{\"submit\":%" PRIu64 ",\"at\":%.6f", id,
		(double)(clock_now_ns() - r->begin_ns) * 1e-9);
	put_ids(r->f, "prompt", q->prompt, q->n_prompt);
	put_ids(r->f, "end_tokens", q->end_tokens, q->n_end_tokens);
	put_ids(r->f, "boundaries", (const int32_t *)q->boundaries, q->n_boundaries);
	fprintf(r->f,
		",\"max_tokens\":%u,\"min_tokens\":%u,\"n\":%u,\"priority\":%d,\"space\":[\"%"
		"016" PRIx64 "\",\"%016" PRIx64 "\"],\"cache_disabled\":%d,\"prompt_logprobs\":%d,"
		"\"penalised\":%d,\"handoff\":%d,\"n_have\":%u}\n",
		q->max_tokens, q->min_tokens, q->n_choices, q->priority, q->space.id[0],
		q->space.id[1], q->cache_disabled, q->prompt_logprobs,
		sampling_penalised(&q->sampling), q->handoff, q->n_have);
	check(r);
}

void record_plan(struct record *r, const struct plan *p)
{
	if (!recording(r))
		return;
	if (p)
		fprintf(r->f, "{\"plan\":\"%016" PRIx64 "\"}\n", plan_hash(p));
	else
		fputs("{\"plan\":null}\n", r->f);
	check(r);
}

void record_commit(struct record *r, const struct draw_result *results, uint32_t n)
{
	if (!recording(r))
		return;
	fputs("{\"commit\":[", r->f);
	for (uint32_t i = 0; i < n; i++)
		fprintf(r->f, "%s%d", i ? "," : "", results[i].token);
	fputs("]}\n", r->f);
	check(r);
}

void record_abort(struct record *r, uint64_t id)
{
	if (!recording(r))
		return;
	fprintf(r->f, "{\"abort\":%" PRIu64 "}\n", id);
	check(r);
}

void record_finish(struct record *r, uint64_t id, uint32_t choice)
{
	if (!recording(r))
		return;
	fprintf(r->f, "{\"finish\":%" PRIu64 ",\"choice\":%u}\n", id, choice);
	check(r);
}

void record_fail(struct record *r)
{
	if (!recording(r))
		return;
	fputs("{\"fail\":true}\n", r->f);
	check(r);
}

void record_received(struct record *r, uint64_t id, const struct draw_result *draws, uint32_t n)
{
	if (!recording(r))
		return;
	fprintf(r->f, "{\"received\":%" PRIu64 ",\"tokens\":[", id);
	for (uint32_t i = 0; i < n; i++)
		fprintf(r->f, "%s%d", i ? "," : "", draws[i].token);
	fputs("]}\n", r->f);
	check(r);
}

void record_receive_failed(struct record *r, uint64_t id, bool again)
{
	if (!recording(r))
		return;
	fprintf(r->f, "{\"receive_failed\":%" PRIu64 ",\"again\":%d}\n", id, again);
	check(r);
}

void record_shipped(struct record *r, uint64_t id)
{
	if (!recording(r))
		return;
	fprintf(r->f, "{\"shipped\":%" PRIu64 "}\n", id);
	check(r);
}

void record_flush(struct record *r)
{
	if (!recording(r))
		return;
	fputs("{\"flush\":true}\n", r->f);
	check(r);
}
