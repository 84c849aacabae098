#include "daemon/cli/eval/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/checkpoint/checkpoint.h"

enum { PAGE = 64 };

static int open_tokenizer(const char *path, struct tokenizer **ret, struct err *e)
{
	struct checkpoint_text text = {.name = ""};
	struct checkpoint *k;
	int r = checkpoint_open(path, &k, e);

	if (r < 0)
		return r;
	r = checkpoint_read(k, CHECKPOINT_TOKENIZER, &text, e);
	if (r == 0)
		r = tokenizer_parse(text.name, buf_str(&text.bytes), text.bytes.len, ret, e);
	checkpoint_text_release(&text);
	checkpoint_close(k);
	return r;
}

int reader_open(struct reader *r, const struct engine_options *o, uint32_t context, struct err *e)
{
	int error;

	*r = (struct reader){.options = *o};
	error = model_config_open(o->model_dir, &r->config, e);
	if (error == 0 && context > r->config.max_position_embeddings)
		error = err_set(e, EINVAL, "--context %u: %s goes to %u tokens", context,
				o->model_dir, r->config.max_position_embeddings);
	return error < 0 ? error : open_tokenizer(o->model_dir, &r->tokenizer, e);
}

/* Returns the bytes of a cache for one sequence. An engine has one slot more than it runs sequences. */
static uint64_t cache_bytes(const struct reader *r)
{
	uint32_t number = engine_kv_number(&r->options);

	return r->n_pages * layer_part_bytes(&r->config, number, PAGE, TIER_PAGE) +
	       2 * layer_part_bytes(&r->config, number, PAGE, TIER_STATE);
}

int reader_load(struct reader *r, uint32_t context, uint32_t step, bool wants_logits, struct err *e)
{
	int error;

	r->n_pages = CEIL_DIV(context, (uint32_t)PAGE);
	r->options.page_tokens = PAGE;
	r->options.max_seqs = 1;
	r->options.max_prefill_tokens = step;
	r->options.max_model_len = context;
	r->options.cache_memory = cache_bytes(r);
	error = engine_open(&r->options, &r->engine, e);
	if (error < 0)
		return error;
	r->pages = calloc(r->n_pages, sizeof(*r->pages));
	r->results = calloc(step, sizeof(*r->results));
	if (wants_logits)
		r->logits = calloc((size_t)step * r->config.vocab_size, sizeof(*r->logits));
	if (!r->pages || !r->results || (wants_logits && !r->logits))
		return err_no_memory(e);
	for (uint32_t i = 0; i < r->n_pages; i++)
		r->pages[i] = i;
	return 0;
}

void reader_close(struct reader *r)
{
	engine_close(r->engine);
	tokenizer_free(r->tokenizer);
	free(r->pages);
	free(r->results);
	free(r->logits);
	*r = (struct reader){0};
}

/* Returns the token that the tokenizer puts before a text, as opposed to one that it puts behind; -1: none. */
static int begin_of(const struct tokenizer *t, int32_t *ret)
{
	struct ids empty = {0}, letter = {0};
	int error = tokenizer_encode_whole(t, "", 0, NULL, &empty);

	if (error == 0)
		error = tokenizer_encode_whole(t, "a", 1, NULL, &letter);
	*ret = error == 0 && empty.len && letter.v[0] == empty.v[0] ? empty.v[0] : -1;
	ids_release(&empty);
	ids_release(&letter);
	return error;
}

int reader_encode(const struct reader *r, const char *text, size_t len, struct ids *out,
		  int32_t *ret_begin, struct err *e)
{
	int error = begin_of(r->tokenizer, ret_begin);

	if (error == 0 && *ret_begin >= 0)
		error = ids_push(out, *ret_begin);
	if (error == 0)
		error = tokenizer_encode(r->tokenizer, text, len, true, NULL, out);
	if (error == -E2BIG)
		return err_set(e, E2BIG, "a pattern of the tokenizer takes too long for the text");
	return error < 0 ? err_no_memory(e) : 0;
}

int reader_same_vocabulary(const struct reader *a, const struct reader *b, struct err *e)
{
	int32_t n = MIN(tokenizer_size(a->tokenizer), tokenizer_size(b->tokenizer));

	if (a->config.vocab_size != b->config.vocab_size)
		return err_set(e, EINVAL,
			       "--against: another vocabulary, of %u tokens instead of %u",
			       b->config.vocab_size, a->config.vocab_size);
	for (int32_t i = 0; i < n; i++) {
		size_t a_len, b_len;
		const char *a_bytes = tokenizer_bytes(a->tokenizer, i, &a_len);
		const char *b_bytes = tokenizer_bytes(b->tokenizer, i, &b_len);

		if (a_bytes && b_bytes && (a_len != b_len || memcmp(a_bytes, b_bytes, a_len) != 0))
			return err_set(e, EINVAL,
				       "--against: another vocabulary, in which token %d has other "
				       "bytes",
				       i);
	}
	return 0;
}

int reader_step(struct reader *r, const int32_t *window, uint32_t start, uint32_t n, uint32_t first,
		uint32_t n_scored, struct err *e)
{
	const struct plan_row row = {.tokens = window + start,
				     .pages = r->pages,
				     .n_tokens = n,
				     .start = start,
				     .n_pages = r->n_pages,
				     .state_src = start ? 0 : STATE_ZERO};
	const struct plan_score score = {.next = window + start + first + 1,
					 .first = first,
					 .n_tokens = n_scored};
	const struct plan plan = {.step = ++r->steps,
				  .rows = &row,
				  .scores = &score,
				  .n_rows = 1,
				  .n_prefill_rows = 1,
				  .n_prefill_tokens = n,
				  .n_scores = n_scored > 0,
				  .n_scored_tokens = n_scored,
				  .logits = r->logits};
	uint64_t begin = clock_now_ns();
	int error = engine_step(r->engine, &plan, r->results, e);

	r->seconds += (double)(clock_now_ns() - begin) / 1e9;
	r->tokens += n;
	for (uint32_t i = 0; error == 0 && i < n_scored; i++)
		if (r->results[i].token < 0)
			error = err_set(e, ERANGE, "logits are not finite");
	return error;
}
