/* What handoff.c, handoff_send.c and handoff_receive.c work with; all of it is borrowed. */
#pragma once

#include "daemon/server.h"
#include "daemon/steps/identity.h"
#include "daemon/steps/record.h"
#include "scheduler/scheduler.h"

struct handoff_config {
	struct server *server;
	struct engine *engine;
	struct scheduler *scheduler;
	struct record *record; /* NULL: not recording */
	struct queue *inbox;   /* woken when there is something to do */
	struct identity *identity;
};
