/* A delivery: the data of one prompt (KV pages, a state, the first tokens) on their way from the prefill worker that
 * computes the prompt to the decode worker that answers. Each side has one `struct delivery` for it.
 *
 *     status             receiver (decode worker)          sender (prefill worker)
 *     Bootstrapping      made                              made
 *     Bootstrapped       -                                 PREPARE came
 *     WaitingForInput    PREPARE was sent                  the engine thread was told of it
 *     Transferring       the first WINDOW came, or STATUS  the first WINDOW was numbered, to be
 *                        Transferring or Success           sent at once (delivery_send)
 *     Success            all data, the first tokens and    all data, the first tokens and the
 *                        the status Success came, in       status Success were taken by the
 *                        any order (over ZeroMQ            transport
 *                        Success comes last)
 *     Failed             ended in any other way, such as: aborted, timed out, refused, a wrong message, a lost peer
 *
 * The status only rises; Success and Failed are final. A WINDOW or STATUS for a delivery that has ended is ignored,
 * because it may just be late. A message that cannot be right fails its delivery and nothing else.
 *
 * pieces.h notes which data have come, or were sent, as pieces (message.h). WINDOW messages are numbered, so that a
 * repeated WINDOW (which is ignored) is told from a new one that repeats a piece (which is wrong). A WINDOW has to
 * bring at least one missing piece, so a number that is not below the number of pieces is wrong too.
 *
 * Each attempt to have a prompt prefilled has a delivery with an id of its own. Pure: no sockets; times are arguments,
 * all of one monotonic clock. One thread. */
#pragma once

#include "base/err.h"
#include "protocol/transfer/message.h"

/* A receiver fails when no new WINDOW or STATUS has come for the time of delivery_set_patience, even if the prompt
 * only waits in the prefill worker's queue. DELIVERY_RECEIVE_TIMEOUT_NS is the longest such time. A receiver also fails
 * when not everything has come DELIVERY_WHOLE such times after it was made, or, if the time of delivery_set_patience is
 * longer than that, after that time (at most DELIVERY_WHOLE_MAX_NS), so that a peer that sends piece after piece,
 * each just in time, does not keep a prompt for hours. A sender fails when messages wait for the transport, and the
 * transport has taken none of them for DELIVERY_SEND_TIMEOUT_NS. */
#define DELIVERY_RECEIVE_TIMEOUT_NS ((uint64_t)300 * 1000000000)
#define DELIVERY_SEND_TIMEOUT_NS    ((uint64_t)120 * 1000000000)
enum { DELIVERY_WHOLE = 8 };
#define DELIVERY_WHOLE_MAX_NS ((uint64_t)4 * 3600 * 1000000000)

struct delivery;

enum delivery_verdict { DELIVERY_IGNORED, DELIVERY_TAKEN };

struct delivery_counts {
	/* bytes of raw frames; expected_bytes and expected_pieces are 0 in a sender before PREPARE */
	uint64_t bytes, expected_bytes;
	uint64_t pieces, expected_pieces;
	uint32_t windows;
	uint32_t n_cached; /* tokens that the prefill worker had cached */
};

/* Makes a receiver, which already has the pages of the prompt's first n_have tokens (a multiple of
 * layout->page_tokens). The layout is borrowed until delivery_free. -EINVAL or -EOVERFLOW with a sentence: a prompt of
 * these numbers cannot be delivered; -ENOMEM. */
int delivery_new_receiver(uint64_t id, const struct wire_layout *layout, uint32_t n_prompt,
			  uint32_t n_have, uint32_t n_choices, uint64_t now_ns,
			  struct delivery **ret, struct err *e) MUST_CHECK;

/* Makes a sender. delivery_prepare gives it the PREPARE. The layout is borrowed until delivery_free. -ENOMEM. */
int delivery_new_sender(uint64_t id, const struct wire_layout *layout, uint64_t now_ns,
			struct delivery **ret, struct err *e) MUST_CHECK;
void delivery_free(struct delivery *d);

/* ---- both sides ---- */

uint64_t delivery_id(const struct delivery *d);
enum delivery_status delivery_status(const struct delivery *d);
bool delivery_over(const struct delivery *d); /* Returns whether the status is Success or Failed. */
void delivery_counts(const struct delivery *d, struct delivery_counts *ret);

/* Raises the status to Bootstrapped or WaitingForInput. Does nothing if the delivery has that status, or a higher one,
 * already. */
void delivery_raise(struct delivery *d, enum delivery_status status, uint64_t now_ns);

/* Fails a delivery. Does nothing if it has ended. code is a positive errno; the sentence must not be empty. */
void delivery_fail(struct delivery *d, uint64_t now_ns, int code, const char *fmt, ...)
	PRINTF(4, 5);

/* Returns the reason of the failure; code 0: the delivery has not failed. Borrowed. */
const struct err *delivery_error(const struct delivery *d);

/* Makes the STATUS that reports the failure to the peer. The delivery must have failed; the sentence is borrowed from
 * it. */
void delivery_failed_status(const struct delivery *d, struct wire_status *ret);

/* delivery_deadline: returns the time at which delivery_tick has to be called (UINT64_MAX: never). delivery_tick: fails
 * a delivery whose deadline has come; true: the delivery has failed by this call. */
uint64_t delivery_deadline(const struct delivery *d);
bool delivery_tick(struct delivery *d, uint64_t now_ns);

/* Returns the first token of each choice [n_choices], or NULL while they are unknown. Borrowed. */
const struct draw_result *delivery_draws(const struct delivery *d);

/* ---- receiver ---- */

/* Sets the time without a new WINDOW or STATUS after which a receiver fails, unless a longer time was set before. The
 * time is never longer than DELIVERY_RECEIVE_TIMEOUT_NS, which holds until the first call. */
void delivery_set_patience(struct delivery *d, uint64_t ns);

/* Returns the time since which a receiver waits: when PREPARE was sent, when the last new WINDOW or STATUS came, or
 * when delivery_wait_anew was last called, whichever was latest. */
uint64_t delivery_waits_since(const struct delivery *d);

/* Returns whether a receiver that has not ended was made so long ago that everything should be here now. */
bool delivery_drags(const struct delivery *d, uint64_t now_ns);

/* Counts a receiver's wait from now on, because this worker itself was stopped for a while; the time since
 * delivery_waits_since does not count for delivery_drags either. Does nothing if the delivery has ended. */
void delivery_wait_anew(struct delivery *d, uint64_t now_ns);

/* ---- messages to a receiver ---- */

/* Both functions return a delivery_verdict, or -errno when the message has just made the delivery fail. */

/* Handles a WINDOW whose raw frame has the right size. DELIVERY_TAKEN: all its pieces are new and wanted, so the pieces
 * are to be written to the device. */
int delivery_receive(struct delivery *d, const struct wire_window *w, uint64_t now_ns,
		     struct err *e) MUST_CHECK;

/* Handles a STATUS. */
int delivery_hear(struct delivery *d, const struct wire_status *s, uint64_t now_ns,
		  struct err *e) MUST_CHECK;

/* ---- sender ---- */

/* Handles PREPARE. Returns a delivery_verdict: a second PREPARE is ignored. -errno: the delivery has failed, now or
 * before, and the peer must be told. */
int delivery_prepare(struct delivery *d, const struct wire_prepare *p, uint64_t now_ns,
		     struct err *e) MUST_CHECK;

/* Numbers a WINDOW that is about to be sent. -errno: the WINDOW must not be sent, because the delivery has ended, its
 * STATUS of success was made, or the delivery fails by this call. The delivery fails if PREPARE has not come, or if a
 * piece of the WINDOW was not asked for, has the wrong size or was in an earlier WINDOW. */
int delivery_send(struct delivery *d, struct wire_window *w, uint64_t now_ns,
		  struct err *e) MUST_CHECK;

/* Keeps a copy of the first token of each choice [n]. -errno: the delivery has ended, its STATUS of success was made,
 * or the delivery fails by this call. The delivery fails if PREPARE has not come, if n is not the number of choices, if
 * the tokens are known already, or if memory is short. */
int delivery_draw(struct delivery *d, const struct draw_result *draws, uint32_t n, uint64_t now_ns,
		  struct err *e) MUST_CHECK;

/* Makes the STATUS of success, once; its draws are borrowed from the delivery. -EAGAIN: data or tokens are missing;
 * -EALREADY: it was made before; -ECANCELED: the delivery has ended. */
int delivery_finish(struct delivery *d, uint32_t n_cached, uint64_t now_ns,
		    struct wire_status *ret) MUST_CHECK;

/* Notes that the transport has taken one more message that delivery_send or delivery_finish allowed. The status becomes
 * Success when it has taken all, the STATUS of success among them. Does nothing if the delivery has ended. */
void delivery_sent(struct delivery *d, uint64_t now_ns);
