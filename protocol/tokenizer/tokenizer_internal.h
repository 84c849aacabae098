/* The members of a tokenizer. Only tokenizer_load.c, which fills them, and tokenizer.c know them. */
#pragma once

#include "protocol/tokenizer/added.h"
#include "protocol/tokenizer/bpe.h"
#include "protocol/tokenizer/splitter.h"
#include "protocol/tokenizer/tokenizer.h"
#include "protocol/tokenizer/unicode.h"
#include "protocol/tokenizer/vocab.h"

struct tokenizer {
	const struct unicode *unicode;
	struct added raw;	 /* added tokens that are found in the raw text */
	bool nfc;		 /* normalize the text around the tokens of `raw` to NFC, */
	bool marked;		 /* and write its spaces as U+2581 */
	struct added normalized; /* added tokens that are found in the normalized text */
	struct splitter *splitter;
	struct vocab vocab;
	struct bpe bpe;
	struct ids prefix, suffix; /* the ids that tokenizer_encode_whole adds */
};
