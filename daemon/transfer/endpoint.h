/*
 * Addresses of workers and of their registry (directory.h): "tcp://HOST:PORT". HOST is a name, an IPv4 address, an IPv6
 * address in brackets, or * (all addresses of a machine).
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum { TRANSFER_ENDPOINT_MAX = 256 }; /* bytes, with the final 0 */

/* Checks an address to listen at (`listen`) or to connect to. -EINVAL with a sentence: it cannot be used. An address to
 * listen at may have port 0 (the system chooses one) and a host that means all addresses of this machine (*, 0.0.0.0,
 * ::), but no name as its host. An address to connect to may have a name as its host, but neither port 0 nor a host
 * that means all addresses. */
int transfer_endpoint_check(const char *text, bool listen, struct err *e) MUST_CHECK;

/* Checks the address that an option has: as transfer_endpoint_check does, and if there are no keys, that no other
 * machine can connect to it (transfer_endpoint_is_local). keys: the file of --transfer-key; NULL: none. */
int transfer_endpoint_option(const char *option, const char *text, bool listen, const char *keys,
			     struct err *e) MUST_CHECK;

/* Returns whether the host is a name, which has to be looked up. */
bool transfer_endpoint_is_name(const char *text);

/* Returns whether only this machine can connect to the address: 127.0.0.0/8, ::1, localhost. */
bool transfer_endpoint_is_local(const char *text);

/* Returns whether the host stands for all addresses of this machine (*, 0.0.0.0, ::). No peer can connect to such an
 * address. */
bool transfer_endpoint_is_any(const char *text);

/* Returns whether the port is 0. */
bool transfer_endpoint_takes_any_port(const char *text);
