#include "protocol/grammar/constraint.h"

#include <errno.h>
#include <stdlib.h>

int constraint_choice(const struct constraint_text *texts, size_t n, struct grammar **ret,
		      struct err *e)
{
	struct grammar_builder *b = grammar_builder_new();
	uint32_t *parts = calloc(n + 1, sizeof(*parts)), root;
	int r = -ENOMEM;

	if (!n)
		r = err_set(e, EINVAL, "the list of choices is empty");
	else if (!b || !parts)
		err_no_memory(e);
	else {
		for (size_t i = 0; i < n; i++)
			parts[i] = grammar_literal(b, texts[i].text, texts[i].len);
		root = grammar_rule(b, "root");
		grammar_define(b, root, grammar_choice(b, parts, n));
		r = grammar_build(b, root, ret, e);
	}
	free(parts);
	grammar_builder_free(b);
	return r;
}
