/*
 * Prefill and decode apart, for the engine's loop: passes requests, data and first tokens between scheduler, device and
 * the transfer thread (daemon/transfer/transfer.h). All calls are the engine thread's; none waits for a network.
 *
 * One prompt has several names on its way: an order here on a decode worker, an attempt with its delivery in
 * daemon/transfer, and a shipment here on a prefill worker.
 *
 *     a decode worker (handoff_receive.h)
 *         scheduler_next_prepare ─> transfer_ask
 *         NOTE_DATA ─> engine_write_pieces
 *         NOTE_CAME ─> scheduler_received
 *         NOTE_LOST ─> scheduler_receive_failed: another worker computes the prompt, or this one
 *     a prefill worker (handoff_send.h)
 *         NOTE_ASKED ─> scheduler_submit
 *         plan.ships, a layer group at a time ─> shipping_window ─> transfer_window
 *         first tokens ─> transfer_draws
 *         NOTE_SENT ─> scheduler_shipped          NOTE_DROPPED ─> scheduler_abort
 */
#pragma once

#include "daemon/steps/handoff_config.h"

/* All functions but handoff_deliver accept NULL, which stands for a worker without peers (unified). */
struct handoff;

/* New; *ret NULL: this worker is unified. */
int handoff_open(const struct handoff_config *config, struct handoff **ret,
		 struct err *e) MUST_CHECK;

/* Tells the peers that this worker ends, and drops all prompts that are under way. Before engine_close. */
void handoff_close(struct handoff *h);

/* The role of a client's request with a prompt of so many tokens: HANDOFF_RECEIVE if a prefill worker may compute the
 * prompt. */
enum scheduler_handoff handoff_of(struct handoff *h, uint32_t n_prompt);

/* Takes one note. 1, with *ret_n events of clients' requests; 0: there is no note. -EIO: the device is lost. */
int handoff_take(struct handoff *h, struct scheduler_event *events, uint32_t *ret_n,
		 struct err *e) MUST_CHECK;

/* After a plan was made: hands prompts over, and reads data from the device that found no free memory before. -EIO:
 * the device is lost. */
int handoff_run(struct handoff *h, struct err *e) MUST_CHECK;

/* On a prefill worker: handles the events of a step. */
void handoff_deliver(struct handoff *h, const struct scheduler_event *events, uint32_t n);

/* On a decode worker: called before a request is aborted. */
void handoff_forget(struct handoff *h, uint64_t request);

/* The device is lost, or the daemon ends: drops all prompts that are under way and tells the peers. Notes must still
 * be taken afterwards. */
void handoff_fail(struct handoff *h, const struct err *why);

/* The cache was flushed. */
void handoff_flushed(struct handoff *h);

/* No new prompts are taken. */
void handoff_drain(struct handoff *h);
