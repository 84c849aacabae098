/* The parts of a tokenizer: filled by tokenizer_load.c, used by tokenizer.c, seen by nobody else.
 */
#ifndef PROTOCOL_TEXT_TOKENIZER_INTERNAL_H
#define PROTOCOL_TEXT_TOKENIZER_INTERNAL_H

#include "protocol/text/added.h"
#include "protocol/text/bpe.h"
#include "protocol/text/splitter.h"
#include "protocol/text/tokenizer.h"
#include "protocol/text/unicode.h"
#include "protocol/text/vocab.h"

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

#endif
