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

/* New; *ret NULL: this worker is neither. All of config is borrowed. */
int handoff_open(const struct handoff_config *config, struct handoff **ret,
		 struct err *e) MUST_CHECK;

/* No more: peers are told, and everything that is under way is forgotten. Before engine_close. NULL is nothing. */
void handoff_close(struct handoff *h);

/* What a request with a prompt of so many tokens is to be: HANDOFF_RECEIVE where there is somebody to prefill it. */
enum scheduler_handoff handoff_of(struct handoff *h, uint32_t n_prompt);

/* One thing that came: 1, with events [*ret_n] for who is behind them, 0: there is nothing. -EIO: the device is lost. */
int handoff_take(struct handoff *h, struct scheduler_event *events, uint32_t *ret_n,
		 struct err *e) MUST_CHECK;

/* After a plan was made: asks for prompts, reads what found no room before. -EIO: the device is lost. */
int handoff_run(struct handoff *h, struct err *e) MUST_CHECK;

/* An event of a request of a prefill worker. */
void handoff_event(struct handoff *h, const struct scheduler_event *ev);

/* Before a request of a decode worker is aborted. */
void handoff_forget(struct handoff *h, uint64_t request);

/* The device is lost, or all is over: nothing that is under way will come to an end, and peers are told. Notes are to be
 * taken as before. */
void handoff_fail(struct handoff *h, const struct err *why);

/* The cache was flushed. */
void handoff_flushed(struct handoff *h);

/* No new prompts. */
void handoff_drain(struct handoff *h);

#endif
