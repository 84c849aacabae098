/* The abilities of a device: instructions and built-in functions for matrix operations that OpenCL C 1.2 does not
 * promise. A device has an ability if a few lines of OpenCL C that use it (probes/ has them) compile, run and give the
 * known answer. If the compiler refuses the program, or its answer is wrong, the device does not have the ability,
 * which is no error. Any other failure may pass. No file chooses a kernel by the vendor of a device: the names of
 * variants (x86, nvidia) stand for abilities.
 *
 * The abilities decide which bodies the kernels take: the variants x86 and nvidia and their parts (kernels.h), and
 * DOT_INT8 (generic/dot_int8.clh). A device with none but ABILITY_PLAIN runs all kernels of the generic variant.
 *
 * To ask a device takes a compilation for each ability. So the answers are kept in the program cache (cache_file.h) for
 * this device, driver and text of the probes, and later processes only read them. */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A set of abilities is a uint32_t of these bits. */
enum ability {
	ABILITY_PLAIN = 1 << 0,	     /* OpenCL C 1.2 without more: a probe of probing itself */
	ABILITY_DOT = 1 << 1,	     /* cl_khr_integer_dot_product, of four packed int8 */
	ABILITY_DP4A = 1 << 2,	     /* dp4a */
	ABILITY_MMA_BF16 = 1 << 3,   /* mma.sync of bf16, cp.async, ldmatrix, exchange in a warp */
	ABILITY_MMA_INT8 = 1 << 4,   /* mma.sync of int8: peak.c measures it, no product uses it */
	ABILITY_WGMMA = 1 << 5,	     /* wgmma, with the bits of mma.sync */
	ABILITY_VDPBF16PS = 1 << 6,  /* AVX512_BF16 by inline assembly */
	ABILITY_VPDPBUSD = 1 << 7,   /* AVX512_VNNI by inline assembly */
	ABILITY_VPMADDUBSW = 1 << 8, /* AVX2 by inline assembly */
};

/* Finds the abilities of a device: asks it, in a context of its own, or reads its earlier answers from cache_dir (NULL:
 * there is no cache). again: asks it in any case. The log (debug) has the reason for each ability that the device was
 * asked for and does not have. If a probe fails in a way that may pass, the log (warning) says so, the ability counts
 * as missing, and no answers are kept, so that the next process asks again. -ENOMEM: memory was short; then no answers
 * are kept either. Other errors are those of a device that no context or queue can be made for. */
int probe_device(cl_device_id device, const char *cache_dir, bool again, uint32_t *ret,
		 struct err *e) MUST_CHECK;

/* Returns whether the device is a CPU. */
bool probe_is_cpu(cl_device_id device);

/* Writes the names of a set of abilities to ret, with commas between them. 128 bytes are enough for all. */
void probe_names(uint32_t abilities, char *ret, size_t size);
