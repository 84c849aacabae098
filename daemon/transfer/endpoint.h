/*
 * Addresses of workers: "tcp://HOST:PORT", HOST a name, an IPv4 address or an IPv6 one in brackets.
 */
#ifndef DAEMON_TRANSFER_ENDPOINT_H
#define DAEMON_TRANSFER_ENDPOINT_H

#include <stdbool.h>

#include "base/err.h"

enum { TRANSFER_ENDPOINT_MAX = 256 }; /* bytes, with the 0 */

/* Whether a text is such an address; -EINVAL says what it lacks. `listen`: it is to be listened at, so port 0 (any that is free)
 * and * (all addresses) will do, and names will not; else it is to be called. */
int transfer_endpoint_check(const char *text, bool listen, struct err *e) MUST_CHECK;

/* Whether its host is a name, which somebody has to be asked for. */
bool transfer_endpoint_is_name(const char *text);

/* Whether only this machine is reached there: 127.0.0.0/8, ::1, localhost. */
bool transfer_endpoint_is_local(const char *text);

/* Whether it is where one listens at all addresses of this machine, which nobody can call: *, 0.0.0.0, ::. */
bool transfer_endpoint_is_any(const char *text);

/* Whether its port is 0. */
bool transfer_endpoint_takes_any_port(const char *text);

#endif
