/*
 * Prefill and decode apart, as the engine's loop sees it: brings requests, data and first tokens between scheduler, device
 * and the transfer thread (transfer/transfer.h). All calls are the engine thread's, and none waits for a network.
 *
 *     a decode worker    scheduler_next_prepare ─> transfer_ask
 *                        NOTE_DATA ─> engine_write_pieces      NOTE_CAME ─> scheduler_received
 *                        NOTE_LOST ─> scheduler_receive_failed: another worker, or here
 *     a prefill worker   NOTE_ASKED ─> scheduler_submit        plan.ships, layer by layer ─> shipping_window ─> transfer_window
 *                        first tokens ─> transfer_draws        NOTE_SENT ─> scheduler_shipped    NOTE_DROPPED ─> scheduler_abort
 */
#ifndef DAEMON_STEPS_HANDOFF_H
#define DAEMON_STEPS_HANDOFF_H

#include "daemon/steps/record.h"
#include "daemon/steps/identity.h"
#include "daemon/server.h"
#include "scheduler/scheduler.h"

struct handoff;

struct handoff_config {
	struct server *server;
	struct engine *engine;
	struct scheduler *scheduler;
	struct record *record; /* NULL: not recording */
	struct queue *inbox;   /* woken when there is something to do */
	struct identity *identity;
};

/* New; *ret NULL: this worker's role is unified. All of config is borrowed. */
int handoff_open(const struct handoff_config *config, struct handoff **ret,
		 struct err *e) MUST_CHECK;

/* Ends it: peers are told, and everything that is under way is dropped. Before engine_close. NULL does nothing. */
void handoff_close(struct handoff *h);

/* How a request with a prompt of n_prompt tokens runs: HANDOFF_RECEIVE if a prefill worker can compute it. */
enum scheduler_handoff handoff_of(struct handoff *h, uint32_t n_prompt);

/* Takes one note of the transfer thread: 1, with events [*ret_n] as scheduler_commit gives them; 0: there is none. -EIO: the
 * device is lost. */
int handoff_take(struct handoff *h, struct scheduler_event *events, uint32_t *ret_n,
		 struct err *e) MUST_CHECK;

/* After a plan was made: asks peers for prompts, and reads the data that found no block before. -EIO: the device is lost. */
int handoff_run(struct handoff *h, struct err *e) MUST_CHECK;

/* An event of a request of a prefill worker. */
void handoff_event(struct handoff *h, const struct scheduler_event *ev);

/* Before a request of a decode worker is aborted. */
void handoff_forget(struct handoff *h, uint64_t request);

/* The device is lost, or the daemon ends: nothing that is under way will complete, and peers are told. Keep taking notes. */
void handoff_fail(struct handoff *h, const struct err *why);

/* The cache was flushed. */
void handoff_flushed(struct handoff *h);

/* No new prompts. */
void handoff_drain(struct handoff *h);

#endif
