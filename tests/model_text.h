/* The tokenizer and the chat template of a model's directory. */
#pragma once

#include "engine/checkpoint/checkpoint.h"
#include "protocol/jinja/jinja.h"
#include "protocol/tokenizer/tokenizer.h"

/* Reads one text of the checkpoint at `path`. *ret has to be released, also after a failure. */
static inline int model_text(const char *path, enum checkpoint_part part,
			     struct checkpoint_text *ret, struct err *e)
{
	struct checkpoint *k;
	int r = checkpoint_open(path, &k, e);

	*ret = (struct checkpoint_text){.name = ""};
	if (r < 0)
		return r;
	r = checkpoint_read(k, part, ret, e);
	checkpoint_close(k);
	return r;
}

static inline int model_tokenizer(const char *path, struct tokenizer **ret, struct err *e)
{
	struct checkpoint_text text;
	int r = model_text(path, CHECKPOINT_TOKENIZER, &text, e);

	if (r == 0)
		r = tokenizer_parse(text.name, buf_str(&text.bytes), text.bytes.len, ret, e);
	checkpoint_text_release(&text);
	return r;
}

static inline int model_template(const char *path, struct template **ret, struct err *e)
{
	struct checkpoint_text text;
	int r = model_text(path, CHECKPOINT_TEMPLATE, &text, e);

	if (r == 0)
		r = template_parse(text.name, buf_str(&text.bytes), text.bytes.len, ret, e);
	checkpoint_text_release(&text);
	return r;
}
