/*
 * The transfer thread of a prefill or decode worker: it exchanges messages with peers (protocol/transfer).
 *
 *     engine thread                     transfer thread                    the other worker
 *     transfer_ask       ──────────────> chooses a peer ────── PREPARE ──────────> NOTE_ASKED
 *     NOTE_DATA          <────────────── checks, counts <───── WINDOW ───────────  transfer_parcel
 *     NOTE_CAME          <────────────── all of it here <───── STATUS ───────────  transfer_draws
 *     NOTE_LOST          <────────────── peer dead, refused, too late
 *     transfer_drop      ──────────────>                ────── ABORT ────────────> NOTE_DROPPED
 *                                                                                  NOTE_SENT
 *
 * On the left is a decode worker, on the right a prefill worker; both have such a thread. An *attempt* is one try to
 * have a prompt computed by one peer; its number is chosen by the decode worker's engine thread, and on the other side
 * by the prefill worker's transfer thread. An attempt that transfer_ask began ends with one NOTE_CAME or NOTE_LOST,
 * unless it is dropped. An attempt that a NOTE_ASKED announced ends with one NOTE_SENT or NOTE_DROPPED.
 *
 * The engine thread calls these functions, unless one says otherwise; config.wake tells it that there is a note. The
 * transfer thread never waits for a device, and the engine thread never for a network.
 */
#pragma once

#include "daemon/transfer/types.h"

struct transfer;

/* Starts the thread. *config and layout.layers are copied; all else that config points to is borrowed until
 * transfer_stop. */
int transfer_start(const struct transfer_config *config, struct transfer **ret,
		   struct err *e) MUST_CHECK;

/* Tells the peers that this worker shuts down, ends the thread and frees everything. `done` of every parcel has been
 * called when it returns. NULL is allowed. */
void transfer_stop(struct transfer *t);

/* The worker takes no new prompts: a prefill worker tells its peers and the registry at once. Attempts that are under
 * way go on. config.admit has to refuse new ones. */
void transfer_drain(struct transfer *t);

/* The cache was flushed: peers learn in their next PONG that nothing is cached here. No attempt may be under way. */
void transfer_forget(struct transfer *t);

/* ---- notes ---- */

/* The next note, the caller's to free; NULL: there is none now. */
struct transfer_note *transfer_next(struct transfer *t);

/* ---- decode ---- */

/* Everything is copied. -ENOMEM; -EINVAL: no peer would accept the PREPARE. */
int transfer_ask(struct transfer *t, const struct transfer_ask *ask, struct err *e) MUST_CHECK;

/* The attempt is no longer wanted. Notes of it may still come, until the transfer thread has taken this task; the
 * caller ignores them. */
void transfer_drop(struct transfer *t, uint64_t attempt);

/* ---- prefill ---- */

/* Sends a parcel, which stays borrowed until its `done` is called. Any thread. */
void transfer_parcel(struct transfer *t, struct transfer_parcel *p);

/* Sends the first tokens when all data of the attempt have been sent. n_cached: prompt tokens that this worker had
 * cached. -ENOMEM. */
int transfer_draws(struct transfer *t, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached) MUST_CHECK;

/* Tells the decode worker that the prompt will not be computed. NOTE_DROPPED follows. */
void transfer_fail(struct transfer *t, uint64_t attempt, const struct err *why);
