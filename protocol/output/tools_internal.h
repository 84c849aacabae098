/* For the formats of tool calls: the state of a parser, and functions that give out its events.
 *
 * tools.c reads the text between calls. When it has read one of the format's openings, it calls `enter`, and from then
 * on `byte` for each byte, until that function goes back to TOOLS_OUTSIDE or TOOLS_CLOSING. A byte that may come back
 * as text is appended to `held`; tools_begin drops what is held. */
#pragma once

#include "base/buf.h"
#include "protocol/output/literal.h"
#include "protocol/output/tools.h"

enum {
	TOOLS_OUTSIDE, /* between calls */
	TOOLS_CLOSING, /* behind a call, where the closing tag may follow */
	TOOLS_INSIDE,  /* the first state of a format's own */
};

enum { TOOLS_OPENINGS_MAX = 2, TOOLS_SIGNS_MAX = 2 };

struct tools_writer;

struct tools_format {
	/* Texts with which calls begin; NULL: there are no more. Their first character is in them only once. */
	const char *openings[TOOLS_OPENINGS_MAX];
	/* A text that may follow a call; NULL: there is none. */
	const char *closing;
	/* Calls are only at the start of the text or behind the reasoning, and behind other calls. */
	bool at_start;
	/* A template with all of these texts (NULL: there are no more), and without the text `unlike` (NULL: any),
	 * belongs to a model that writes this format. */
	const char *signs[TOOLS_SIGNS_MAX], *unlike;
	bool brief_ids;			    /* tools_brief_ids */
	const char *marks[TOOLS_MARKS_MAX]; /* tools_mark */

	/* Sets t->state to that behind the opening with this number. */
	void (*enter)(struct tools *t, size_t opening);
	/* Takes a byte, in the format's own states. */
	void (*byte)(struct tools *t, char c);
	/* Returns an expression for the calls of an answer, as the model writes them (tools_writer.h). */
	uint32_t (*write)(struct tools_writer *w);
	/* The arguments of a call are about to end before they are complete: gives out what is known of them. NULL:
	 * there is never more. */
	void (*cut)(struct tools *t);
};

/* An object with name and arguments, as far as it was read (tools_object.c). */
struct tools_object {
	unsigned stage;	 /* enum stage of tools_object.c */
	unsigned member; /* whose value is read: enum member of tools_object.c */
	bool any;	 /* a member was read */
	bool named;	 /* the name was read, and is that of a tool */
	bool argued;	 /* the arguments were read */
	bool called;	 /* the call has begun */
	bool as_text;	 /* the arguments are null, or a string that has JSON */
	/* as JSON, but for a name that was read; key: also a value that nobody needs */
	struct buf key, name, arguments;
	struct literal value;
};

struct tools {
	const struct tools_format *format; /* borrowed, as is the list */
	const struct tool_list *list;
	tools_take_event *take;
	void *to;
	bool one, over; /* over: `one` is set, and the first call has ended */
	bool open;	/* a call has begun and has not ended */
	bool cut;	/* a call was cut */
	bool trim;	/* line ends that come now are dropped, because a call is before them */
	bool begun;	/* text other than blanks has come */
	bool failed;	/* memory ran out */
	uint32_t n_calls;

	unsigned state;
	struct buf held; /* the end of the text, for which no event was given yet */
	/* The number of blanks with which it begins; TOOLS_OUTSIDE: of line ends, unless calls are at the start. */
	size_t n_blank;
	enum tools_event_type pending;
	struct buf out; /* of TOOLS_TEXT or TOOLS_ARGUMENTS, on its way to `take` */

	struct tools_object object;
	struct literal value;
	/* of formats that read names of calls and parameters one by one */
	struct buf name, text;
	const struct tool *tool;
	size_t n_arguments;
	unsigned types; /* enum tools_types */
};

/* Empties a buffer of the parser's, and notes whether it has failed. */
void tools_clear(struct tools *t, struct buf *b);

/* Returns the tool with this name; NULL: there is none. */
const struct tool *tools_find(const struct tools *t, const char *name, size_t len);

/* Begins a call, and drops what is held. */
void tools_begin(struct tools *t, const char *name);
void tools_arguments(struct tools *t, const char *json, size_t len);
void tools_put(struct tools *t, const char *json); /* the same, of a string */

/* Returns the buffer to which more of the arguments may be appended, until the next call of another function. */
struct buf *tools_arguments_out(struct tools *t);

/* Ends the call, whose arguments are complete. */
void tools_end(struct tools *t);

/* Ends the call, whose arguments are a JSON object that the format itself has written, but for its end: n_arguments
 * members, and before the first one '{'. */
void tools_end_members(struct tools *t);

/* Byte c cannot follow. Gives back what is held, but for its last n_again bytes, and reads those and c in state `next`,
 * TOOLS_OUTSIDE or TOOLS_CLOSING. If a call is open, cuts it first, and `next` is TOOLS_OUTSIDE. */
void tools_wrong(struct tools *t, unsigned next, size_t n_again, char c);

/* Goes on behind a call that has ended. */
void tools_close(struct tools *t);

/* Appends c to *text if it then is the beginning of `tag`, all of it included. */
bool tools_match(struct buf *text, const char *tag, char c);

/* tools_object.c: an object such as {"name": "f", "arguments": {"a": 1}}, whose members may come in any order.
 * "parameters" is another name for "arguments". Further members are dropped. tools_object_byte begins the call, gives
 * its arguments out, and ends it. LITERAL_END: the object has ended. LITERAL_WRONG: the byte cannot follow;
 * t->object.called says whether the call had begun. */
void tools_object_init(struct tools *t, bool opened); /* opened: '{' was read already */
enum literal_status tools_object_byte(struct tools *t, char c);
void tools_object_cut(struct tools *t);

/* The function `byte` of a format whose calls are such objects. */
void tools_object_step(struct tools *t, char c);
