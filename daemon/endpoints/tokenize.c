/* POST /tokenize: a text, or messages in the model's template, to token ids. */
#include "daemon/request/call.h"
#include "daemon/request/text.h"
#include "protocol/openai/tokenize.h"

static int tokenize(struct call *c, struct buf *out, struct err *e)
{
	const struct server *s = c->server;
	struct openai_tokenize ask;
	struct ids ids = {0};
	const struct pace pace = prepare_pace(c);
	int r = openai_parse_tokenize(buf_str(&c->text.body), c->text.body.len, &pace, &s->limits,
				      &c->text.arena, &ask, e);

	if (r < 0)
		return r;
	r = prepare_model(s, ask.model, e);
	if (!r && ask.prompt)
		r = prepare_encode(c, ask.prompt, ask.prompt_len, ask.add_special_tokens, SIZE_MAX,
				   &ids, e);
	else if (!r)
		r = prepare_chat_prompt(c, ask.context, NULL, 0, SIZE_MAX, &ids, e);
	if (!r)
		r = openai_body_tokenize(s->tokenizer, &ids, s->info.max_model_len, ask.form, &pace,
					 out, e);
	ids_release(&ids);
	openai_tokenize_release(&ask);
	return r;
}

const struct endpoint endpoint_tokenize = {
	.path = "/tokenize",
	.post = true,
	.id = "tok-",
	.reply = tokenize,
};
