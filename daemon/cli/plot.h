/* Figures as SVG: panels below each other, each with lines over axes that begin at 0. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { PLOT_LINES_MAX = 32 };

/* Points, joined by straight lines in their order. Borrowed. */
struct plot_line {
	char name[48]; /* without markup */
	const double *x, *y;
	size_t n; /* 0: not drawn */
};

struct plot_panel {
	const char *title, *x_title;
	bool powers; /* the x are logarithms to base 10, shown as 1e0, 1e1, ... */
	bool dots;   /* a dot at each point */
	struct plot_line lines[PLOT_LINES_MAX];
	size_t n_lines;
};

/* Checks, before measurements begin, that the file of an option can be written. Leaves an existing file as it is, and
 * leaves no file where there was none. -errno: it cannot be written. */
int plot_check(const char *option, const char *path, struct err *e) MUST_CHECK;

/* Writes the panels to a file. subtitle: any text, written as a line below all panels; NULL: none. -errno: the file
 * cannot be opened or written. */
int plot_write(const char *path, const char *subtitle, const struct plot_panel *panels, size_t n,
	       struct err *e) MUST_CHECK;
