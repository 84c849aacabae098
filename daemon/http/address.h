/* Addresses of clients, and lists of networks: "127.0.0.0/8,::1". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

/* An IPv6 address. IPv4's are mapped to ::ffff:0:0/96; all zeros stand for any other kind, a Unix socket's. */
struct address {
	uint8_t bytes[16];
};

struct address address_of(const struct sockaddr *from);
bool address_equal(const struct address *a, const struct address *b);

/* Whether only this machine reaches the address: 127.0.0.0/8 and ::1. */
bool address_is_loopback(const struct address *a);

/* Reads an address, "10.0.0.1" or "::1". False: the text is another; *ret is unchanged. */
bool address_parse(const char *text, struct address *ret);

/* Reads an address as proxies write it: with white space around it, perhaps with a port ("10.0.0.1:567", "[::1]:567").
 * False: as above. */
bool address_parse_forwarded(const char *text, struct address *ret);

/* Returns a number for the client with this address, of 2^62 and more: a hash of the address, of IPv6 of its first 64
 * bits, because a client may have all addresses that begin with them. */
uint64_t address_number(const struct address *a);

enum { NETWORKS_MAX = 64 };

/* Networks: addresses whose first `bits` bits are those of `address`. */
struct networks {
	struct network {
		struct address address;
		unsigned bits;
	} v[NETWORKS_MAX];
	size_t n;
};

/* Fills *ret with a list of addresses or ADDRESS/BITS, separated by commas; an empty text is an empty list. -EINVAL with
 * a sentence. */
int networks_parse(const char *text, struct networks *ret, struct err *e) MUST_CHECK;

bool networks_have(const struct networks *l, const struct address *a);
