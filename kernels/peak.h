/* The best that a device reaches, measured now, for comparison with the figures of the bench. Virtual machines share
 * memory and clocks with others, so a peak that was measured on another day says little about today's figures; and a
 * peak far below the device's known one says that today's figures are low. */
#pragma once

#include "kernels/kernels.h"

struct peak {
	double read, copy; /* bytes/s: reading; reading and writing together */
	double flops;	   /* FLOP/s of float fused multiply-adds */
	double dot;	   /* FLOP/s of the variant's bf16 instruction; without one as `flops` */
	double int8;	   /* OP/s of the variant's best int8 instruction; without one as `flops` */
	double dp4a;	   /* OP/s of a GPU lane's four products of int8; 0: not measured */
};

struct peaks;

/* New. Compiles the measuring kernels of a variant, allocates the buffers that they read and fills them, because
 * memory that was never written is one page of zeros, which stays in a cache. All arguments are borrowed. */
int peaks_open(cl_context context, cl_device_id device, cl_command_queue queue,
	       enum kernel_variant variant, const char *cache_dir, struct peaks **ret,
	       struct err *e) MUST_CHECK;
void peaks_close(struct peaks *p);

/* Measures for some tenths of a second; returns the best of a few tries. Waits for the queue. */
int peaks_measure(struct peaks *p, struct peak *ret, struct err *e) MUST_CHECK;

/* The better one of each value. */
struct peak peak_best(struct peak a, struct peak b);

/* The known peaks of a device (0: unknown), by its name, its compute units and the variant that it runs. False: the
 * device is not known. */
bool peak_known(const char *device, uint32_t units, enum kernel_variant variant, struct peak *ret);

/* Whether a measured peak is more than 5 % below a known one. Then *ret_what names it, with both numbers. */
bool peak_below(struct peak measured, struct peak known, char *ret_what, size_t size);
