/*
 * Addresses of workers: "tcp://HOST:PORT". HOST is a name, an IPv4 address or an IPv6 address in brackets.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum { TRANSFER_ENDPOINT_MAX = 256 }; /* bytes, with the final 0 */

/* -EINVAL with a sentence: the text is not an address to listen at (`listen`), or to connect to. To listen at may be port
 * 0 (the system chooses one) and host * (all addresses of this machine), but no name. */
int transfer_endpoint_check(const char *text, bool listen, struct err *e) MUST_CHECK;

/* Whether the host is a name, which has to be looked up. */
bool transfer_endpoint_is_name(const char *text);

/* Whether only this machine can connect to it: 127.0.0.0/8, ::1, localhost. */
bool transfer_endpoint_is_local(const char *text);

/* Whether it stands for all addresses of this machine (*, 0.0.0.0, ::), to which no peer can connect. */
bool transfer_endpoint_is_any(const char *text);

/* Whether its port is 0. */
bool transfer_endpoint_takes_any_port(const char *text);
