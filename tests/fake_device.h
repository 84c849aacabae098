/*
 * A device that runs plans without arithmetic: what a KV page keeps for a position is the token, whether it
 * was computed by prefill or by decoding, and a hash of everything before it; what a state slot keeps is the
 * whole history. Running a plan
 * checks that every row reads its own history, through its block table and through its state, and
 * nothing else; that rows could run in any order or at once; and that no row writes a page outside its window, or
 * one that was written already.
 */
#pragma once

#include "scheduler/scheduler.h"

struct fake_device;

enum { FAKE_NODES_MAX = 256 };

/* Tokens that should be what a row or a draw stands on. Borrowed. */
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

/* Runs a plan; plans come in the order in which they are handed over, what they draw is known here at once (a row
 * without tokens takes it from the plan before). rows [n_rows]: the sequence's tokens up to and with the row's last one; draws
 * [n_draws]: the prompt and the tokens drawn before; results [n_draws]. NULL, or the condition that
 * failed. */
const char *fake_device_run(struct fake_device *d, const struct plan *plan,
			    const struct fake_history *rows, const struct fake_history *draws,
			    const struct draw_result *results);

/* What comes from another worker: the prompt's pages from position n_have on, and (slot not POOL_NONE) its state, as a
 * prefill leaves them. Behind the plans that were run. */
void fake_device_receive(struct fake_device *d, const struct scheduler_prepare *p);

/* What another worker is to get: page `index` of the prompt, as far as the prompt goes / the state behind it, computed by
 * prefill throughout. NULL, or the condition that failed. */
const char *fake_device_check_page(const struct fake_device *d, uint32_t page, uint32_t index,
				   const int32_t *prompt, uint32_t n_prompt);
const char *fake_device_check_state(const struct fake_device *d, uint32_t slot,
				    const int32_t *prompt, uint32_t n_prompt);

/* What the cache publishes is there: its pages hold their tokens, behind those of their parents; its slots hold
 * the state at exactly the end of their node; and a node's origin is how it was computed. At most
 * FAKE_NODES_MAX nodes. NULL, or the condition that failed. */
const char *fake_device_check_cache(const struct fake_device *d, const struct prefix_cache *c);

/* "file:line: condition" out of the calling function unless the condition holds. */
#define FAKE_TEXT2(x) #x
#define FAKE_TEXT(x)  FAKE_TEXT2(x)
#define EXPECT(condition)                                                        \
	do {                                                                     \
		if (!(condition))                                                \
			return __FILE__ ":" FAKE_TEXT(__LINE__) ": " #condition; \
	} while (0)
