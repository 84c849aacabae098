#include "daemon/cli/simulate/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 400, LEFT = 60, RIGHT = 20, TOP = 30, BOTTOM = 50, BUCKETS = 48 };

/* Steps whose tree had about the same size (equal steps of the logarithm). */
struct bucket {
	struct samples cost;
};

static double x_of(double log_nodes, double most)
{
	return LEFT + (WIDTH - LEFT - RIGHT) * log_nodes / most;
}

static double y_of(double us, double most)
{
	return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * MIN(us, most) / most;
}

static void draw_line(FILE *f, struct bucket *b, double p, const char *colour, const char *name,
		      int row, double most_log, double most_us)
{
	fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
	for (int i = 0; i < BUCKETS; i++)
		if (b[i].cost.n >= 20)
			fprintf(f, "%.1f,%.1f ", x_of((i + 0.5) * most_log / BUCKETS, most_log),
				y_of(samples_percentile(&b[i].cost, p), most_us));
	fprintf(f, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", WIDTH - 160,
		TOP + 18 * row, colour, name);
}

static void draw_axes(FILE *f, double most_log, double most_us)
{
	fprintf(f, "<g stroke=\"#999\" fill=\"none\"><path d=\"M%d %dV%dH%d\"/></g>\n", LEFT, TOP,
		HEIGHT - BOTTOM, WIDTH - RIGHT);
	for (int k = 0; k <= (int)most_log; k++)
		fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">1e%d</text>\n",
			x_of(k, most_log), HEIGHT - BOTTOM + 18, k);
	for (int k = 0; k <= 4; k++)
		fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n", LEFT - 6,
			y_of(most_us * k / 4, most_us) + 4, most_us * k / 4);
	fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">nodes of the tree</text>\n",
		WIDTH / 2, HEIGHT - 10);
	fprintf(f, "<text x=\"%d\" y=\"18\">planning a step, us of thread time</text>\n", LEFT);
}

int plot_plan_cost(const char *path, const struct sim_result *r, struct err *e)
{
	struct bucket b[BUCKETS] = {0};
	double most_log = MAX(log10((double)r->peak_nodes + 1), 1.0), most_us = 1;
	FILE *f = fopen(path, "we");
	int bad = 0;

	if (!f)
		return err_set(e, errno, "%s: %s", path, strerror(errno));
	for (uint64_t i = 0; i < r->steps && !bad; i++) {
		int k = (int)(log10((double)r->plans[i].nodes + 1) / most_log * BUCKETS);

		bad = samples_add(&b[MIN(k, BUCKETS - 1)].cost, r->plans[i].plan_us);
	}
	for (int i = 0; i < BUCKETS; i++)
		if (b[i].cost.n >= 20)
			most_us = MAX(most_us, samples_percentile(&b[i].cost, 0.99) * 1.2);
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"font-family=\"sans-serif\" "
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		WIDTH, HEIGHT);
	draw_axes(f, most_log, most_us);
	draw_line(f, b, 0.99, "#c33", "99 %", 1, most_log, most_us);
	draw_line(f, b, 0.5, "#36c", "median", 2, most_log, most_us);
	fprintf(f, "</svg>\n");
	for (int i = 0; i < BUCKETS; i++)
		free(b[i].cost.v);
	bad |= ferror(f);
	bad |= fclose(f);
	return bad ? err_set(e, EIO, "%s: could not be written", path) : 0;
}
