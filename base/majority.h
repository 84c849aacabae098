/* A majority vote: finds the candidate that has more than half of all votes, in one pass and with two numbers. A
 * candidate may get several votes at once. Source: Boyer and Moore, MJRTY: A Fast Majority Vote Algorithm, 1991. */
#pragma once

#include <stdint.h>

/* Begins as zeros. After all votes `leader` is the candidate with more than half of them, if there is one; else it is
 * any candidate, or 0. `lead`: so many votes of the leader were not set against votes of others. */
struct majority {
	uint64_t leader, lead;
};

static inline void majority_vote(struct majority *m, uint64_t candidate, uint64_t votes)
{
	if (candidate == m->leader) {
		m->lead += votes;
	} else if (votes <= m->lead) {
		m->lead -= votes;
	} else {
		m->leader = candidate;
		m->lead = votes - m->lead;
	}
}
