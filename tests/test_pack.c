/* The places of panels in matrices of quantised weights: the distance of two neighbours in the table is a panel's bytes,
 * whether the parts of the matrix stand one behind the other or take turns (gate and up). Kernels ask for so many bytes
 * ahead of their use. */
#include <stdlib.h>

#include "base/macros.h"
#include "engine/checkpoint/pack_internal.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { MATRICES = 200, SHARING = 3, EXPERTS = 5 };

static void check_matrix(uint32_t n, uint32_t experts, bool turns)
{
	struct pack_part parts[SHARING * EXPERTS];
	uint64_t bytes[SHARING * EXPERTS], of_type[SHARING], rows[SHARING], panels = 0, at;
	uint32_t *table;
	size_t wrong = 0;

	for (uint32_t i = 0; i < n; i++) {
		rows[i] = turns && i ? rows[0] : 1 + random_below(100);
		of_type[i] = 64 * (1 + random_below(1000));
	}
	for (uint32_t e = 0; e < experts; e++) {
		uint64_t first = panels;

		for (uint32_t i = 0; i < n; i++) {
			parts[e * n + i] = (struct pack_part){.expert = e,
							      .rows = rows[i],
							      .first = turns ? first + i : panels,
							      .stride = turns ? n : 1};
			bytes[e * n + i] = of_type[i];
			panels += CEIL_DIV(rows[i], 16u);
		}
	}
	table = calloc(panels + 1, sizeof(*table));
	pack_quant_places(parts, bytes, (size_t)n * experts, panels, table);
	at = CEIL_DIV((panels + 1) * sizeof(*table), 64u);
	check(table[0] == at);
	for (uint32_t i = 0; i < n * experts; i++) {
		for (uint64_t k = 0; k < CEIL_DIV(parts[i].rows, 16u); k++) {
			uint64_t p = parts[i].first + k * parts[i].stride;

			wrong += (table[p + 1] - table[p]) * UINT64_C(64) != bytes[i];
			at += bytes[i] / 64;
		}
	}
	check(!wrong && table[panels] == at);
	free(table);
}

TEST(places)
{
	for (int i = 0; i < MATRICES; i++)
		check_matrix(1 + (uint32_t)random_below(SHARING),
			     1 + (uint32_t)random_below(EXPERTS), i % 2);
	ok_all("panels of %d matrices lie in the order of their tables, without gaps", MATRICES);
}

TEST_MAIN()
