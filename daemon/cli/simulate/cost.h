/* The cost model of `tigon simulate`: how long a device takes for a step. A step costs
 *
 *     step(its tokens) + prefill_token_s x prompt tokens + prefill_kv_s x pairs of a prompt token and an earlier one
 *         + decode_row_s x decoding sequences + kv_token_s x KV tokens that these read
 *
 * Its tokens are the prompt tokens and one token of each decoding sequence. step() is constant, or a line through
 * measured points. A mixture of experts needs such a line: few tokens choose few experts, whose weights alone are
 * read, and a thousand tokens choose all of them. So the first tokens of a step cost far more than the last ones. */
#pragma once

#include "base/options.h"
#include "scheduler/plan.h"

enum { COST_POINTS_MAX = 32 };

/* A line through points. Below the first point it is constant; behind the last one it goes on as between the last
 * two. */
struct cost_line {
	struct {
		double tokens, s;
	} v[COST_POINTS_MAX]; /* [n] by rising tokens; s, the seconds, never falls */
	uint32_t n;	      /* at least 1 */
};

/* Seconds each. */
struct cost_model {
	struct cost_line step;
	double prefill_token_s, prefill_kv_s, decode_row_s, kv_token_s;
	double max_prefill_s; /* no cost: the limit of each worker (struct prefill_pace); 0: none */
};

/* Reads an option's text (option_def.take) into a struct cost_line: microseconds, or points "TOKENS:MICROSECONDS,...".
 * -EINVAL, with a sentence. */
int cost_line_take(const struct option_def *d, const char *text, void *member, struct err *e);

/* Returns the seconds that a device takes for a plan. */
double cost_of(const struct cost_model *c, const struct plan *p);
