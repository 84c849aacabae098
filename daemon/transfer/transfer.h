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
 * On the left is a decode worker, on the right a prefill worker; both have a transfer thread. An *attempt* is one try
 * to have a prompt computed by one peer. Each side gives it a number of its own: the decode worker's engine thread,
 * and the prefill worker's transfer thread. An attempt that transfer_ask began ends with one NOTE_CAME or NOTE_LOST,
 * unless it is dropped. An attempt that a NOTE_ASKED announced ends with one NOTE_SENT or NOTE_DROPPED.
 *
 * The main thread calls transfer_listen and transfer_listener_close. The engine thread calls the other functions,
 * unless the comment of a function says otherwise. config.wake wakes the engine thread when there is a note. The
 * transfer thread never waits for a device. Of these functions only transfer_stop waits for a network.
 */
#pragma once

#include "daemon/transfer/types.h"

struct transfer;

/* Makes the port of a prefill worker and begins to listen for decode workers. Called before the model is loaded, so
 * that an address that is in use is reported at once. Decode workers can connect from now on; they get no answer before
 * transfer_start. endpoint: the value of --transfer-listen; the sentence of an error names that option. keys: borrowed
 * until the port is closed; NULL: none. After an error, too, transfer_listener_close is to be called. */
int transfer_listen(const char *endpoint, const struct transfer_keys *keys, uint64_t heartbeat_ns,
		    struct transfer_listener *ret, struct err *e) MUST_CHECK;

/* Closes the port, unless transfer_start has taken it. Accepts a struct of zeros. */
void transfer_listener_close(struct transfer_listener *l);

/* Starts the thread. *config and layout.layers are copied; all else that config points to is borrowed until
 * transfer_stop. */
int transfer_start(const struct transfer_config *config, struct transfer **ret,
		   struct err *e) MUST_CHECK;

/* Tells the peers that this worker shuts down, ends the thread and frees everything. When transfer_stop returns, `done`
 * of every parcel has been called. NULL is allowed. */
void transfer_stop(struct transfer *t);

/* Makes a prefill worker tell its peers and the registry at once that it takes no new prompts; on a decode worker it
 * does nothing. Attempts that are under way go on. config.admit has to refuse new ones. */
void transfer_drain(struct transfer *t);

/* Makes a prefill worker tell its peers, in the next PONG to each, that its cache was flushed; on a decode worker it
 * does nothing. No attempt may be under way. */
void transfer_forget(struct transfer *t);

/* ---- notes ---- */

/* Takes the next note, which the caller frees (transfer_note_free); NULL: there is none now. */
struct transfer_note *transfer_next(struct transfer *t);

/* ---- decode ---- */

/* Begins an attempt: asks a peer to compute a prompt. Everything is copied. -ENOMEM; -EINVAL: no peer would accept the
 * PREPARE; -ENOBUFS: it is longer than a frame may be. */
int transfer_ask(struct transfer *t, const struct transfer_ask *ask, struct err *e) MUST_CHECK;

/* Drops an attempt that is no longer wanted. The transfer thread does that a little later, so notes of the attempt may
 * still come; the caller ignores them. */
void transfer_drop(struct transfer *t, uint64_t attempt);

/* ---- prefill ---- */

/* Sends a parcel, which stays borrowed until its `done` is called. Any thread. */
void transfer_parcel(struct transfer *t, struct transfer_parcel *p);

/* Sends a copy of the first tokens, after all data of the attempt. n_cached: prompt tokens that this worker had cached.
 * Returns 0 or -ENOMEM. */
int transfer_draws(struct transfer *t, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached) MUST_CHECK;

/* Tells the decode worker that the prompt will not be computed. NOTE_DROPPED follows, unless the attempt has ended. */
void transfer_fail(struct transfer *t, uint64_t attempt, const struct err *why);
