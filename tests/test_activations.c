/*
 * Writes the outputs of all layers for the prompt of one golden case, in float32, to the file OUT:
 *
 *     test_activations DIR CASE OUT [generic|x86]
 *
 * tests/golden/activations.py runs it and compares OUT with DIR/activations.npz.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/golden.h"

int main(int argc, char **argv)
{
	struct engine_options o;
	struct golden golden;
	struct engine *g;
	struct err e = {0};
	bool good = false;

	if (argc < 4 || !golden_open(argv[1], &golden))
		return 2;
	o = run_options(argv[1], "float32", 2, 1024);
	o.dump_activations = argv[3];
	if (argc > 4)
		o.kernels = argv[4][0] == 'x' ? ENGINE_KERNELS_X86 : ENGINE_KERNELS_GENERIC;
	if (engine_open(&o, &g, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 2;
	}
	for (size_t i = 0; i < golden.n; i++) {
		struct run_setup setup = run_setup_of(&o);
		struct run r = run_of(golden.cases[i].prompt.v, golden.cases[i].prompt.len, 1);

		if (strcmp(golden.cases[i].name, argv[2]))
			continue;
		good = run_all(g, &setup, &r, 1);
	}
	engine_close(g);
	return good ? 0 : 1;
}
