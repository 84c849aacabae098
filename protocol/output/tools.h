/* Finds tool calls in the text that a model writes, while it streams.
 *
 * Text goes in, in pieces of any size. An ordered list of events comes out:
 *
 *     TOOLS_TEXT       text that belongs to no call
 *     TOOLS_BEGIN      a call begins; the event has its name, which is the name of one of the request's tools
 *     TOOLS_ARGUMENTS  the next bytes of the call's arguments
 *     TOOLS_END        the call has ended; the event says whether it was cut (below)
 *
 * Where the pieces are cut makes no difference: the events are the same, if neighbours of the same kind are joined. The
 * arguments of a call that is complete are the text of a JSON object. No event ends within a character or within an
 * escape sequence of JSON, so a client may parse what it has so far.
 *
 * Models mark calls in different ways. A *format* knows one of them: it is one file and one row (TOOLS_FORMATS). Text
 * that could begin a call is held back until it is known whether it does. These rules are the same for all formats:
 *
 *  - A call begins when its name is complete, is the name of a tool, and more of a call follows: its arguments, in XML
 *    the name of a parameter or the end of the call. Before that, text that turns out to be no call, because it is
 *    malformed, names no tool, or ends too early, comes back as TOOLS_TEXT, byte for byte. So to mention a tool is no
 *    call.
 *  - It makes no difference what the text around a call is: a complete call within reasoning, or one that the model
 *    only quotes, is a call.
 *  - A call that has begun cannot be taken back. If its arguments turn out to be malformed, or the text ends, the call
 *    ends with the arguments that were read so far, and is *cut* (tools_cut). The malformed byte and all text behind it
 *    are read as text again.
 *  - A call has ended when its arguments are complete. Members of JSON behind them are dropped, and if one is
 *    malformed, all before the malformed byte is. A closing tag may be missing; if it follows, it is dropped.
 *  - Line ends directly before a call and behind one are dropped, because chat templates add their own. Other blanks
 *    are kept, unless the format has calls at the start of the text alone and no other text has come.
 *  - Errors that models often make in JSON are repaired: a control character in a string is escaped, and the backslash
 *    of an unknown escape is doubled. Half of a surrogate pair becomes \ufffd, and so does a zero byte in a member's name, with
 *    which no client could send the call back (JSON of a request must not have it).
 *
 * A text is read once, so the work is linear in its length. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

/* The JSON types that a schema allows for a value: a set of bits. Formats whose arguments have no types of their own
 * (XML) need it. */
enum tools_types {
	TOOLS_STRING = 1,
	TOOLS_NUMBER = 2, /* integers, too */
	TOOLS_BOOLEAN = 4,
	TOOLS_OBJECT = 8,
	TOOLS_ARRAY = 16,
	TOOLS_NULL = 32,
};

/* A parameter of a tool whose values may be other than strings. */
struct tool_parameter {
	const char *name;
	unsigned types; /* enum tools_types, not 0 */
};

/* A tool that the model may call. */
struct tool {
	const char *name;
	/* [n_parameters] those whose values may be other than strings; values of all others are strings */
	const struct tool_parameter *parameters;
	size_t n_parameters;
};

struct tool_list {
	const struct tool *v; /* [n] */
	size_t n;
};

/* The formats, in the order in which tools_detect tries them. Each is a const struct tools_format tools_NAME, and NAME
 * is its name on the command line. */
#define TOOLS_FORMATS(F) F(qwen_xml) F(hermes) F(mistral) F(llama_json) F(pythonic)

struct tools_format;

/* Returns the format with this number in TOOLS_FORMATS. */
const struct tools_format *tools_format_at(size_t i);

/* Returns the name of a format. */
const char *tools_name(const struct tools_format *format);

/* Returns whether the templates of models that write this format take brief ids of calls alone (openai/calls.h). */
bool tools_brief_ids(const struct tools_format *format);

enum { TOOLS_MARKS_MAX = 4 };

/* Returns mark number i of a format, from 0 on: a text of the calls that may be a special token, whose text is not
 * shown otherwise. NULL: there are no more. */
const char *tools_mark(const struct tools_format *format, size_t i);

/* Returns the format in which a model with this chat template writes calls. NULL: the template has no tools, or a
 * format that is not known. */
const struct tools_format *tools_detect(const char *template);

enum tools_event_type { TOOLS_TEXT, TOOLS_BEGIN, TOOLS_ARGUMENTS, TOOLS_END };

struct tools_event {
	enum tools_event_type type;
	const char *text; /* [len] text, name or arguments; borrowed until the function returns */
	size_t len;
	bool cut; /* of TOOLS_END */
};

typedef void tools_take_event(void *to, const struct tools_event *e);

struct tools;

/* Returns a *new* parser. Format and list are borrowed. one: the text ends with the first call, and all behind it is
 * dropped. `take` is called with `to` for each event, while tools_push or tools_finish runs. NULL: out of memory. */
struct tools *tools_new(const struct tools_format *format, const struct tool_list *list, bool one,
			tools_take_event *take, void *to) MUST_CHECK;
void tools_free(struct tools *t);

/* Takes a piece of text. When the piece is a single byte, the text of all its events is contiguous in the text that was
 * pushed, and ends where the held-back text begins. */
void tools_push(struct tools *t, const char *text, size_t len);

/* To be called behind reasoning: the text that comes now counts as the start of the text. */
void tools_start_again(struct tools *t);

/* To be called when the text has ended. */
void tools_finish(struct tools *t);

/* Returns the number of bytes at the end of the pushed text that are held back: they may come back as TOOLS_TEXT. */
size_t tools_held(const struct tools *t);

/* Returns the bytes of memory that the parser takes, which grow with the text that is held back. */
size_t tools_bytes(const struct tools *t);

/* Returns the number of calls that have begun. */
uint32_t tools_calls(const struct tools *t);

/* Returns whether a call was cut or has not ended yet. */
bool tools_cut(const struct tools *t);

/* Returns whether the text has ended with its first call (`one`). */
bool tools_over(const struct tools *t);

/* Returns whether memory ran out; then events are missing. */
bool tools_failed(const struct tools *t);
