/* Checks that a request's headers say in one way alone where the body ends and for which host the request is (RFC 9112,
 * sections 3.2 and 5 to 7). A proxy in front may read doubtful headers otherwise than libmicrohttpd does. Then
 * libmicrohttpd could take the last part of one client's body for a request of another client (request smuggling).
 * libmicrohttpd hands such headers on, so they are checked here.
 *
 * A header may not be folded over several lines. libmicrohttpd does not tell of such a header, and makes a wrong name
 * of it: "Content-Length: 1" with a second line " 2" becomes the header "Content-Length2: 1". It writes the longer name
 * behind all lines that have arrived. So a header is folded if its value stands in front of its name: the value of any
 * other header stands behind the name. In rare cases there is room to lengthen the name where it stands, and this test
 * finds nothing. So a longer name that begins with "Content-Length" or "Transfer-Encoding" is always refused.
 *
 * Of a value with a zero byte libmicrohttpd hands on only the part in front of that byte: "14" of "14\0 20". So the end
 * of each line must stand directly behind the value. libmicrohttpd overwrites the ends of lines with zeros, so a zero
 * byte directly before an LF alone looks like CR LF, and is not found. The value is the same with and without it. For
 * the same reason the request line has no zero byte only if nothing but blanks stands between its method, its target
 * (path and query) and its version.
 *
 * A CR without LF behind it ends no line for libmicrohttpd, but it does for some other programs. libmicrohttpd leaves
 * it in the method, the target, a name or a value, where it is refused (RFC 9112, section 2.2). An LF alone ends a
 * line, which that section allows.
 *
 * Not found: a line that consists of a colon (or a zero byte) and an LF alone. libmicrohttpd overwrites the colon and
 * takes the line for the empty one at the end of the headers, and the zeros look like those of CR LF CR LF. A proxy in
 * front must refuse such a line, as HAProxy does. In trailers such lines do no harm, because the connection is closed
 * behind a chunked body (receive.c).
 *
 * The lines behind a chunked body, its trailers, are read in the same way, and a message whose trailers are malformed
 * is refused as one whose headers are (framing_check_trailers).
 *
 * For each argument of a query libmicrohttpd takes some of a connection's memory. If that does not suffice, it closes
 * the connection without an answer. So it gets no query of a request whose target has too many arguments or is too
 * long, and that request is refused here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum {
	FRAMING_HEADERS_MAX = 32 << 10, /* the most bytes of all names and values */
	FRAMING_TARGET_MAX = 16 << 10,	/* the most bytes of path and query */
	FRAMING_ARGUMENTS_MAX = 100,	/* the most arguments of the query */
};

/* The facts that the check needs, from the request line and the headers of a request so far. All zeros at first. */
struct framing {
	size_t target_len, n_arguments; /* bytes of the target, and arguments of its query */
	/* The target and its end, in the memory of the request. There may be a zero byte in front of the end. */
	const char *target, *target_end;
	bool cut_line;	 /* method or target has a zero byte */
	bool bad_method; /* the method is not a token */
	bool bare_cr;	 /* target or a value has a CR that ends no line */
	/* number of headers Content-Length, Transfer-Encoding and Host */
	unsigned n_lengths, n_codings, n_hosts;
	size_t bytes;  /* of all names and values */
	bool bad_name; /* a name is not a token, or is or may be that of a folded header */
	/* end of the last value, or of the request line if there is no header yet, in the memory of the request; NULL:
	 * not known */
	const char *end;
	bool cut_value;	       /* a line does not end directly behind its value */
	bool not_chunked;      /* a Transfer-Encoding is not "chunked" */
	bool content_encoding; /* a Content-Encoding is not "identity" */
};

/* Returns whether a token, such as a header's name, may have the character (RFC 9110, section 5.6.2). */
bool framing_in_token(char c);

/* To be called first, with the request's target, before libmicrohttpd has read the query from it. Version 0.9.75 of
 * libmicrohttpd calls back then: one zero byte and a version, such as "HTTP/1.1", stand behind the target, and a zero
 * byte behind the version; it has checked the version. If the target has a zero byte and a version in itself, the part
 * behind them is not seen here, so its arguments are not counted; if they are too many, the connection is closed. If
 * the target has too many arguments, is too long, or has a zero byte, the function ends the query behind its '?'. */
void framing_target(struct framing *f, char *target);

/* To be called when the headers have arrived: adds method and version, which stand in front of and behind the target,
 * in the same memory. */
void framing_line(struct framing *f, const char *method, const char *version);

/* Adds a header. The texts are borrowed until the function returns, and are compared by where they stand: both must be
 * in the memory into which libmicrohttpd has read the request. */
void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
		 size_t value_len);

/* To be called after the last framing_add. end: the end of the empty line behind the headers, in the same memory. */
void framing_end(struct framing *f, const char *end);

/* To be called after the last framing_add. version: such as "HTTP/1.1". Returns 0, or the negative code of a problem,
 * with a sentence in *e. After a problem the request must be refused and the connection closed. */
int framing_check(const struct framing *f, const char *version, struct err *e) MUST_CHECK;

/* Checks trailers that were added to a framing of their own, all zeros at first. */
int framing_check_trailers(const struct framing *f, struct err *e) MUST_CHECK;
