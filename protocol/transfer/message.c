#include "protocol/transfer/message.h"

const char *wire_type_name(enum wire_type type)
{
	static const char *const names[] = {
		[WIRE_HELLO] = "HELLO",	  [WIRE_REFUSE] = "REFUSE", [WIRE_PREPARE] = "PREPARE",
		[WIRE_WINDOW] = "WINDOW", [WIRE_STATUS] = "STATUS", [WIRE_ABORT] = "ABORT",
		[WIRE_PING] = "PING",	  [WIRE_PONG] = "PONG",	    [WIRE_ANNOUNCE] = "ANNOUNCE",
		[WIRE_LIST] = "LIST",	  [WIRE_PEERS] = "PEERS",
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "?";
}

const char *delivery_status_name(enum delivery_status status)
{
	static const char *const names[] = {"Bootstrapping", "Bootstrapped", "WaitingForInput",
					    "Transferring",  "Success",	     "Failed"};

	return status < ARRAY_SIZE(names) ? names[status] : "?";
}
