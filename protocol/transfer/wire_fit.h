/* Checks whether data fit together: a WINDOW and its raw frame; the HELLOs of two workers. Pure. */
#pragma once

#include "base/err.h"
#include "protocol/transfer/message.h"

/* Returns the bytes that the raw frame of a WINDOW must have: the sum over its runs. */
uint64_t wire_window_bytes(const struct wire_window *w);

/* Checks the size of a WINDOW's raw frame. -EBADMSG: its runs have more or fewer bytes. */
int wire_window_fits(const struct wire_window *w, uint64_t bytes, struct err *e) MUST_CHECK;

/* Returns whether each worker can use the other's pages and states, because model and layout are the same. False: e
 * names the difference. */
bool wire_hello_fits(const struct wire_hello *ours, const struct wire_hello *theirs,
		     struct err *e) MUST_CHECK;
