#include "daemon/cli/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"

enum {
	WIDTH = 720,
	HEIGHT = 400,
	LEFT = 70,
	RIGHT = 20,
	TOP = 30,
	BOTTOM = 50,
	TICKS = 5,
	NAME = 16, /* height of a line's name */
	SUBTITLE = 24
};

static const char *const colours[] = {"#c33", "#36c", "#393", "#b80",
				      "#849", "#088", "#666", "#a54"};

/* A panel's place in the figure, and the greatest values of its axes. */
struct frame {
	FILE *f;
	double top; /* pixels */
	double x_end, y_end;
};

static double x_of(const struct frame *a, double x)
{
	return LEFT + (WIDTH - LEFT - RIGHT) * x / a->x_end;
}

static double y_of(const struct frame *a, double y)
{
	return a->top + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / a->y_end;
}

/* Returns the least number that is not below x and is 1, 2 or 5 times a power of ten. */
static double round_up(double x)
{
	double power = pow(10, floor(log10(x)));

	for (int i = 0; i < 3; i++)
		if (x <= power * ((const double[]){1, 2, 5})[i] * (1 + 1e-9))
			return power * ((const double[]){1, 2, 5})[i];
	return power * 10;
}

/* Returns the greatest value of an axis: a whole number of ticks, and not below `most`. */
static double axis_end(double most)
{
	double tick;

	if (!(most > 0))
		return 1;
	tick = round_up(most / TICKS);
	return tick * ceil(most / tick - 1e-9);
}

static void draw_axes(const struct frame *a, const struct plot_panel *p)
{
	double bottom = a->top + HEIGHT - BOTTOM;
	double x_tick = p->powers ? 1 : round_up(a->x_end / TICKS);
	double y_tick = round_up(a->y_end / TICKS);

	fprintf(a->f, "<g stroke=\"#999\" fill=\"none\"><path d=\"M%d %.0fV%.0fH%d\"/></g>\n", LEFT,
		a->top + TOP, bottom, WIDTH - RIGHT);
	for (double x = 0; x <= a->x_end * (1 + 1e-9); x += x_tick)
		fprintf(a->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s%g</text>\n",
			x_of(a, x), bottom + 18, p->powers ? "1e" : "", x);
	for (double y = 0; y <= a->y_end * (1 + 1e-9); y += y_tick)
		fprintf(a->f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 6,
			y_of(a, y) + 4, y);
	fprintf(a->f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", WIDTH / 2,
		bottom + 40, p->x_title);
	fprintf(a->f, "<text x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT, a->top + 18, p->title);
}

static void draw_line(const struct frame *a, const struct plot_panel *p, size_t i)
{
	const struct plot_line *l = &p->lines[i];
	const char *colour = colours[i % ARRAY_SIZE(colours)];

	fprintf(a->f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
	for (size_t k = 0; k < l->n; k++)
		fprintf(a->f, "%.1f,%.1f ", x_of(a, l->x[k]), y_of(a, l->y[k]));
	fprintf(a->f, "\"/>\n");
	for (size_t k = 0; p->dots && k < l->n; k++)
		fprintf(a->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
			x_of(a, l->x[k]), y_of(a, l->y[k]), colour);
	fprintf(a->f, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">%s</text>\n", LEFT + 12,
		a->top + TOP + NAME * ((double)i + 1), colour, l->name);
}

static void draw_panel(FILE *f, double top, const struct plot_panel *p)
{
	double x = 0, y = 0;
	struct frame a = {.f = f, .top = top};

	for (size_t i = 0; i < p->n_lines; i++)
		for (size_t k = 0; k < p->lines[i].n; k++) {
			x = MAX(x, p->lines[i].x[k]);
			y = MAX(y, p->lines[i].y[k]);
		}
	a.x_end = p->powers ? MAX(x, 1.0) : axis_end(x);
	/* leaves room above the lines for the names of up to ten of them */
	a.y_end = axis_end(
		y / (1 - NAME * (double)MIN(p->n_lines, (size_t)10) / (HEIGHT - TOP - BOTTOM)));
	draw_axes(&a, p);
	for (size_t i = 0; i < p->n_lines; i++)
		if (p->lines[i].n)
			draw_line(&a, p, i);
}

/* Writes the text of an XML element: escapes markup, and makes control characters spaces. */
static void write_text(FILE *f, const char *text)
{
	for (const char *p = text; *p; p++)
		switch (*p) {
		case '&': fputs("&amp;", f); break;
		case '<': fputs("&lt;", f); break;
		case '>': fputs("&gt;", f); break;
		default: fputc((unsigned char)*p < ' ' ? ' ' : *p, f);
		}
}

static void draw(FILE *f, const char *subtitle, const struct plot_panel *panels, size_t n)
{
	const size_t bottom = HEIGHT * n;

	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" "
		"font-family=\"sans-serif\" "
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		WIDTH, bottom + (subtitle ? SUBTITLE : 0));
	for (size_t i = 0; i < n; i++)
		draw_panel(f, HEIGHT * (double)i, &panels[i]);
	if (subtitle) {
		fprintf(f, "<text x=\"%d\" y=\"%zu\" font-size=\"10\" fill=\"#666\">", RIGHT,
			bottom + SUBTITLE / 2);
		write_text(f, subtitle);
		fprintf(f, "</text>\n");
	}
	fprintf(f, "</svg>\n");
}

int plot_check(const char *option, const char *path, struct err *e)
{
	bool there = access(path, F_OK) == 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);

	if (fd < 0)
		return err_set(e, errno, "--%s %s: %s", option, path, strerror(errno));
	close(fd);
	if (!there)
		unlink(path);
	return 0;
}

int plot_write(const char *path, const char *subtitle, const struct plot_panel *panels, size_t n,
	       struct err *e)
{
	FILE *f = fopen(path, "we");
	int bad;

	if (!f)
		return err_set(e, errno, "%s: %s", path, strerror(errno));
	draw(f, subtitle, panels, n);
	bad = ferror(f);
	bad |= fclose(f);
	return bad ? err_set(e, EIO, "%s: could not be written", path) : 0;
}
