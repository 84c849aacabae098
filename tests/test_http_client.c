/* daemon/cli/http_client.c: server-sent events, however their bytes are cut. A socket pair stands for the connection. */
#include "daemon/cli/http_client.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/tap.h"

static struct buf events; /* the data of all events, each between brackets */

static void take_event(struct stream *s, const char *data, size_t len)
{
	check(strlen(data) == len);
	buf_printf(&events, "[%s]", data);
}

/* Lets the client read an answer with this type and body, `step` bytes at a time. Returns the data of its events. *s: as
 * the client leaves it, to be released. */
static const char *read_answer(struct stream *s, const char *type, const char *body, size_t step)
{
	struct err e = {0};
	struct buf answer;
	int fds[2], r = 0;

	buf_reset(&events);
	buf_init(&answer, 1 << 16);
	buf_printf(&answer, "HTTP/1.1 200 OK\r\nContent-Type:%s\r\nContent-Length: %zu\r\n\r\n%s",
		   type, strlen(body), body);
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
	stream_init(s, take_event, NULL);
	s->fd = fds[0];
	s->state = STREAM_HEADERS;
	for (size_t at = 0; at < answer.len; at += step) {
		size_t n = MIN(step, answer.len - at);

		check(r == 0 && write(fds[1], answer.data + at, n) == (ssize_t)n);
		r = stream_io(s, &e);
	}
	check(r == 1);
	close(fds[1]);
	buf_release(&answer);
	return buf_str(&events);
}

TEST(lines)
{
	static const struct {
		const char *body, *want, *what;
	} rows[] = {
		{"data: a\n\ndata:b\n\n", "[a][b]", "with a blank and without"},
		{"event: error\ndata: a\n\n", "[a]", "an event with a type"},
		{"id: 1\nretry: 5\ndata: a\nid\n\n", "[a]", "fields before and behind the data"},
		{"data: a\ndata:  b\n\n", "[a\n b]",
		 "two lines of data, the second with a blank of its own"},
		{"data\n\ndata:\ndata\n\n", "[][\n]", "lines of empty data"},
		{": ping\n\n:\ndata: a\n: x\n\n", "[a]", "comments"},
		{"event: x\n\n\n\n", "", "an event without data is none"},
		{"data: a\r\n\r\ndata: b\r\r\ndata: c\r\n\n", "[a][b][c]", "CR LF, CR and LF"},
		{"data: a\r\ndata: b\r\n\r\n", "[a\nb]", "CR LF is one end of a line"},
		{"dat: a\ndatas: b\n data: c\n\n", "", "other fields"},
		{"data: a\n\ndata: b\n", "[a]", "an event that is not complete"},
		{"data: a:b\n\n", "[a:b]", "a colon within"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t step = 1; step < 200; step += step < 3 ? 1 : 196) {
			struct stream s;

			is_str(read_answer(&s, " text/event-stream; charset=utf-8", rows[i].body,
					   step),
			       rows[i].want, "%s, by %zu bytes", rows[i].what, step);
			stream_release(&s);
		}
}

TEST(other_types)
{
	struct stream s;

	is_str(read_answer(&s, "application/json", "{\"a\":\n\ndata: 1\n\n}", 1), "",
	       "JSON has no events");
	is_str(buf_str(&s.body), "{\"a\":\n\ndata: 1\n\n}", "and is kept whole");
	stream_release(&s);
}

int main(void)
{
	buf_init(&events, 1 << 16);
	run_tests();
	buf_release(&events);
	return done();
}
