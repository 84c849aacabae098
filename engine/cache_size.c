#include "engine/cache_size.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/macros.h"

/* The share of the cache's bytes for checkpoint slots. In a model with states a prompt resumes only where the cache has
 * its pages and a state behind them. In the models for which the share was chosen (Qwen3.5-35B-A3B and
 * Qwen3-Next-80B-A3B, in bfloat16) a state takes as many bytes as the pages of 3,264 tokens. Two states of a
 * conversation matter most: the one at the end of its last prompt, and the newest one of its answer. With these two, a
 * chat of 5,000 tokens has 57% of its bytes in states, and an agent's conversation of 50,000 tokens 12%. A third lies
 * between. */
#define CHECKPOINT_SHARE (1.0 / 3)

/* If other programs use the memory too and no option asks for bytes, the cache takes at most budget / SHARED_DIVISOR
 * bytes more than the least that works (the working slots, and the pages of one sequence of full length). */
#define SHARED_DIVISOR 4

struct size_text size_text(uint64_t bytes)
{
	struct size_text t;
	double mib = (double)bytes / (1 << 20);

	if (mib >= 1024)
		snprintf(t.s, sizeof(t.s), "%.2f GiB", mib / 1024);
	else
		snprintf(t.s, sizeof(t.s), "%.2f MiB", mib);
	return t;
}

static uint64_t full_pages(const struct cache_wish *w)
{
	return CEIL_DIV((uint64_t)w->max_model_len, w->page_tokens);
}

static uint64_t working_slots(const struct cache_wish *w)
{
	return w->slot_bytes ? (uint64_t)w->max_seqs + 1 : 0;
}

/* Returns the bytes for the cache: as many as an option asks for, else all that are left. If no option asks and other
 * programs use the memory too, the bytes are only enough for every sequence at full length and checkpoints beside them,
 * and at most as many as SHARED_DIVISOR allows. */
static uint64_t choose_bytes(const struct cache_wish *w)
{
	uint64_t slots = working_slots(w) * w->slot_bytes, length = full_pages(w) * w->page_bytes;
	uint64_t most;

	if (w->asked)
		return w->asked;
	if (w->asked_share > 0)
		return (uint64_t)((double)w->room * MIN(w->asked_share, 1.0));
	if (!w->shared)
		return w->room;
	most = (uint64_t)((double)(slots + w->max_seqs * length) / (1 - CHECKPOINT_SHARE)) +
	       w->slot_bytes;
	most = MIN(most, slots + length + w->budget / SHARED_DIVISOR);
	return MIN(most, w->room);
}

uint32_t cache_size_longest(const struct cache_wish *w)
{
	uint64_t bytes = w->budget, most;

	if (w->length_asked || !w->page_bytes)
		return w->max_model_len;
	if (w->asked)
		bytes = MIN(bytes, w->asked);
	else if (w->asked_share > 0)
		bytes = (uint64_t)((double)bytes * MIN(w->asked_share, 1.0));
	most = MIN(MAX(bytes / w->page_bytes, (uint64_t)1), (uint64_t)INT32_MAX) * w->page_tokens;
	return (uint32_t)MIN(most, (uint64_t)w->max_model_len);
}

static int refuse(const struct cache_wish *w, uint64_t bytes, uint64_t pages, struct err *e)
{
	const char *option = w->asked || w->asked_share > 0 ? "--cache-memory" : "--device-memory";
	uint64_t needed = working_slots(w) * w->slot_bytes + pages * w->page_bytes;

	if (w->length_asked)
		return err_set(
			e, ENOMEM,
			"a sequence of --max-model-len %u with the states of --max-num-seqs %u needs %s of cache, and "
			"there is room for %s: lower these, or raise %s",
			w->max_model_len, w->max_seqs, size_text(needed).s, size_text(bytes).s,
			option);
	return err_set(
		e, ENOMEM,
		"the states of --max-num-seqs %u and one KV page need %s of cache, and there is room for %s: "
		"lower --max-num-seqs, or raise %s",
		w->max_seqs, size_text(needed).s, size_text(bytes).s, option);
}

/* Returns the number of sequences: max_seqs, or the fewer ones that fit if it may be lowered; at least 1. */
static uint32_t choose_seqs(const struct cache_wish *w, uint64_t bytes)
{
	uint64_t pages = (w->length_asked ? full_pages(w) : 1) * w->page_bytes, slots;

	if (!w->fewer_seqs || !w->slot_bytes || working_slots(w) * w->slot_bytes + pages <= bytes)
		return w->max_seqs;
	slots = MIN(bytes / 2, bytes - MIN(pages, bytes)) / w->slot_bytes;
	return slots > 2 ? (uint32_t)MIN(slots - 1, (uint64_t)w->max_seqs) : 1;
}

static int divide(const struct cache_wish *w, uint64_t bytes, struct cache_size *ret, struct err *e)
{
	uint64_t working = working_slots(w), slots = working * w->slot_bytes;
	uint64_t length = full_pages(w), most_pages = INT32_MAX, fits, pages, checkpoints = 0;
	uint32_t max_model_len = w->max_model_len;

	if (w->page_buffer)
		most_pages = MIN(most_pages, w->max_buffer / w->page_buffer);
	fits = bytes < slots ? 0 : w->page_bytes ? (bytes - slots) / w->page_bytes : most_pages;
	fits = MIN(fits, most_pages);
	if (fits < length) {
		if (w->length_asked || !fits)
			return refuse(w, bytes, w->length_asked ? length : 1, e);
		length = fits;
		max_model_len = (uint32_t)(fits * w->page_tokens);
		log_warning("context length lowered from %u to %u tokens, which fit in %s of cache",
			    w->max_model_len, max_model_len, size_text(bytes).s);
	}
	if (w->slot_bytes) {
		uint64_t spare = bytes - slots - length * w->page_bytes;

		checkpoints =
			MIN((uint64_t)((double)bytes * CHECKPOINT_SHARE), spare) / w->slot_bytes;
		checkpoints = MIN(checkpoints, (uint64_t)INT32_MAX - working);
		if (w->max_buffer / w->slot_buffer > working)
			checkpoints = MIN(checkpoints, w->max_buffer / w->slot_buffer - working);
		else
			checkpoints = 0;
	}
	/* If no layer keeps pages, a page costs nothing, so there are as many pages as all sequences can need. */
	pages = w->page_bytes ? (bytes - slots - checkpoints * w->slot_bytes) / w->page_bytes
			      : length * w->max_seqs;
	*ret = (struct cache_size){
		.n_pages = (uint32_t)MIN(pages, most_pages),
		.n_slots = (uint32_t)(working + checkpoints),
		.max_model_len = max_model_len,
		.max_seqs = w->max_seqs,
	};
	return 0;
}

int cache_size_choose(const struct cache_wish *w, struct cache_size *ret, struct err *e)
{
	uint64_t bytes = choose_bytes(w);
	struct cache_wish less = *w;

	if (bytes > w->room)
		return err_set(
			e, EINVAL,
			"--cache-memory asks for %s, and of the %s to be used %s are left beside the "
			"model",
			size_text(bytes).s, size_text(w->budget).s, size_text(w->room).s);
	less.max_seqs = choose_seqs(w, bytes);
	if (less.max_seqs < w->max_seqs)
		log_warning("sequences lowered from %u to %u, so that their states leave room for "
			    "KV pages in %s of cache",
			    w->max_seqs, less.max_seqs, size_text(bytes).s);
	return divide(&less, bytes, ret, e);
}
