/*
 * Turns messages (message.h) into frames and back. The fields, their sizes and ranges are a table in wire_form.c, which
 * parser and encoder share.
 *
 * Every length and every range in a frame is checked before it is used. Parsing allocates nothing: the pointers of a
 * parsed message point into the frame. Pure, any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "protocol/transfer/message.h"

/* Reads a frame. The pointers of *ret point into it. -EPROTONOSUPPORT: the frame is of another version; -EBADMSG with a
 * sentence: anything else is wrong with it. After an error *ret is unchanged. */
int wire_parse(const void *frame, size_t len, struct wire_message *ret, struct err *e) MUST_CHECK;

/* Returns the id of the delivery that a frame names, also when the rest of the frame does not parse. 0: it names none,
 * or it is not a frame of this version. */
uint64_t wire_delivery(const void *frame, size_t len);

/* Appends the frame of a message. -EINVAL with a sentence: wire_parse would not accept it; -ENOBUFS: it is longer than
 * WIRE_FRAME_MAX or than the buffer may grow; -ENOMEM. After an error nothing is appended. */
int wire_encode(const struct wire_message *m, struct buf *out, struct err *e) MUST_CHECK;

/* Changes the delivery id in the frame of a message. */
void wire_set_delivery(void *frame, uint64_t delivery);

/* Makes a C string of a frame's sentence, for logs and clients: at most size - 1 bytes, and a question mark for each
 * byte that is not printable ASCII. */
void wire_text(const char *text, uint32_t n_text, char *out, size_t size);
