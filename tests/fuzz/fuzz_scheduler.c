/*
 * The scheduler against its naive model, with a fuzzer's bytes in place of random numbers. tests/run builds it with the
 * files of tests/ that are named here: tests/scheduler_model.c, tests/scheduler_model_check.c,
 * tests/scheduler_model_draw.c, tests/scheduler_rules.c, tests/scheduler_rules_admission.c, tests/plan_check.c,
 * tests/cache_mirror.c, tests/fake_device.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/scheduler_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct source src = {.bytes = data, .n_bytes = size};
	struct model_counts counts = {0};
	const char *failed = size ? model_run(&src, UINT32_MAX, &counts) : NULL;

	if (failed) {
		fprintf(stderr, "%s\n", failed);
		abort();
	}
	return 0;
}
