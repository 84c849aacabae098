/* A device that runs plans without arithmetic. For a position, a KV page keeps a mark (the token, and whether it was
 * computed by prefill or by decoding) and a hash of the marks before it. A state slot keeps the hash of its history,
 * the marks of all tokens up to the state. Running a plan checks that every row reads its own history, through its
 * block table and through its state, and nothing else; that rows could run in any order or at once; and that no row
 * writes outside its own tokens, or a position that was written already (but for copies, see fake_fill).
 *
 * The scheduler's model (scheduler_model.h) compares histories with the right ones. The fake engine and
 * test_handoff_pair draw tokens that follow from histories. */
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
	/* Hashes of the tokens that the last reset gave the seat: of those of the prompt, and of those that were
	 * generated. Each later draw of the seat adds its token to `generated`. */
	uint64_t prompt, generated;
};

/* How far a page is written. A page that was copied from another one belongs to one sequence. So that sequence may
 * begin to write it again at any position, once. */
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
		page_writer; /* [n_pages] the row that writes the page in this step; UINT32_MAX: none */
	uint32_t *slot_writer;	 /* [n_slots] the same of slots; UINT32_MAX - 1: a row's snapshot */
	bool *copied_to;	 /* [max(n_pages, n_slots)] a copy of this plan writes it */
	struct fake_seat *seats; /* [max_seqs] */
	int32_t *drawn;		 /* [n_drawn] tokens that the plan before drew */
	uint32_t n_drawn;
};

enum { FAKE_NODES_MAX = 256 };

/* The tokens that should be the history of a row or a draw. Borrowed. */
struct fake_history {
	const int32_t *prompt, *generated;
	uint32_t n_prompt, n_generated;
	/* For a row: [n_prompt + n_generated] 1 where a decode row should have computed the token; NULL: not compared.
	 * learn: the members for the tokens before the row are filled in instead of compared. */
	uint8_t *decoded;
	bool learn;
};

struct fake_device *fake_device_new(const struct scheduler_config *config);
void fake_device_free(struct fake_device *d);

/* Runs a plan: its resets, copies and rows. Plans have to come in the order in which the scheduler made them. rows
 * [n_rows]: the tokens of the row's sequence up to and with the row's last one; NULL: they are not compared. Returns
 * NULL, or the condition that failed. */
const char *fake_device_run(struct fake_device *d, const struct plan *plan,
			    const struct fake_history *rows);

/* Takes the results [n_draws] of the plan's draws. A row of the next plan that has no tokens takes its token from these
 * results. draws [n_draws]: the prompt and the tokens drawn before, which are compared if the draw has penalties; NULL:
 * they are not compared. Returns NULL, or the condition that failed. */
const char *fake_device_draw(struct fake_device *d, const struct plan *plan,
			     const struct fake_history *draws, const struct draw_result *results);

/* Returns the cell of a position of a row's sequence, borrowed. */
struct fake_cell *fake_device_cell(const struct fake_device *d, const struct plan_row *row,
				   uint32_t position);

/* Returns the hash of the whole history of a row that was run, its own tokens included. */
uint64_t fake_device_hash(const struct fake_device *d, const struct plan_row *row);

/* Writes data that come from another worker: the prompt's pages from position n_have on, and, unless the slot is
 * POOL_NONE, the state behind the prompt, all as a prefill leaves them. */
void fake_device_receive(struct fake_device *d, const struct scheduler_prepare *p);

/* Check data for another worker: that `page` holds page `index` of the prompt, as far as the prompt goes; that `slot`
 * holds the state behind the prompt. All of it must have been computed by prefill. Return NULL, or the condition that
 * failed. */
const char *fake_device_check_page(const struct fake_device *d, uint32_t page, uint32_t index,
				   const int32_t *prompt, uint32_t n_prompt);
const char *fake_device_check_state(const struct fake_device *d, uint32_t slot,
				    const int32_t *prompt, uint32_t n_prompt);

/* Checks everything that the cache publishes: its pages hold their tokens, behind those of their parents; its slots
 * hold the state at exactly the end of their node; and a node's origin says how its pages were computed. At most
 * FAKE_NODES_MAX nodes. Returns NULL, or the condition that failed. */
const char *fake_device_check_cache(const struct fake_device *d, const struct prefix_cache *c);

/* Returns "file:line: condition" from the calling function, unless the condition holds. */
#define FAKE_TEXT2(x) #x
#define FAKE_TEXT(x)  FAKE_TEXT2(x)
#define EXPECT(condition)                                                        \
	do {                                                                     \
		if (!(condition))                                                \
			return __FILE__ ":" FAKE_TEXT(__LINE__) ": " #condition; \
	} while (0)
