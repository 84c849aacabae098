/* Prefill and decode apart: one worker computes a prompt and sends its pages and state, another worker receives them
 * and decodes. This file has what the schedulers of both workers do for that. It handles ids and counts only;
 * daemon/steps/handoff.h and the transfer thread move the bytes.
 *
 * Receiving. A request with enough tokens to compute (handoff_wanted) gets memory for its whole prompt at once, in a
 * transaction like that of any other request. Then it waits (Receiving) until pages, state and first tokens have
 * arrived. No plan contains any of its rows before that, so late or missing data can neither delay nor damage a step.
 * The request uses only prefilled pages of the cache. So the whole prompt has the bits of a prefill without a cache,
 * and is published as prefilled. A Receiving request neither leads nor follows another one, and is not retracted.
 *
 * Sending. The prompt is resumed only from prefilled pages and states, too. Plans list with the prompt's rows the data
 * for the other worker (struct plan_ship). Each page that the other worker lacks is listed once, as soon as the page is
 * whole, also when it was found in the cache. With the prompt's last row the partial page and the state behind the
 * prompt are listed, too. The bytes may be read long after the step. Therefore the request keeps its trunk when its
 * tokens are drawn (Shipping). The trunk holds
 *     - a lock on the path of the tree with its pages
 *     - its own pages
 *     - a reference to each page to be sent that it has handed to the tree, because the tree may use an equal page
 *       instead (request.ship_pages)
 *     - the slot with the state behind the prompt, or a pin on this slot if the state became a checkpoint.
 *
 * Source: the disaggregation of TokenSpeed and SGLang. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Checks a request whose prompt is to be sent to another worker (HANDOFF_SEND). -EINVAL: it cannot be sent. Returns 0
 * for other requests. */
int handoff_check(const struct scheduler_config *c, const struct scheduler_request *r,
		  struct err *e) MUST_CHECK;

/* handoff_possible: whether the prompt may be received from another worker. handoff_wanted: whether that is also worth
 * the transfer, because m leaves at least config.handoff_min_tokens tokens to compute. */
bool handoff_possible(const struct request *r);
bool handoff_wanted(const struct scheduler *s, const struct request *r,
		    const struct prefix_match *m);

/* Adds a ship to p's last row, which belongs to r, if the row makes pages or the state of r ready to be sent. */
void handoff_ship(const struct scheduler *s, struct request *r, struct plan *p,
		  struct plan_ship *ships);

/* Aborts every request that is Shipping, after a device error: nothing of it will be read any more. */
void handoff_drop_ships(struct scheduler *s);
