/*
 * Figures as SVG: panels below each other, each with lines over an axis from 0. Plain text that a browser shows;
 * nothing is fetched.
 */
#ifndef DAEMON_CLI_PLOT_H
#define DAEMON_CLI_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { PLOT_LINES_MAX = 32 };

/* Points in the order of x, joined by straight lines. Borrowed. */
struct plot_line {
	char name[48]; /* plain letters: written as it is */
	const double *x, *y;
	size_t n; /* 0: not drawn */
};

struct plot_panel {
	const char *title, *x_title;
	bool powers; /* x is a logarithm to base 10, and its ticks are 1e0, 1e1, ... */
	bool dots;   /* a dot a point */
	struct plot_line lines[PLOT_LINES_MAX];
	size_t n_lines;
};

/* Before all that is to be drawn is measured: can the file be opened? It is there afterwards, as it was or empty. -errno. */
int plot_check(const char *path, struct err *e) MUST_CHECK;

/* subtitle: a line below all panels, any text; NULL: none. -errno of opening or writing the file. */
int plot_write(const char *path, const char *subtitle, const struct plot_panel *panels, size_t n,
	       struct err *e) MUST_CHECK;

#endif
