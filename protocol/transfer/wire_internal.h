/* The description of messages that parser and encoder share. Inside protocol/transfer/ only. */
#ifndef PROTOCOL_TRANSFER_WIRE_INTERNAL_H
#define PROTOCOL_TRANSFER_WIRE_INTERNAL_H

#include "protocol/transfer/wire.h"

enum field_kind {
	RAW,   /* bytes, or a number of any value */
	INT,   /* unsigned, min .. max */
	REAL,  /* float, low .. high, not NaN */
	ARRAY, /* here its number of elements, 32 bits, min .. max; they lie behind all fields */
};

struct field {
	const char *name;
	enum field_kind kind;
	uint16_t offset; /* in struct wire_message; of an array: of its pointer */
	uint16_t size;	 /* bytes in a frame; of an array: of one element */
	uint16_t count;	 /* of an array: offset of its number of elements */
	uint64_t min, max;
	float low, high;
};

struct wire_form {
	const char *name;
	const struct field *fields; /* up to one without a name */
	int (*check)(const struct wire_message *m,
		     struct err *e); /* -EBADMSG; NULL: nothing more to check */
	bool has_room;
};

/* NULL: there is no such message. */
const struct wire_form *wire_form(uint32_t type);

#endif
