/* A reader: a model that reads windows of a text, step by step, and says how likely each token was. The engine runs
 * without a scheduler, one sequence at a time. */
#pragma once

#include "base/ids.h"
#include "engine/engine.h"
#include "protocol/tokenizer/tokenizer.h"

struct reader {
	struct engine_options options;
	struct model_config config;
	struct tokenizer *tokenizer; /* owned */
	struct engine *engine;	     /* owned */
	uint32_t *pages;	     /* [n_pages] owned: 0, 1, 2, ... */
	uint32_t n_pages;
	struct draw_result *results; /* [step] owned: of the last call of reader_step */
	float *logits;		     /* [step, vocab_size] owned; NULL: not wanted */
	double seconds;		     /* that all steps took */
	uint64_t tokens, steps;
};

/* Opens a reader, which reader_close releases, also after an error: reads the model's configuration and tokenizer. o: what
 * the user chose. -EINVAL: the model goes to fewer tokens than a window of `context` has; or an error of reading. */
int reader_open(struct reader *r, const struct engine_options *o, uint32_t context,
		struct err *e) MUST_CHECK;
void reader_close(struct reader *r);

/* Loads the model, with memory for one window of `context` tokens that is read in steps of at most `step` tokens, a
 * multiple of CHUNK_TOKENS. wants_logits: steps keep the logits. Errors are those of engine_open. */
int reader_load(struct reader *r, uint32_t context, uint32_t step, bool wants_logits,
		struct err *e) MUST_CHECK;

/* Appends the ids of a text. *ret_begin: the token that the model's tokenizer puts before a text, which is the first id;
 * -1: none. -ENOMEM, or -E2BIG: a pattern of the tokenizer takes too long for this text. */
int reader_encode(const struct reader *r, const char *text, size_t len, struct ids *out,
		  int32_t *ret_begin, struct err *e) MUST_CHECK;

/* Checks that two readers have one vocabulary: as many logits, and the same bytes of every token that both know.
 * -EINVAL. */
int reader_same_vocabulary(const struct reader *a, const struct reader *b,
			   struct err *e) MUST_CHECK;

/* Runs tokens [start, start + n) of a window, whose tokens before were run by earlier calls; start is a multiple of
 * CHUNK_TOKENS, and so is n unless the window ends there. Scores n_scored tokens, from window[start + first + 1] on, each
 * by the logits behind the token before it: r->results and r->logits [n_scored]. first + n_scored <= n. -ERANGE: logits are
 * not finite; or an error of the engine. */
int reader_step(struct reader *r, const int32_t *window, uint32_t start, uint32_t n, uint32_t first,
		uint32_t n_scored, struct err *e) MUST_CHECK;
