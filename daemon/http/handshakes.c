#include "daemon/http/handshakes.h"

#include "base/macros.h"

#define MS UINT64_C(1000000)

static const int64_t most_ns = 20 * MS; /* the most credit: so much may be taken at once */
/* A turn counts as no longer than this: more is no handshake, but the process, or the machine, stood still. */
static const uint64_t longest_ns = 200 * MS;
static const uint64_t first_ns = 1 * MS; /* typical_ns, before any handshake */

enum {
	PART = 2,  /* handshakes may take one part of so many */
	FADE = 64, /* a typical cost falls by one part of so many with each turn that costs less */
};

void handshakes_init(struct handshakes *h, uint64_t now)
{
	*h = (struct handshakes){.credit_ns = most_ns, .counted_ns = now, .typical_ns = first_ns};
}

uint64_t handshakes_wait(struct handshakes *h, uint64_t now)
{
	const uint64_t passed = now - h->counted_ns, missing = (uint64_t)(most_ns - h->credit_ns);

	h->counted_ns = now;
	h->credit_ns += (int64_t)MIN(passed / PART, missing);
	return h->credit_ns > 0 ? 0 : (uint64_t)(1 - h->credit_ns) * PART;
}

uint64_t handshakes_begin(struct handshakes *h, size_t share)
{
	h->credit_ns -= (int64_t)h->typical_ns;
	h->had_ns[share] += h->typical_ns;
	return h->typical_ns;
}

void handshakes_end(struct handshakes *h, size_t share, uint64_t begun, uint64_t took)
{
	took = MIN(took, longest_ns);
	h->credit_ns = MIN(h->credit_ns + (int64_t)begun - (int64_t)took, most_ns);
	h->had_ns[share] += took;
	h->had_ns[share] -= MIN(h->had_ns[share], begun);
	/* With all the credit one turn is begun at least, and with typical_ns at its most no more. */
	h->typical_ns = MIN(MAX(took, h->typical_ns - h->typical_ns / FADE), (uint64_t)most_ns);
}

void handshakes_forget(struct handshakes *h)
{
	for (size_t i = 0; i < OWNER_SHARES; i++)
		h->had_ns[i] /= 2;
}
