/* The objects that handoff.c, handoff_send.c and handoff_receive.c use; all borrowed. */
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
	struct queue *inbox;   /* the engine thread's; woken when there is work for that thread */
	struct identity *identity;
};
