#include "daemon/cli/simulate/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/cli/plot.h"

enum { BUCKETS = 48, FEWEST = 20 };

/* Fills a line with a point for each bucket that has at least FEWEST samples: the percentile p of these samples
 * (samples_percentile). */
static void fill_line(struct plot_line *l, struct samples *cost, double p, double most_log,
		      double *x, double *y)
{
	l->x = x;
	l->y = y;
	for (int i = 0; i < BUCKETS; i++)
		if (cost[i].n >= FEWEST) {
			x[l->n] = (i + 0.5) * most_log / BUCKETS;
			y[l->n++] = samples_percentile(&cost[i], p);
		}
}

int plot_plan_cost(const char *path, const struct sim_result *r, struct err *e)
{
	/* A bucket has the planning times of steps that found a tree of about the same size. Buckets are equally wide
	 * in the logarithm of the number of nodes. */
	struct samples cost[BUCKETS] = {0};
	double most_log = MAX(log10((double)r->peak_nodes + 1), 1.0);
	double x[2][BUCKETS], y[2][BUCKETS];
	struct plot_panel p = {
		.title = "planning a step, us of thread time",
		.x_title = "nodes of the tree",
		.powers = true,
		.lines = {{.name = "99 %"}, {.name = "median"}},
		.n_lines = 2,
	};
	int bad = 0;

	for (uint64_t i = 0; i < r->steps && !bad; i++) {
		int k = (int)(log10((double)r->plans[i].nodes + 1) / most_log * BUCKETS);

		bad = samples_add(&cost[MIN(k, BUCKETS - 1)], r->plans[i].plan_us);
	}
	fill_line(&p.lines[0], cost, 0.99, most_log, x[0], y[0]);
	fill_line(&p.lines[1], cost, 0.5, most_log, x[1], y[1]);
	for (int i = 0; i < BUCKETS; i++)
		free(cost[i].v);
	return bad ? err_no_memory(e) : plot_write(path, NULL, &p, 1, e);
}
