/* POST /apply-template: takes a body of /v1/chat/completions and answers with the text of the prompt that the model
 * would get. llama.cpp's server has such an endpoint, too. */
#include "daemon/request/call.h"
#include "daemon/request/text.h"
#include "protocol/openai/writer.h"

static int apply_template(struct call *c, struct buf *out, struct err *e)
{
	struct openai_request ask;
	struct buf prompt;
	const struct openai_limits limits = prepare_limits(c);
	const struct pace pace = prepare_pace(c);
	int r = openai_parse_chat(buf_str(&c->text.body), c->text.body.len, &pace, &limits,
				  &c->text.arena, &ask, e);

	if (r < 0)
		return r;
	buf_init(&prompt, SIZE_MAX / 2);
	r = prepare_model(c->server, ask.model, e);
	if (!r)
		r = prepare_render(c, ask.context, &prompt, e);
	if (!r) {
		buf_puts(out, "{\"prompt\":");
		writer_string(out, buf_str(&prompt), prompt.len);
		buf_putc(out, '}');
	}
	buf_release(&prompt);
	openai_request_release(&ask);
	return r;
}

const struct endpoint endpoint_apply_template = {
	.path = "/apply-template",
	.post = true,
	.id = "apply-",
	.reply = apply_template,
};
