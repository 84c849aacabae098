#include "daemon/cli/simulate/cost.h"

#include <errno.h>
#include <stdlib.h>

static const double COST_MOST = 1e9; /* of tokens, and of microseconds */

/* Reads a number from 0 to COST_MOST, and moves *at behind it. */
static bool read_number(const char **at, double *ret)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*ret = strtod(*at, &end);
	*at = end;
	return *ret <= COST_MOST;
}

/* Reads "TOKENS:MICROSECONDS" as the next point, which must rise, and moves *at behind it. */
static bool read_point(const char **at, struct cost_line *l)
{
	double tokens, us;

	if (l->n == COST_POINTS_MAX || !read_number(at, &tokens) || **at != ':')
		return false;
	++*at;
	if (!read_number(at, &us) ||
	    (l->n > 0 && (tokens <= l->v[l->n - 1].tokens || us * 1e-6 < l->v[l->n - 1].s)))
		return false;
	l->v[l->n].tokens = tokens;
	l->v[l->n++].s = us * 1e-6;
	return true;
}

static bool read_line(const char *at, struct cost_line *l)
{
	const char *p = at;
	double us;

	if (read_number(&p, &us) && !*p) {
		l->v[l->n++].s = us * 1e-6;
		return true;
	}
	while (read_point(&at, l)) {
		if (!*at)
			return true;
		if (*at++ != ',')
			return false;
	}
	return false;
}

int cost_line_take(const struct option_def *d, const char *text, void *member, struct err *e)
{
	struct cost_line l = {0};

	if (!read_line(text, &l))
		return err_set(e, EINVAL,
			       "--%s: \"%s\" is neither a number of microseconds nor 1 to %d "
			       "points TOKENS:MICROSECONDS, with commas, that rise",
			       d->name, text, COST_POINTS_MAX);
	*(struct cost_line *)member = l;
	return 0;
}

static double line_at(const struct cost_line *l, double tokens)
{
	uint32_t i = 1;
	double slope;

	if (l->n == 1 || tokens <= l->v[0].tokens)
		return l->v[0].s;
	while (i < l->n - 1 && tokens > l->v[i].tokens)
		i++;
	slope = (l->v[i].s - l->v[i - 1].s) / (l->v[i].tokens - l->v[i - 1].tokens);
	return l->v[i].s + (tokens - l->v[i].tokens) * slope;
}

double cost_of(const struct cost_model *c, const struct plan *p)
{
	uint32_t n_decode = p->n_rows - p->n_prefill_rows;
	double s = line_at(&c->step, p->n_prefill_tokens + n_decode) +
		   c->prefill_token_s * p->n_prefill_tokens + c->decode_row_s * n_decode;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *row = &p->rows[i];

		s += i < p->n_prefill_rows ? c->prefill_kv_s * row->n_tokens * row->start
					   : c->kv_token_s * row->start;
	}
	return s;
}
