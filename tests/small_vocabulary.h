/* Tokens for tests of protocol/openai: a vocabulary of 15 pieces, some of which are parts of characters, and a function
 * tokenizer_bytes for this vocabulary. A program is linked with this function in place of the real tokenizer, so only
 * one of its files includes this header. */
#pragma once

#include "base/macros.h"
#include "protocol/tokenizer/tokenizer.h"

static const struct {
	const char *bytes;
	size_t len;
} vocabulary[] = {
#define T(s)                     \
	{                        \
		s, sizeof(s) - 1 \
	}
	T("a"),	       T(" bc"),	T("\xc3"),	    T("\xa9"),	       T("\xa9\xe2"),
	T("\x82\xac"), T("\xf0\x9f"),	T("\x99"),	    T("\x82"),	       T("\"\\\n"),
	T("\xff"),     T("<|im_end|>"), T("\xe6\x97\xa5x"), T("\xe2\x80\xa8"), T(""),
#undef T
};

enum { A, BC, C3, A9, A9E2, X82AC, F09F, X99, X82, QUOTE, FF, END, DAY, LINE, EMPTY };

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len)
{
	*len = 0;
	if (id < 0 || (size_t)id >= ARRAY_SIZE(vocabulary))
		return NULL;
	*len = vocabulary[id].len;
	return vocabulary[id].bytes;
}
