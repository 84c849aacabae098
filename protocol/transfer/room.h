/*
 * A room: one request whose prompt one worker prefills for another, as one of the two sees it.
 *
 *                        receives (decode)                 sends (prefill)
 *     Bootstrapping      made; its peer has not            made
 *                        registered
 *     Bootstrapped       it has                            it has
 *     WaitingForInput    PREPARE is out                    the scheduler has it
 *     Transferring       the first window came             the first window went
 *     Success            all data, the tokens and          all data, the tokens and that
 *                        Success came, in any order        status went
 *     Failed             aborted, timed out, refused, or a message was wrong
 *
 * The status only rises, and Failed and Success stay. What comes for a room that is over is ignored: late messages are
 * nobody's fault. A message that cannot be right fails its room and nothing else.
 *
 * What has to come is known exactly: both parts of each attention layer of each page that the receiver has not, and both
 * parts of the state of each Gated DeltaNet layer, each once. One bit a part says whether it came. Windows have sequence
 * numbers, so a duplicate is told from a window that sends something twice; each brings something, so there are no more
 * numbers than parts.
 *
 *     bit of a part = (layer * pages + page - first page) * 2 + part % 2        (of a state: page - first page = 0)
 *
 * Each attempt to have a request prefilled is a room of its own with an id of its own. Pure: no sockets, times are
 * arguments (of one monotonic clock). One thread a room.
 */
#ifndef PROTOCOL_TRANSFER_ROOM_H
#define PROTOCOL_TRANSFER_ROOM_H

#include "protocol/transfer/wire.h"

/* Without anything new for so long a room fails. A receiver waits for all, also for a prompt that waits in its
 * peer's queue; a sender only for its peer to take what is out. */
#define ROOM_SEND_TIMEOUT_NS	((uint64_t)120 * 1000000000)
#define ROOM_RECEIVE_TIMEOUT_NS ((uint64_t)300 * 1000000000)

struct room;

enum room_verdict { ROOM_IGNORED, ROOM_TAKEN };

struct room_counts {
	uint64_t bytes, expected_bytes; /* of raw frames; expected_bytes: 0 before PREPARE */
	uint64_t parts, expected_parts;
	uint32_t windows;
	uint32_t n_cached; /* tokens that the prefill worker had */
};

/* A room that receives what is missing of a prompt: n_have, a multiple of layout->page_tokens, are there. The layout is
 * borrowed for as long as the room lives. -EINVAL, -EOVERFLOW with a sentence, -ENOMEM. */
int room_new_receiver(uint64_t id, const struct wire_layout *layout, uint32_t n_prompt,
		      uint32_t n_have, uint32_t n_choices, uint64_t now_ns, struct room **ret,
		      struct err *e) MUST_CHECK;

/* A room that sends, made when its PREPARE comes, or one that has failed before that. -ENOMEM. */
int room_new_sender(uint64_t id, const struct wire_layout *layout, uint64_t now_ns,
		    struct room **ret, struct err *e) MUST_CHECK;
void room_free(struct room *r);

/* ---- both ---- */

uint64_t room_id(const struct room *r);
enum room_status room_status(const struct room *r);
bool room_over(const struct room *r); /* Success or Failed */
void room_counts(const struct room *r, struct room_counts *ret);

/* Up to Bootstrapped or WaitingForInput; nothing when it is there or further. */
void room_raise(struct room *r, enum room_status status, uint64_t now_ns);

/* Ends a room that is not over: an abort of either side, a dead peer, frames that do not fit. code: a positive errno;
 * the sentence is not empty. */
void room_fail(struct room *r, uint64_t now_ns, int code, const char *fmt, ...) PRINTF(4, 5);

/* Why it failed; code 0: it has not. Borrowed. */
const struct err *room_error(const struct room *r);

/* The STATUS that tells a peer so. The sentence is borrowed from the room, which has failed. */
void room_failed_status(const struct room *r, struct wire_status *ret);

/* When room_tick has to be called at the latest; UINT64_MAX: no need. True: it has failed just now. */
uint64_t room_deadline(const struct room *r);
bool room_tick(struct room *r, uint64_t now_ns);

/* The first token of each choice [n_choices]; NULL: not yet there. Borrowed. */
const struct draw_result *room_draws(const struct room *r);

/* ---- receiver. Each returns a room_verdict, or, when it has just made the room fail, -errno with the reason ---- */

/* A window whose frames are as it says. Taken: all its pieces are new and wanted, and are to be written. */
int room_receive(struct room *r, const struct wire_window *w, uint64_t now_ns,
		 struct err *e) MUST_CHECK;

int room_hear(struct room *r, const struct wire_status *s, uint64_t now_ns,
	      struct err *e) MUST_CHECK;

/* ---- sender ---- */

/* Its PREPARE. Ignored: a second one. -errno: it has failed, now or before, and the peer is to be told. */
int room_prepare(struct room *r, const struct wire_prepare *p, uint64_t now_ns,
		 struct err *e) MUST_CHECK;

/* A window is ready to go: gives it its sequence number. -errno: the room is over, or this was not asked for, which
 * makes it fail: it must not go. */
int room_send(struct room *r, struct wire_window *w, uint64_t now_ns, struct err *e) MUST_CHECK;

/* The first token of each choice; n as asked for in PREPARE. Copied. -errno as above, -ENOMEM. */
int room_draw(struct room *r, const struct draw_result *draws, uint32_t n, uint64_t now_ns,
	      struct err *e) MUST_CHECK;

/* The STATUS of success, once: its draws are borrowed from the room. -EAGAIN: data or tokens are missing;
 * -EALREADY: it is out; -ECANCELED: the room is over. */
int room_finish(struct room *r, uint32_t n_cached, uint64_t now_ns,
		struct wire_status *ret) MUST_CHECK;

/* The transport has taken one more of what room_send and room_finish gave out. With the last it is Success. */
void room_sent(struct room *r, uint64_t now_ns);

#endif
