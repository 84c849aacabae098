/* A plan: one step of work, which the scheduler decides and the engine runs. The engine sees nothing else of the
 * scheduler.
 *
 * Order inside a step: reset seats, copy pages and states, run the rows, pool, score, draw. Steps run one after the
 * other, in the order of their plans; a plan may be made and submitted while the one before it runs. All pointers are
 * borrowed from the scheduler, and valid until it is called again.
 *
 * A row reads its state from slot `state_src` and leaves it in slot `state_dst`. If these are different slots, the first
 * one does not change. So the plan copies no cached state that is resumed, and the state at the end of a page is kept by
 * letting the next row write another slot. `snapshots` keep states inside a prefill row. Prefill rows are
 * computed in chunks at absolute multiples of CHUNK_TOKENS: the start of such a row is a multiple, and so is its end
 * unless the row ends the prompt. Decode rows have one token and advance the state by it. Source: TokenSpeed's plan. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CHUNK_TOKENS = 64, /* chunk of the Gated DeltaNet prefill, in tokens */
	TOP_LOGPROBS_MAX = 20,
	SNAPSHOTS_MAX = 4,
};

/* state_src: the sequence begins with a zero state, or the model has no states */
#define STATE_ZERO (-1)

/* The parameters of a draw. The drawn token depends only on the logits, these parameters, (choice, position), banned
 * ids, mask and biases of the struct plan_draw, and, with penalties, the seat's token counts. */
struct sampling {
	float temperature;			   /* 0: greedy */
	float top_p;				   /* 1: off */
	float min_p;				   /* 0: off */
	int32_t top_k;				   /* 0: off */
	float presence_penalty, frequency_penalty; /* 0: off; over generated tokens */
	float repetition_penalty;		   /* 1: off; over prompt and generated tokens */
	uint64_t seed;
	uint8_t n_logprobs; /* number of most likely tokens reported beside the drawn one */
	bool want_logprobs; /* report the drawn token's log-probability */
};

/* Whether draws with these parameters need the seat's token counts. */
static inline bool sampling_penalised(const struct sampling *s)
{
	return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1;
}

/* Asks to keep the state behind the sequence's first `n_tokens` tokens in `slot`, beside the row's own state in
 * state_dst. */
struct plan_snapshot {
	/* a multiple of CHUNK_TOKENS; row.start < n_tokens < row.start + row.n_tokens */
	uint32_t n_tokens;
	uint32_t slot; /* no other row of this step reads or writes it */
};

struct plan_row {
	const int32_t *tokens; /* [n_tokens] ids to run; NULL: see token_draw (decode rows only) */
	/* if tokens is NULL: index into the draws of the previous plan; this row runs the token of that draw */
	uint32_t token_draw;
	const uint32_t *pages; /* [n_pages] block table from position 0 */
	uint32_t n_tokens;
	uint32_t start;	    /* position of tokens[0] in its sequence */
	uint32_t n_pages;   /* covers at least start + n_tokens positions */
	int32_t state_src;  /* slot read, or STATE_ZERO */
	uint32_t state_dst; /* slot written; 0 in a model without states */
	uint32_t n_snapshots;
	struct plan_snapshot snapshots[SNAPSHOTS_MAX]; /* prefill rows only; by rising n_tokens */
	bool decode;
	/* The cache keeps state_dst as a checkpoint, so the sequence's next row writes another slot. The engine need
	 * not know. */
	bool leaves_state;
};

enum {
	PLAN_BANNED_MAX =
		512, /* ids that one draw may ban: a request's stop tokens and the model's end tokens */
	PLAN_BIASES_MAX = 1024, /* biases of one draw */
};

/* A number that is added to the logit of a token. */
struct plan_bias {
	int32_t token;
	float value; /* finite */
};

/* The words of a token mask: bit id % 32 of word id / 32 says whether the token may be drawn. */
#define PLAN_MASK_WORDS(vocab_size) (((vocab_size) + 31) / 32)

/* A draw from the logits behind a row's last token. Rows that compute known tokens again, and windows that do not end
 * their prompt, have none. */
struct plan_draw {
	const struct sampling *sampling;
	/* [n_banned] ids that must not be drawn yet: end tokens before min_tokens. The mask leaves others. */
	const int32_t *banned;
	uint32_t n_banned;
	uint32_t n_biases;
	/* [n_biases] by rising token, each token once */
	const struct plan_bias *biases;
	/* [PLAN_MASK_WORDS] the token mask; NULL: every token may be drawn */
	const uint32_t *allowed;
	uint32_t row;	   /* index into plan.rows */
	uint32_t seat;	   /* seat with this sequence's token counts, < max_seqs */
	uint32_t choice;   /* index of the choice in its request */
	uint32_t position; /* tokens that this choice has generated before */
};

/* Asks for log-probabilities of a prompt's tokens (*scores*): that of next[i] comes from the logits behind the row's
 * token first + i. Draws nothing. */
struct plan_score {
	const int32_t *next;	  /* [n_tokens] ids, all known */
	uint32_t first, n_tokens; /* first + n_tokens <= row.n_tokens */
	uint32_t row;		  /* a prefill row; one score a row at most */
	uint32_t n_top; /* most likely tokens listed beside each, at most TOP_LOGPROBS_MAX */
};

/* The hidden states of a prompt of which one vector is made. A hidden state is a token's row behind the model's last
 * norm. */
enum pooling {
	POOLING_NONE, /* no vector is wanted */
	POOLING_LAST, /* the hidden state of the last token */
	POOLING_MEAN, /* those of all tokens, added in the order of their positions */
};

/* Adds the hidden states of a row's tokens, from number `first` on to the last, one after the other to the sum of a
 * seat. So the bits of a sum do not depend on how the prompt was cut into rows. */
struct plan_pooling {
	uint32_t row;	/* a prefill row; one pooling a row at most */
	uint32_t first; /* < row.n_tokens */
	uint32_t seat;	/* < max_seqs; no other pooling of this step has it */
	bool begins;	/* the sum is 0 before */
	bool ends;	/* the sum is a result: engine_pooled (engine/engine.h) */
};

/* Lists, with a row of a prompt that is computed here, data for the worker that decodes it: pages that are whole when
 * the row has run; and with the row that ends the prompt the partial page and the state behind the prompt. No page of a
 * prompt is in two ships, and pages that the other worker has already (n_have of the request) are in none. Pages and
 * slot keep their content, also after the plan is committed, until one of these ends the request: scheduler_shipped,
 * scheduler_abort, scheduler_finish_choice, scheduler_fail, or a scheduler_commit that reports a failed draw of it. A
 * read of pages and slot that is queued on the device later may read other data. */
struct plan_ship {
	uint64_t request;    /* the request's id */
	uint32_t row;	     /* a prefill row; one ship a row at most */
	uint32_t first_page; /* index of the first page in row.pages */
	uint32_t n_pages;    /* pages from there on, >= 1 */
	bool state; /* ship row.state_dst too: the row ends the prompt, and the model has states */
};

/* Prepares a seat for another sequence whose draws are penalised: the seat's token counts become zero, then the
 * tokens of the prompt are marked and the generated ones are counted. */
struct plan_seat_reset {
	const int32_t *prompt;	  /* [n_prompt] marked as prompt */
	const int32_t *generated; /* [n_generated] counted; a retracted sequence has some */
	uint32_t n_prompt, n_generated;
	uint32_t seat;
};

struct plan_copy {
	uint32_t src, dst;
};

struct plan {
	uint64_t step;			     /* counts from 1 */
	const struct plan_row *rows;	     /* [n_rows] prefill rows first, then decode rows */
	const struct plan_draw *draws;	     /* [n_draws] in order of their rows */
	const struct plan_score *scores;     /* [n_scores] in order of their rows */
	const struct plan_pooling *poolings; /* [n_poolings] in order of their rows */
	const struct plan_ship *ships;	     /* [n_ships] in order of their rows */
	const struct plan_seat_reset *resets;
	const struct plan_copy *page_copies;  /* whole KV pages, all layers */
	const struct plan_copy *state_copies; /* whole state slots, all layers */
	uint32_t n_rows, n_prefill_rows;
	uint32_t n_prefill_tokens; /* tokens of the prefill rows together */
	uint32_t n_draws, n_resets, n_page_copies, n_state_copies;
	uint32_t n_scores, n_scored_tokens; /* n_scored_tokens: the tokens of all scores */
	/* [n_scored_tokens, vocab_size] gets the logits from which the scores come, before engine_wait returns for the
	 * plan; NULL, as in the scheduler's plans: they stay on the device */
	float *logits;
	uint32_t n_poolings, n_ships;
};

/* The result of one draw, or of one scored token. top_* are sorted by falling log-probability, equal ones by rising id.
 * The results of a plan are those of its draws [n_draws], then those of its scores [n_scored_tokens]. */
struct draw_result {
	int32_t token; /* drawn, or scored; -1: the draw or score has failed, because logits are not finite */
	float logprob; /* natural logarithm, from the raw logits; 0 unless requested */
	uint32_t rank; /* of a scored token: its rank, 1 for the most likely; of a draw: 0 */
	uint32_t n_top;
	int32_t top_ids[TOP_LOGPROBS_MAX];
	float top_logprobs[TOP_LOGPROBS_MAX];
};
