/* kernels/peak.c: the peaks that are known of some devices; measured peaks are possible values. */
#include <stdlib.h>

#include "engine/device.h"
#include "kernels/peak.h"
#include "kernels/probe.h"
#include "tests/tap.h"

static void test_known(void)
{
	struct peak known = {0}, good = {.read = 58e9,
					 .copy = 50e9,
					 .flops = 230e9,
					 .dot = 450e9,
					 .int8 = 900e9};
	struct peak slow = good;
	char what[128] = "";

	ok(peak_known("pthread-skylake-avx512-AMD EPYC", 2, KERNELS_X86, &known) &&
		   known.read == 57e9 && known.dot == 457e9 && known.int8 == 910e9 &&
		   known.copy == 0,
	   "two cores of an EPYC with vdpbf16ps are known");
	ok(!peak_below(good, known, what, sizeof(what)), "a good day");
	slow.dot = 430e9;
	ok(peak_below(slow, known, what, sizeof(what)), "a dot 6 %% below what is known");
	is_str(what, "bf16 arithmetic at 430.0 GFLOP/s, where 457.0 are known",
	       "it is said with both numbers");
	slow = good;
	slow.int8 = 850e9;
	ok(peak_below(slow, known, what, sizeof(what)), "int8 7 %% below");
	slow = good;
	slow.read = 0.94 * 57e9;
	ok(peak_below(slow, known, what, sizeof(what)), "reading 6 %% below");
	slow.read = 0.96 * 57e9;
	ok(!peak_below(slow, known, what, sizeof(what)), "4 %% below is no matter");
	ok(peak_known("NVIDIA H200", 132, KERNELS_NVIDIA, &known) && known.copy == 4.27e12,
	   "an H200 is known");
	check(!peak_known("NVIDIA H200", 132, KERNELS_GENERIC, &known));
	check(!peak_known("pthread-skylake-avx512-AMD EPYC", 8, KERNELS_X86, &known));
	check(!peak_known("cpu", 2, KERNELS_X86, &known));
	ok_all("another variant, another number of cores, another device are not");
	slow = peak_best((struct peak){1, 5, 3, 7, 2, 8}, (struct peak){4, 2, 6, 0, 9, 1});
	ok(slow.read == 4 && slow.copy == 5 && slow.flops == 6 && slow.dot == 7 && slow.int8 == 9 &&
		   slow.dp4a == 8,
	   "the better of each");
}

/* Measured values have to be possible: a loop that the compiler removed, or memory that a cache holds, would give more
 * than a machine can reach. */
static void test_possible(const struct device *d, enum kernel_variant variant, uint32_t abilities)
{
	const char *name = kernels_variant_name(variant);
	struct peaks *p = NULL;
	struct peak m = {0};
	struct err e = {0};
	cl_uint units = 0;
	double most;

	clGetDeviceInfo(d->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	if (!ok(peaks_open(d->context, d->id, d->queue, variant, abilities, NULL, &p, &e) == 0 &&
			peaks_measure(p, &m, &e) == 0,
		"%s: measures", name)) {
		printf("# %s\n", e.text);
		peaks_close(p);
		return;
	}
	printf("# %s: read %.1f, copy %.1f GB/s, float %.1f, bf16 %.1f GFLOP/s, int8 %.1f GOP/s\n",
	       name, m.read / 1e9, m.copy / 1e9, m.flops / 1e9, m.dot / 1e9, m.int8 / 1e9);
	/* In each compute unit two FMAs of 16 floats a cycle on a CPU, or 128 of one float on a GPU, at 6 GHz.
	 * vdpbf16ps and mma do more. */
	most = units * 6e9 * (d->cpu ? 64 : 256);
	ok(m.read > 1e8 && m.copy > 1e8 && m.read < 2e13 && m.copy < 2e13,
	   "%s: bandwidths that can be", name);
	ok(m.flops > 1e8 && m.flops < most, "%s: float arithmetic that can be", name);
	ok(m.dot >= m.flops && m.dot < (d->cpu ? 2 : 32) * most, "%s: bf16 arithmetic that can be",
	   name);
	ok(m.int8 >= m.flops && m.int8 < (d->cpu ? 4 : 64) * most,
	   "%s: int8 arithmetic that can be", name);
	/* int8 must only be faster than float. A bench on an idle machine says how much faster it is. */
	if (variant == KERNELS_X86 && abilities & ABILITY_VPDPBUSD)
		ok(m.int8 > m.flops, "%s: an instruction for int8", name);
	if (variant == KERNELS_GENERIC)
		ok(m.dot == m.flops && m.int8 == m.flops, "generic: no instruction of its own");
	peaks_close(p);
}

static void test_quick(const struct device *d)
{
	double launch_ns = 0, read = 0;
	struct err e = {0};

	ok(peak_quick(d->context, d->id, d->queue, NULL, &launch_ns, &read, &e) == 0,
	   "launches and reading alone %s", e.text);
	printf("# launch %.2f us, read %.1f GB/s\n", launch_ns / 1e3, read / 1e9);
	ok(launch_ns > 10 && launch_ns < 1e7, "a launch takes a time that can be");
	ok(read > 1e8 && read < 2e13, "reading has a bandwidth that can be");
}

int main(void)
{
	static const enum kernel_variant variants[] = {KERNELS_GENERIC, KERNELS_X86,
						       KERNELS_NVIDIA};
	const char *which = getenv("TIGON_TEST_DEVICE");
	uint32_t abilities = 0;
	struct device d;
	struct err e;

	test_known();
	if (device_open(which, &d, &e) < 0) {
		printf("# %s\n", e.text);
		return done();
	}
	ok(probe_device(d.id, NULL, false, &abilities, &e) == 0, "its abilities are found");
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++)
		if (kernels_supported(variants[i], abilities))
			test_possible(&d, variants[i], abilities);
	test_quick(&d);
	device_close(&d);
	return done();
}
