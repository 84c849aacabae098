/* Any bytes as a tuning table: an accepted table keeps the promises of kernels/tuning/tuning.h, and its written form
 * is accepted again. */
#include <stdlib.h>

#include "base/macros.h"
#include "kernels/tuning/tuning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const struct tuning_row *row)
{
	const struct tuning_cut *c = &row->cut;

	if (row->place.family == TUNING_NONE || row->place.family >= TUNING_FAMILIES ||
	    c->tile_rows > 16 || c->tile_blocks > 8 || c->tile_blocks % 2 || c->blocks > 32 ||
	    c->blocks % 2 || c->row_block > 1024 || c->row_block % 16 || c->ahead > 65536 ||
	    c->ahead % 64 || c->chains > 2 || c->queries > 64)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tuning_table *t, *again;
	struct err e = {0};
	char *text = NULL;
	size_t len = 0;
	FILE *f;

	if (tuning_parse("table", (const char *)data, size, &t, &e) < 0) {
		if (!e.code || !e.text[0])
			abort();
		return 0;
	}
	f = open_memstream(&text, &len);
	tuning_write_head(f);
	for (size_t i = 0; i < t->n; i++) {
		check_row(&t->rows[i]);
		tuning_write_row(f, &t->rows[i]);
	}
	fclose(f);
	if (tuning_parse("written", text, len, &again, &e) < 0 || again->n != t->n)
		abort();
	for (size_t i = 0; i < t->n; i++)
		if (!tuning_equal(&t->rows[i].cut, &again->rows[i].cut) ||
		    t->rows[i].place.m != again->rows[i].place.m)
			abort();
	tuning_free(t);
	tuning_free(again);
	free(text);
	return 0;
}
