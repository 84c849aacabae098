/*
 * Prefill and decode apart, for the engine's loop: passes requests, data and first tokens between scheduler, device and
 * the transfer thread (daemon/transfer/transfer.h), which answers with notes. Only the engine thread calls these
 * functions, and none but handoff_close waits for a network.
 *
 * One prompt has several names on its way: an order in handoff_receive.c (decode worker), an attempt with its delivery
 * in daemon/transfer, and a shipment in handoff_send.c (prefill worker).
 *
 * Its data have these names on their way from the prefill worker's device to the decode worker's:
 *     part         an array that a layer keeps of a sequence, in pages or in states (engine/layers/part.h)
 *     piece        one part of one page or of one state: the unit of copies, and of counting received data
 *     ship         the pages, and perhaps the state, that one row of a step makes ready, in all layers (plan_ship)
 *     layer group  layers whose pieces are sent together (--transfer-window), as soon as the last of them is computed
 *     parcel       pieces of one ship in one layer group, as many as fit into a block of pinned memory (shipping.h)
 *     WINDOW       the message that sends a parcel: a list of runs, and a raw frame with the bytes of their pieces
 *     run          the pieces of one part in consecutive pages, or one piece of a state
 *                  (protocol/transfer/message.h)
 *     NOTE_DATA    a WINDOW that came, for the engine thread of the decode worker
 *
 *     a decode worker (handoff_receive.h)
 *         scheduler_next_prepare ─> transfer_ask
 *         NOTE_DATA ─> engine_write_pieces
 *         NOTE_CAME ─> scheduler_received
 *         NOTE_LOST ─> scheduler_receive_failed: another worker computes the prompt, or this one
 *     a prefill worker (handoff_send.h)
 *         NOTE_ASKED ─> scheduler_submit
 *         plan.ships, a layer group at a time ─> shipping_group ─> transfer_parcel
 *         first tokens ─> transfer_draws
 *         NOTE_SENT ─> scheduler_shipped          NOTE_DROPPED ─> scheduler_abort
 *
 * When an attempt ends early, notes of it may exist already. They are ignored, because no order or shipment has the
 * number of this attempt any more. So a late NOTE_DATA never writes to pages that belong to another request by then. A
 * read that is still queued for an aborted shipment does no harm: its data are dropped with the delivery, and the
 * device runs the read before any later plan writes to the pages that are read.
 */
#pragma once

#include "daemon/steps/handoff_config.h"

/* NULL stands for a unified worker (--role unified), which computes all its prompts itself and has no peers. All
 * functions with an argument h, except handoff_deliver, accept NULL and do nothing. */
struct handoff;

/* Makes a struct handoff, new, and starts the transfer thread. *ret NULL: this worker is unified. */
int handoff_open(const struct handoff_config *config, struct handoff **ret,
		 struct err *e) MUST_CHECK;

/* Tells the peers that this worker ends, drops all prompts that are under way, ends the transfer thread, and frees h.
 * To be called before engine_close. */
void handoff_close(struct handoff *h);

/* Returns the role of this worker in a client's request with a prompt of n_prompt tokens: HANDOFF_RECEIVE if a prefill
 * worker may compute the prompt, else HANDOFF_NONE. If no prefill worker takes prompts now, a decode worker counts
 * a prompt of at least --disaggregation-min-tokens in metrics.prompts_missed. */
enum scheduler_handoff handoff_of(struct handoff *h, uint32_t n_prompt);

/* Handles one note of the transfer thread. 1: a note was handled, and *ret_n (perhaps 0) events of clients' requests
 * were written to `events` (room as for scheduler_received). 0: there is no note. -EIO: the device is lost. */
int handoff_take(struct handoff *h, struct scheduler_event *events, uint32_t *ret_n,
		 struct err *e) MUST_CHECK;

/* Called after scheduler_plan. On a decode worker: hands prompts over (scheduler_next_prepare). On a prefill worker:
 * queues reads for which no block was free before (shipping_run). -EIO: the device is lost. */
int handoff_run(struct handoff *h, struct err *e) MUST_CHECK;

/* On a prefill worker: takes the first tokens from the events of a step. When all choices of a prompt have their first
 * token, sends these tokens. */
void handoff_deliver(struct handoff *h, const struct scheduler_event *events, uint32_t n);

/* To be called when a client's request ends. A decode worker then no longer wants the prompt from a peer. Unknown
 * requests are ignored. */
void handoff_forget(struct handoff *h, uint64_t request);

/* To be called when the device is lost or the daemon ends: drops all prompts that are under way and tells the peers.
 * The caller goes on to call handoff_take, because notes still come. */
void handoff_fail(struct handoff *h, const struct err *why);

/* To be called when the cache was flushed. A prefill worker tells the peers that it has nothing cached; a decode worker
 * does nothing. No prompt may be under way. */
void handoff_flushed(struct handoff *h);

/* On a prefill worker: tells the peers and the registry (daemon/transfer/directory.h) that this worker takes no new
 * prompts. Prompts that still come are refused (handoff_send_admit). */
void handoff_drain(struct handoff *h);
