/*
 * Prefill and decode apart: one worker computes a prompt (sends it), another one decodes behind it (receives it). Here is what either
 * scheduler does: ids and counts only. The engine and the daemon move the bytes from device to device.
 *
 * Receiving. A request with enough tokens to compute gets room for its whole prompt at once, in the same transaction as any other, and
 * waits (Receiving) until all of it has arrived: pages, state and first tokens. Before that no plan contains anything of it, so late
 * or missing data can neither delay nor damage a step. Of the cache it uses only prefilled pages: then the whole prompt has the bits
 * of one cold prefill, and is published as such. A Receiving request neither leads nor follows another one, and is not retracted.
 *
 * Sending. The prompt is resumed only from what was prefilled, too. Its rows say what the other worker gets (struct plan_ship): each
 * page once, as soon as it is whole, also when it was found in the cache; and with the last row the state behind the prompt. The bytes
 * may be read long after the step. Therefore the request, when its tokens are drawn, keeps its trunk (Shipping), which holds
 *     - a lock on the path of the tree with its pages
 *     - a reference to each page that it shipped and for which the tree had another page already (request.ship_pages)
 *     - the slot with the state, or a pin on it, when it became a checkpoint.
 *
 * Source: the disaggregation of TokenSpeed and SGLang.
 */
#pragma once

#include "scheduler/scheduler_internal.h"

/* -EINVAL: a request to be sent whose prompt cannot be sent. */
int handoff_check(const struct scheduler_config *c, const struct scheduler_request *r,
		  struct err *e) MUST_CHECK;

/* Whether the prompt may be received from another worker; whether it should, when the cache has m. */
bool handoff_possible(const struct request *r);
bool handoff_wanted(const struct scheduler *s, const struct request *r,
		    const struct prefix_match *m);

/* Adds a ship for the last row of p, which is one of r's, when it makes something of r ready to be sent. */
void handoff_ship(const struct scheduler *s, struct request *r, struct plan *p,
		  struct plan_ship *ships);

/* After a device error: no shipment will be read any more. */
void handoff_drop_ships(struct scheduler *s);
