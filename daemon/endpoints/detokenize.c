/* POST /detokenize: token ids to their text. */
#include "daemon/request/call.h"
#include "daemon/request/text.h"
#include "protocol/openai/tokenize.h"

static int detokenize(struct call *c, struct buf *out, struct err *e)
{
	const struct server *s = c->server;
	struct openai_detokenize ask;
	const struct pace pace = prepare_pace(c);
	int r = openai_parse_detokenize(buf_str(&c->text.body), c->text.body.len, &pace,
					s->limits.vocab_size, &c->text.arena, &ask, e);

	if (r < 0)
		return r;
	r = prepare_model(s, ask.model, e);
	if (!r)
		openai_body_detokenize(s->tokenizer, ask.ids.v, ask.ids.len, out);
	openai_detokenize_release(&ask);
	return r;
}

const struct endpoint endpoint_detokenize = {
	.path = "/detokenize",
	.post = true,
	.id = "detok-",
	.most_body = 4 << 20, /* room for the ids of half a million tokens */
	.reply = detokenize,
};
