/* Addresses of clients, and lists of networks: "127.0.0.0/8,::1". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

/* An IPv6 address. An IPv4 address is mapped into ::ffff:0:0/96. All zeros stand for an address of another kind, such
 * as that of a Unix socket. */
struct address {
	uint8_t bytes[16];
};

struct address address_of(const struct sockaddr *from);
bool address_equal(const struct address *a, const struct address *b);

/* Returns whether one client may have both addresses: they are equal, or are IPv6 addresses whose first 64 bits are. */
bool address_same_client(const struct address *a, const struct address *b);

/* Returns whether only this machine reaches the address: 127.0.0.0/8 and ::1. */
bool address_is_loopback(const struct address *a);

/* Reads an address, "10.0.0.1" or "::1". False: the text is not an address; *ret is unchanged. */
bool address_parse(const char *text, struct address *ret);

/* Reads an address as proxies write it: perhaps with white space around it, perhaps with a port ("10.0.0.1:567",
 * "[::1]:567"). False: as for address_parse. */
bool address_parse_forwarded(const char *text, struct address *ret);

/* Returns a number for the client with this address: a hash of the address. It is at least 2^62, so that it is not
 * the number of a client's key (exchange.owner). Addresses of one client (address_same_client) have one number. */
uint64_t address_number(const struct address *a);

enum { NETWORKS_MAX = 64 };

/* A list of networks. A network has all addresses whose first `bits` bits are those of `address`; `bits` counts in
 * the IPv6 form, so 127.0.0.0/8 has 104. */
struct networks {
	struct network {
		struct address address;
		unsigned bits;
	} v[NETWORKS_MAX];
	size_t n;
};

/* Reads a list of networks with commas between them. Each is ADDRESS, which stands for itself alone, or ADDRESS/BITS.
 * An empty text is an empty list. -EINVAL with a sentence. */
int networks_parse(const char *text, struct networks *ret, struct err *e) MUST_CHECK;

bool networks_have(const struct networks *l, const struct address *a);
