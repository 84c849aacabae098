/* /tokenize and /detokenize, on the text thread: a body to the body of its answer. */
#include "daemon/request/text.h"
#include "protocol/openai/tokenize.h"

#include <errno.h>

int tokenize_answer(struct server *s, const struct buf *body, struct arena *arena, struct buf *out,
		    struct err *e)
{
	struct openai_tokenize ask;
	struct ids ids = {0};
	int r = openai_parse_tokenize(buf_str(body), body->len, arena, &ask, e);

	if (r < 0)
		return r;
	r = prepare_model(s, ask.model, e);
	if (!r && ask.prompt)
		r = prepare_encode(s, ask.prompt, ask.prompt_len, ask.add_special_tokens, &ids, e);
	else if (!r)
		r = prepare_chat_prompt(s, ask.context, &ids, e);
	if (!r)
		openai_body_tokenize(s->tokenizer, &ids, s->info.max_model_len,
				     ask.return_token_strs, out);
	ids_release(&ids);
	openai_tokenize_release(&ask);
	return r;
}

int detokenize_answer(struct server *s, const struct buf *body, struct arena *arena,
		      struct buf *out, struct err *e)
{
	struct openai_detokenize ask;
	int r = openai_parse_detokenize(buf_str(body), body->len, s->limits.vocab_size, arena, &ask,
					e);

	if (!r)
		r = prepare_model(s, ask.model, e);
	if (!r)
		openai_body_detokenize(s->tokenizer, ask.ids, ask.n_ids, out);
	return r;
}
