/* The parts of a tokenizer: filled by tokenizer_load.c, used by tokenizer.c, seen by nobody else.
 */
#pragma once

#include "protocol/tokenizer/added.h"
#include "protocol/tokenizer/bpe.h"
#include "protocol/tokenizer/splitter.h"
#include "protocol/tokenizer/tokenizer.h"
#include "protocol/tokenizer/unicode.h"
#include "protocol/tokenizer/vocab.h"

struct tokenizer {
	const struct unicode *unicode;
	struct added raw;	 /* added tokens, found in the text as it came */
	bool nfc;		 /* normalize what lies between them */
	struct added normalized; /* added tokens, found in that */
	struct splitter *splitter;
	struct vocab vocab;
	struct bpe bpe;
	struct ids prefix, suffix;
};
