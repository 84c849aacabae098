/* The streaming detokenizer against a naive model that keeps all bytes and computes, after each id, the text that may
 * be passed on: over random ids that cut characters anywhere and stop strings that nearly match. The examples show
 * the same in readable form. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "protocol/tokenizer/detokenizer.h"
#include "tests/random.h"
#include "tests/tap.h"

/* Ids 0 to 255 are the single bytes. The ids from 256 on are these pieces, the last of which is special. */
static const char *const pieces[] = {
	"ab",	    "abc",	    "b",     "STOP",
	"ST",	    "OP\n",	    "\n\n",  "\xf0\x9f",
	"\x98\x80", "\xe2\x82\xac", "a\xe2", "\x82",
	"\xac\xe2", "\xff\xfe",	    "\xc3",  "\xa9\xc3\xa9",
	"\xed\xa0", "\xef\xbf\xbd", "aab",   "\xf0\x9f\x98\x61",
	"<|end|>",
};
enum { N_PIECES = ARRAY_SIZE(pieces), FIRST = 256, SPECIAL = FIRST + N_PIECES - 1 };

static struct tokenizer *tokenizer;

/* Appends the byte-level alphabet's character for a byte, as UTF-8 in a JSON string. */
static void put_byte(struct buf *out, unsigned byte)
{
	uint32_t c = byte;
	char text[4];

	if (byte <= ' ')
		c = 0x100 + byte;
	else if (byte >= 0x7f && byte <= 0xa0)
		c = 0x121 + byte - 0x7f;
	else if (byte == 0xad)
		c = 0x143;
	if (c == '"' || c == '\\')
		buf_putc(out, '\\');
	buf_append(out, text, utf8_encode(c, text));
}

static void make_tokenizer(void)
{
	struct err e = {0};
	struct buf json;

	buf_init(&json, 1 << 20);
	buf_printf(
		&json,
		"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"id\":%d,"
		"\"content\":\"%s\",\"special\":true}],\"model\":{\"type\":\"BPE\",\"merges\":[],"
		"\"vocab\":{",
		SPECIAL, pieces[N_PIECES - 1]);
	for (unsigned i = 0; i < SPECIAL; i++) {
		const char *text = i < FIRST ? "" : pieces[i - FIRST];

		/* A single byte has an id already, so this id stays a gap. */
		if (i >= FIRST && strlen(text) == 1)
			continue;
		buf_puts(&json, i ? ",\"" : "\"");
		if (i < FIRST)
			put_byte(&json, i);
		for (; *text; text++)
			put_byte(&json, (unsigned char)*text);
		buf_printf(&json, "\":%u", i);
	}
	buf_puts(&json, "}}}");
	if (tokenizer_parse("made", json.data, json.len, &tokenizer, &e) < 0)
		printf("# %s\n", e.text);
	buf_release(&json);
}

/* ---- the naive model ---- */

enum { BYTES_MAX = 4096 };

struct naive {
	const char *const *stops;
	size_t n_stops;
	bool include; /* detokenizer_include_stops */
	char raw[BYTES_MAX];
	size_t n_raw;
	bool ended;
	/* what naive_update computes from these: */
	char text[3 * BYTES_MAX];
	size_t raw_end[3 * BYTES_MAX + 1]; /* for a length of text: how many raw bytes it covers */
	/* bytes of text: all, and those that may be passed on */
	size_t len, out;
	bool stopped;
};

/* Decodes raw to text, without an incomplete sequence at the end unless the text has ended. */
static void naive_decode(struct naive *m)
{
	size_t at = 0;

	m->len = 0;
	m->raw_end[0] = 0;
	while (at < m->n_raw) {
		bool cut;
		int n = utf8_sequence(m->raw + at, m->n_raw - at, &cut);
		size_t used = (size_t)abs(n);

		if (cut && !m->ended)
			break;
		if (n < 0) {
			for (int i = 1; i <= 3; i++)
				m->raw_end[m->len + (size_t)i] = at + used;
			memcpy(m->text + m->len, "\xef\xbf\xbd", 3);
			m->len += 3;
		} else {
			for (size_t i = 0; i < used; i++) {
				m->text[m->len++] = m->raw[at + i];
				m->raw_end[m->len] = at + i + 1;
			}
		}
		at += used;
	}
}

static bool ends_with(const char *text, size_t len, const char *tail, size_t n)
{
	return len >= n && !memcmp(text + len - n, tail, n);
}

static void naive_update(struct naive *m)
{
	size_t hold = 0;

	naive_decode(m);
	for (size_t end = 1; end <= m->len; end++) {
		size_t match = 0;

		for (size_t k = 0; k < m->n_stops; k++)
			if (ends_with(m->text, end, m->stops[k], strlen(m->stops[k])))
				match = MAX(match, strlen(m->stops[k]));
		if (match) {
			m->stopped = true;
			m->out = m->include ? end : end - match;
			return;
		}
	}
	for (size_t k = 0; k < m->n_stops && !m->ended && !m->include; k++)
		for (size_t n = 1; n < strlen(m->stops[k]); n++)
			if (ends_with(m->text, m->len, m->stops[k], n))
				hold = MAX(hold, n);
	m->out = m->len - hold;
}

static void naive_push(struct naive *m, int32_t id)
{
	size_t len;
	const char *bytes = tokenizer_bytes(tokenizer, id, &len);

	if (m->stopped || tokenizer_is_special(tokenizer, id) || !bytes)
		return;
	memcpy(m->raw + m->n_raw, bytes, len);
	m->n_raw += len;
	naive_update(m);
}

static const char *const all_stops[] = {
	"STOP", "b",   "aab", "\n\n",	      "\xe2\x82\xac", "abab",
	"OP\n", "a\n", "STO", "\xef\xbf\xbd", "aaaa",	      "\xc3\xa9\xc3\xa9"};

static void run_random(void)
{
	static struct naive m;
	const char *strings[4];
	struct detokenizer *d;
	struct stops *stops;
	struct buf out;
	size_t n_ids = random_below(40), most = random_below(2) ? SPECIAL + 2 : 3;

	memset(&m, 0, offsetof(struct naive, text));
	m.len = m.out = 0;
	m.stopped = false;
	m.n_stops = random_below(5);
	m.stops = strings;
	m.include = random_below(2);
	for (size_t i = 0; i < m.n_stops; i++)
		strings[i] = all_stops[random_below(ARRAY_SIZE(all_stops))];
	stops = stops_new(strings, m.n_stops);
	d = detokenizer_new(tokenizer, stops);
	if (m.include)
		detokenizer_include_stops(d);
	buf_init(&out, 1 << 20);
	for (size_t i = 0; i < n_ids; i++) {
		/* Letters alone if most is 3; else mostly pieces, now and then any id below `most`. */
		int32_t id = most == 3	       ? (int32_t)("ab\n"[random_below(3)])
			     : random_below(4) ? FIRST + (int32_t)random_below(N_PIECES)
					       : (int32_t)random_below(most);
		int r = detokenizer_push(d, id, &out);

		naive_push(&m, id);
		check(r == (int)m.stopped);
		check(out.len == m.out && !memcmp(buf_str(&out), m.text, m.out));
		check(detokenizer_released(d) == m.raw_end[m.out]);
		check(utf8_valid(buf_str(&out), out.len) == out.len);
	}
	if (!m.stopped) {
		m.ended = true;
		naive_update(&m);
	}
	check(detokenizer_finish(d, &out) == (int)m.stopped);
	check(out.len == m.out && !memcmp(buf_str(&out), m.text, m.out));
	check(detokenizer_released(d) == m.raw_end[m.out]);
	detokenizer_free(d);
	stops_free(stops);
	buf_release(&out);
}

/* ---- by example ---- */

/* Pushes the ids of the input's bytes or pieces. want: all text that comes, with a bar behind the text of each id, or !
 * where a stop string has ended it. released: the bytes of ids that this text covers. */
static void example(const char *const *strings, size_t n_stops, const char *const *input, size_t n,
		    const char *want, size_t released)
{
	struct stops *stops = stops_new(strings, n_stops);
	struct detokenizer *d = detokenizer_new(tokenizer, stops);
	struct buf out;
	int r = 0;

	buf_init(&out, 1000);
	for (size_t i = 0; i < n && !r; i++) {
		r = detokenizer_push(d, tokenizer_id(tokenizer, input[i]), &out);
		buf_puts(&out, r ? "!" : "|");
	}
	check(detokenizer_finish(d, &out) >= r);
	is_str(buf_str(&out), want, "%zu ids, %zu stops", n, n_stops);
	is_int(detokenizer_released(d), released, "and their released bytes");
	detokenizer_free(d);
	stops_free(stops);
	buf_release(&out);
}

#define LIST(...) \
	((const char *const[]){__VA_ARGS__}), ARRAY_SIZE(((const char *const[]){__VA_ARGS__}))
#define NO_STOPS NULL, 0

static void test_examples(void)
{
	example(NO_STOPS, LIST("a", "b", "abc"), "a|b|abc|", 5);
	example(NO_STOPS, LIST("\xf0\x9f", "\x98\x80", "a"), "|\xf0\x9f\x98\x80|a|", 5);
	example(NO_STOPS, LIST("\xf0\x9f", "a"),
		"|\xef\xbf\xbd"
		"a|",
		3);
	example(NO_STOPS, LIST("a", "\xf0\x9f"), "a||\xef\xbf\xbd", 3);
	example(NO_STOPS, LIST("a\xe2", "\x82", "\xac\xe2", "\x82", "\xac"), "a||\u20ac||\u20ac|",
		7);
	example(NO_STOPS, LIST("a", "<|end|>", "b"), "a||b|", 2);
	example(LIST("STOP"), LIST("a", "ST", "OP\n", "b"), "a||!", 1);
	example(LIST("STOP"), LIST("ST", "a"), "|STa|", 3);
	example(LIST("STOP"), LIST("a", "ST"), "a||ST", 3);
	example(LIST("STOP"), LIST("ST", "ST", "b"), "|ST|STb|", 5);
	example(LIST("abab", "b"), LIST("ab"), "a!", 1);
	example(LIST("bc", "abc"), LIST("abc"), "!", 0);
	example(LIST("\n\n"), LIST("a", "\n", "b", "\n\n"), "a||\nb|!", 3);
	example(LIST("\u20ac"), LIST("a", "\xe2", "\x82", "\xac"), "a|||!", 1);
	example(LIST("aab"), LIST("a", "a", "a", "a", "b", "a"), "||a|a|!", 2);
}

/* Pushes one text byte by byte: after each byte, the text that came out is a beginning of it. */
static void test_every_cut(void)
{
	static const char text[] = "a\u00e9\u20ac\U0001f600 STOP";
	struct stops *stops = stops_new((const char *const[]){"STOP"}, 1);
	size_t len = sizeof(text) - 1;

	for (size_t cut = 0; cut <= len; cut++) {
		struct detokenizer *d = detokenizer_new(tokenizer, stops);
		struct buf out;
		int r = 0;

		buf_init(&out, 1000);
		for (size_t i = 0; i < len; i++) {
			r = detokenizer_push(d, (unsigned char)text[i], &out);
			check(utf8_valid(buf_str(&out), out.len) == out.len);
			check(r == (i + 1 == len));
			if (i + 1 == cut && !r)
				check(detokenizer_released(d) == out.len && out.len <= cut &&
				      !memcmp(buf_str(&out), text, out.len));
		}
		check(!strcmp(buf_str(&out), "a\u00e9\u20ac\U0001f600 "));
		check(detokenizer_push(d, 'x', &out) == 1 && out.len == len - 4);
		check(detokenizer_finish(d, &out) == 1 && out.len == len - 4);
		detokenizer_free(d);
		buf_release(&out);
	}
	stops_free(stops);
	ok_all("what is out is whole and true after each byte, and nothing follows a stop");
}

/* A long output that nearly matches stop strings costs time by its length only. */
static void test_near_stops(void)
{
	char *stop = calloc(1, 4097);
	struct detokenizer *d;
	struct stops *stops;
	struct buf out;

	memset(stop, 'a', 4095);
	stop[4095] = 'b';
	stops = stops_new((const char *const[]){stop}, 1);
	d = detokenizer_new(tokenizer, stops);
	buf_init(&out, 8 << 20);
	for (int i = 0; i < 100000; i++)
		check(detokenizer_push(d, 'a', &out) == 0);
	check(out.len == 100000 - 4095);
	check(detokenizer_push(d, 'b', &out) == 1 && out.len == 100000 - 4095);
	ok_all("a hundred thousand times nearly a stop");
	detokenizer_free(d);
	stops_free(stops);
	buf_release(&out);
	free(stop);
}

/* Choices share stop strings, and each finds them in its own text. */
static void test_shared_stops(void)
{
	struct stops *stops = stops_new((const char *const[]){"STOP", "xy"}, 2);
	struct detokenizer *a = detokenizer_new(tokenizer, stops),
			   *b = detokenizer_new(tokenizer, stops);
	struct buf out;

	buf_init(&out, 1000);
	for (const char *p = "STO"; *p; p++)
		check(!detokenizer_push(a, *p, &out) && !detokenizer_push(b, *p, &out));
	ok(!out.len && detokenizer_push(a, 'P', &out) == 1 && !out.len, "one choice ends");
	ok(!detokenizer_push(b, 'x', &out) && !strcmp(buf_str(&out), "STO"), "the other goes on");
	ok(detokenizer_push(b, 'y', &out) == 1, "to its own stop");
	detokenizer_free(a);
	detokenizer_free(b);
	stops_free(stops);
	buf_release(&out);
}

static void test_no_room(void)
{
	struct detokenizer *d = detokenizer_new(tokenizer, NULL);
	struct buf out;

	buf_init(&out, 2);
	ok(detokenizer_push(d, 'a', &out) == 0 && detokenizer_push(d, FIRST + 1, &out) < 0,
	   "a full buffer is an error");
	detokenizer_free(d);
	buf_release(&out);
}

int main(void)
{
	make_tokenizer();
	if (!ok(tokenizer != NULL, "the test's tokenizer"))
		return done();
	test_examples();
	for (int i = 0; i < 60000; i++)
		run_random();
	ok_all("random ids and stops, as the naive model has them after each id");
	test_every_cut();
	test_near_stops();
	test_shared_stops();
	test_no_room();
	tokenizer_free(tokenizer);
	return done();
}
