/* Splits generated text into reasoning and content while it streams.
 *
 * Text behind <think>, which may stand in the prompt, is reasoning up to </think>; all other text is content. The tags
 * themselves are dropped, wherever they are and however the text is cut into pieces: the end of a piece that could
 * begin a tag is held back. Line ends are dropped behind an opening tag, and at the start of a text that begins as
 * reasoning. As long as the content has only line ends, further line ends are dropped behind a closing tag, too. The
 * chat template adds line ends at these places itself. All other text is kept byte for byte.
 *
 * An answer with a constraint (steering.h) has at most one think block, at its start (`once`). At most
 * REASONING_LINE_ENDS line ends are dropped behind it. All text behind these is content, whatever tags it has, and is
 * the text that the constraint reads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { REASONING_LINE_ENDS = 2 };

struct reasoning {
	bool inside;  /* inside a think block */
	bool once;    /* text outside of a think block has no tags */
	bool content; /* the content has more than line ends */
	/* so many line ends are dropped if they come next; UINT32_MAX: all of them, since no text is so long */
	uint32_t trim;
	uint8_t n_held;
	char held[8]; /* held-back text that begins a tag */
};

/* Begins a text. `inside`: the prompt ended inside an open think block. */
void reasoning_init(struct reasoning *r, bool inside, bool once);

/* Takes a piece of text. Appends the bytes that are neither dropped nor held back to `reasoning` or `content`; if
 * memory runs out, that buf's `failed` is set. */
void reasoning_push(struct reasoning *r, const char *text, size_t len, struct buf *reasoning,
		    struct buf *content);

/* Takes the line ends that belong to a tag off the start of a piece of the text behind it. Returns the number of bytes
 * of the piece to skip. *left: how many line ends may still come before other text; it becomes 0 when that has come. */
size_t reasoning_line_ends(const char *text, size_t len, uint32_t *left);

/* To be called when the text has ended: appends the held-back text, which is no whole tag. */
void reasoning_finish(struct reasoning *r, struct buf *reasoning, struct buf *content);
