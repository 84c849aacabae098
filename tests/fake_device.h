/* A device that runs plans without arithmetic. For a position, a KV page keeps a mark (the token, and whether it was
 * computed by prefill or by decoding) and a hash of the marks before it. A state slot keeps the hash of its history.
 * Running a plan checks that every row reads its own history, through its block table and through its state, and
 * nothing else; that rows could run in any order or at once; and that no row writes outside its window, or a position
 * that was written already (but for copies, see fake_fill).
 *
 * The scheduler's model (scheduler_model.h) compares histories with the right ones. The fake engine and
 * test_handoff_pair draw tokens by them. */
#pragma once

#include "scheduler/scheduler.h"

struct fake_cell {
	int64_t mark;	 /* twice the token, and 1 if a decode row computed it */
	uint64_t before; /* hash of the marks at smaller positions */
};

struct fake_state {
	uint64_t hash; /* hash of all marks */
	uint32_t len;
};

struct fake_seat {
	/* hashes of the tokens marked and counted since the last reset */
	uint64_t prompt, generated;
};

/* How far a page is written. A copy may be written again from any position on: it belongs to one sequence. */
struct fake_fill {
	uint32_t len;
	bool copied;
};

struct fake_device {
	struct scheduler_config config;
	bool unmarked;		   /* marks do not say how a token was computed */
	struct fake_cell *cells;   /* [n_pages][page_tokens] */
	struct fake_fill *fills;   /* [n_pages] */
	struct fake_state *states; /* [n_slots] */
	uint32_t *
		page_writer; /* [n_pages] the row that writes the page in this step, or UINT32_MAX */
	uint32_t *slot_writer;	 /* [n_slots] */
	bool *copied_to;	 /* [max(n_pages, n_slots)] */
	struct fake_seat *seats; /* [max_seqs] */
	int32_t *drawn;		 /* [n_drawn] tokens that the plan before drew */
	uint32_t n_drawn;
};

enum { FAKE_NODES_MAX = 256 };

/* The tokens that should be the history of a row or a draw. Borrowed. */
struct fake_history {
	const int32_t *prompt, *generated;
	uint32_t n_prompt, n_generated;
	/* Of rows, [n_prompt + n_generated] or NULL: 1 where a token should have been computed by a decode row.
	 * learn: those before the row are filled in instead of compared. */
	uint8_t *decoded;
	bool learn;
};

struct fake_device *fake_device_new(const struct scheduler_config *config);
void fake_device_free(struct fake_device *d);

/* Runs the rows of a plan. Plans come in the order in which they are handed over. rows [n_rows]: the sequence's tokens
 * up to and with the row's last one; NULL: they are not compared. Returns NULL, or the condition that failed. */
const char *fake_device_run(struct fake_device *d, const struct plan *plan,
			    const struct fake_history *rows);

/* The plan's draws gave results [n_draws]; a row of the next plan without tokens takes its token from them. draws
 * [n_draws]: the prompt and the tokens drawn before; NULL: they are not compared. Returns NULL, or the condition that
 * failed. */
const char *fake_device_draw(struct fake_device *d, const struct plan *plan,
			     const struct fake_history *draws, const struct draw_result *results);

/* Where a row's page has the position. */
struct fake_cell *fake_device_cell(const struct fake_device *d, const struct plan_row *row,
				   uint32_t position);

/* The hash of the whole history of a row that was run, its own tokens included. */
uint64_t fake_device_hash(const struct fake_device *d, const struct plan_row *row);

/* Writes data that come from another worker: the prompt's pages from position n_have on, and (slot not POOL_NONE) its
 * state, as a prefill leaves them. Behind the plans that were run. */
void fake_device_receive(struct fake_device *d, const struct scheduler_prepare *p);

/* Checks data for another worker: page `index` of the prompt, as far as the prompt goes / the state behind it,
 * computed by prefill throughout. NULL, or the condition that failed. */
const char *fake_device_check_page(const struct fake_device *d, uint32_t page, uint32_t index,
				   const int32_t *prompt, uint32_t n_prompt);
const char *fake_device_check_state(const struct fake_device *d, uint32_t slot,
				    const int32_t *prompt, uint32_t n_prompt);

/* Checks everything that the cache publishes: its pages hold their tokens, behind those of their parents; its slots
 * hold the state at exactly the end of their node; and a node's origin is how it was computed. At most FAKE_NODES_MAX
 * nodes. NULL, or the condition that failed. */
const char *fake_device_check_cache(const struct fake_device *d, const struct prefix_cache *c);

/* "file:line: condition" out of the calling function unless the condition holds. */
#define FAKE_TEXT2(x) #x
#define FAKE_TEXT(x)  FAKE_TEXT2(x)
#define EXPECT(condition)                                                        \
	do {                                                                     \
		if (!(condition))                                                \
			return __FILE__ ":" FAKE_TEXT(__LINE__) ": " #condition; \
	} while (0)
