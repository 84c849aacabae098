/*
 * Generated text, split into reasoning and content while it streams.
 *
 * What stands between <think> and </think> is reasoning, all else content. The tags go nowhere,
 * wherever they stand and however the pieces cut them: a suffix that could begin a tag is held
 * back. Line ends are dropped behind an opening tag and, as long as content holds nothing else,
 * behind a closing one (the chat template puts them there itself). Text without tags is content,
 * byte for byte.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct reasoning {
	bool inside;  /* of a think block */
	bool trim;    /* line ends are dropped until something else comes */
	bool content; /* other than line ends was met */
	uint8_t n_held;
	char held[8]; /* begins a tag */
};

/* `inside`: the prompt ended in an open think block. */
void reasoning_init(struct reasoning *r, bool inside);

/* Takes a piece of text and appends what is certain. When memory ran out, `failed` of a buf says
 * so. */
void reasoning_push(struct reasoning *r, const char *text, size_t len, struct buf *reasoning,
		    struct buf *content);

/* The text ended: appends what was held back. */
void reasoning_finish(struct reasoning *r, struct buf *reasoning, struct buf *content);
