/* Tool calls of a choice, in pieces: as they come from the model, or all of them.
 *
 * Their ids follow from the answer's id, so nothing keeps them: the same call has the same id in a stream and in a
 * whole body, and two calls of an answer have different ones. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/macros.h"

/* A piece of a call: its name, or some of its arguments. */
struct openai_call_piece {
	uint32_t call; /* number of the call in its choice */
	bool begins;   /* the piece is the name */
	bool cut;      /* of a name: the call has ended before its arguments were complete */
	bool cut_last; /* of a name: the call before it was cut */
	size_t len;    /* bytes of its text, UTF-8 that ends with a whole character */
};

/* Pieces in their order. Neighbours with arguments of one call are one piece. */
struct openai_calls {
	struct buf text;	     /* of all pieces, one behind the other */
	struct openai_call_piece *v; /* [n] */
	size_t n, cap;
	uint32_t n_begun; /* calls that have begun; openai_calls_clear keeps the number */
	bool cut;	  /* the call that has begun last was cut; openai_calls_clear keeps this */
};

/* Makes *c an empty list, whose texts may have `max` bytes. Allocates nothing. */
void openai_calls_init(struct openai_calls *c, size_t max);
void openai_calls_release(struct openai_calls *c);

/* Removes all pieces, and keeps their memory. */
void openai_calls_clear(struct openai_calls *c);

/* Begins the next call, or adds arguments to the last one. If memory runs out, text.failed is set. */
void openai_calls_begin(struct openai_calls *c, const char *name, size_t len);
void openai_calls_add(struct openai_calls *c, const char *arguments, size_t len);

/* Notes that the last call was cut: in `cut`, and beside its name, if that is still in the list. */
void openai_calls_cut(struct openai_calls *c);

/* Returns the bytes of memory that the list takes. */
size_t openai_calls_bytes(const struct openai_calls *c);

enum { CALL_ID_MAX = 32 };

/* Writes the id of a call: `prefix`, such as "call_", of at most 7 characters, and 24 letters and digits, or, with
 * `brief`, 9 letters and digits alone. Mistral's templates refuse any id but a brief one. `answer` is the answer's
 * id. */
void openai_call_id(const char *prefix, const char *answer, uint32_t choice, uint32_t call,
		    bool brief, char out[CALL_ID_MAX]);
