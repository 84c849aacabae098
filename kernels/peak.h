/*
 * What a device can do at best, measured now: the yardstick beside every figure of the bench. Machines share
 * memory and clocks with others, so a peak of another day says little about a kernel of this one; and a peak that
 * is far below what the device is known for says that the day is a bad one.
 */
#ifndef KERNELS_PEAK_H
#define KERNELS_PEAK_H

#include "kernels/kernels.h"

struct peak {
	double read, copy; /* bytes/s: reading; reading and writing together */
	double flops;	   /* FLOP/s of float fused multiply-adds */
	double dot;	   /* FLOP/s of the variant's bf16 instruction; flops where it has none */
	double int8;	   /* OP/s of the variant's int8 instruction; flops where it has none */
};

struct peaks;

/* New. Compiles the yardsticks for a variant, allocates what they read and writes it: memory that nobody wrote is
 * one page of zeros, which a cache holds. Borrows all but the peaks. */
int peaks_open(cl_context context, cl_device_id device, cl_command_queue queue,
	       enum kernel_variant variant, const char *cache_dir, struct peaks **ret,
	       struct err *e) MUST_CHECK;
void peaks_close(struct peaks *p);

/* Measures, for some tenths of a second, and gives the best of a few tries. Waits for the queue. */
int peaks_measure(struct peaks *p, struct peak *ret, struct err *e) MUST_CHECK;

/* The better of each. */
struct peak peak_best(struct peak a, struct peak b);

/* What a device is known to do (0: nothing is known of that), by its name, its compute units and the variant that it
 * runs. False: the device is not known. */
bool peak_known(const char *device, uint32_t units, enum kernel_variant variant, struct peak *ret);

/* Whether a measured peak is more than 5 % below a known one; then *ret_what says in a few words which, with both
 * numbers. */
bool peak_below(struct peak measured, struct peak known, char *ret_what, size_t size);

#endif
