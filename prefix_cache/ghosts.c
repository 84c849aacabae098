#include "prefix_cache/ghosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* For up to 2^20 pages the table has room for at least twice as many hashes as the pool has pages, so of the last pages
 * that were evicted, as many as the pool has, most are found. The table takes 512 KiB to 16 MiB; for more pages it
 * stays at 16 MiB and forgets sooner. */
enum { LINES_MIN = 1 << 13, LINES_MAX = 1 << 18 };

int ghosts_init(struct ghosts *g, uint32_t n_pages)
{
	*g = (struct ghosts){.n_lines = LINES_MIN};
	while (g->n_lines < LINES_MAX && g->n_lines * GHOSTS_LINE < 2 * (uint64_t)n_pages)
		g->n_lines *= 2;
	g->lines = aligned_alloc(sizeof(*g->lines), g->n_lines * sizeof(*g->lines));
	if (!g->lines)
		return -ENOMEM;
	ghosts_clear(g);
	return 0;
}

void ghosts_release(struct ghosts *g)
{
	free(g->lines);
	*g = (struct ghosts){0};
}

/* Returns the hash, or 1 for 0, because 0 stands for no hash. */
static uint64_t not_zero(uint64_t hash)
{
	return hash + !hash;
}

static uint64_t *line_of(const struct ghosts *g, uint64_t hash)
{
	return g->lines[hash & (g->n_lines - 1)];
}

static bool in_line(const uint64_t *line, uint64_t hash)
{
	bool found = false;

	for (int i = 0; i < GHOSTS_LINE; i++)
		found |= line[i] == hash;
	return found;
}

bool ghosts_have(const struct ghosts *g, uint64_t hash)
{
	return in_line(line_of(g, hash), not_zero(hash));
}

void ghosts_add(struct ghosts *g, uint64_t hash)
{
	uint64_t *line = line_of(g, hash);

	if (in_line(line, not_zero(hash)))
		return;
	memmove(line + 1, line, (GHOSTS_LINE - 1) * sizeof(*line));
	line[0] = not_zero(hash);
}

void ghosts_clear(struct ghosts *g)
{
	memset(g->lines, 0, g->n_lines * sizeof(*g->lines));
}
