/* The table of messages, which parser and encoder share. For protocol/transfer/ only. */
#pragma once

#include "base/err.h"
#include "protocol/transfer/message.h"

enum field_kind {
	RAW,  /* bytes, or a number of any value */
	INT,  /* unsigned, from min to max */
	REAL, /* float, from low to high, not NaN */
	ARRAY, /* the number of elements, 32 bits, from min to max; the elements follow the last field */
};

struct field {
	const char *name;
	enum field_kind kind;
	uint16_t offset; /* offset of the value in struct wire_message; ARRAY: of the pointer */
	uint16_t size;	 /* bytes of the value in a frame; ARRAY: bytes of one element */
	uint16_t count;	 /* ARRAY: offset of the number of elements in struct wire_message */
	uint64_t min, max;
	float low, high;
};

struct wire_form {
	const struct field *fields; /* the last one has no name */
	/* Makes the checks that ranges of single fields cannot express. -EBADMSG: the message is wrong. NULL: there is
	 * nothing else to check. */
	int (*check)(const struct wire_message *m, struct err *e);
	bool has_delivery;
};

/* Returns the form of a type of message; NULL: the type is unknown. */
const struct wire_form *wire_form(uint32_t type);
