/* The best bandwidth and arithmetic that a device reaches, measured for comparison with the bench's figures in the same
 * run. Virtual machines share memory and clocks with others, so a peak that was measured on another day says little
 * about today's figures. If today's peak is far below the device's known one, today's figures are too low as well. */
#pragma once

#include "kernels/kernels.h"

struct peak {
	double read, copy; /* bytes/s: reading; reading and writing together */
	double flops;	   /* FLOP/s of float fused multiply-adds */
	double dot;	   /* FLOP/s of the variant's bf16 instruction; at least `flops` */
	double int8;	   /* OP/s of the variant's best int8 instruction; at least `flops` */
	double dp4a; /* OP/s of dp4a, by which a GPU's lane adds four products of int8; 0: not measured */
};

struct peaks;

/* Compiles the measuring kernels of a variant for a device with these abilities (probe.h), and allocates and fills
 * their buffers. (Memory that was never written may be one page of zeros, which stays in a cache.) *ret is new; the
 * queue is borrowed until peaks_close. Errors here and below are those of library.h and cl_error.h. */
int peaks_open(cl_context context, cl_device_id device, cl_command_queue queue,
	       enum kernel_variant variant, uint32_t abilities, const char *cache_dir,
	       struct peaks **ret, struct err *e) MUST_CHECK;
void peaks_close(struct peaks *p);

/* Waits for the queue, then measures for some tenths of a second. *ret has the best of a few tries of each value. */
int peaks_measure(struct peaks *p, struct peak *ret, struct err *e) MUST_CHECK;

/* Measures a device on an empty queue for less than a second: the nanoseconds of an empty launch, when many are queued
 * one behind the other, and the bytes/s of reading. cache_dir: as for kernels_open. */
int peak_quick(cl_context context, cl_device_id device, cl_command_queue queue,
	       const char *cache_dir, double *ret_launch_ns, double *ret_read,
	       struct err *e) MUST_CHECK;

/* Returns the larger of both numbers for each value. */
struct peak peak_best(struct peak a, struct peak b);

/* Looks up the known peaks of a device by its name, its compute units and the variant that it runs; a value of 0 is
 * unknown. They were measured on such devices (known_peaks in peak.c). Returns false if the device is not in the
 * list. */
bool peak_known(const char *device, uint32_t units, enum kernel_variant variant, struct peak *ret);

/* Returns whether a measured value is more than 5 % below the known one. Then ret_what [size] names the first such
 * value, with both numbers. */
bool peak_below(struct peak measured, struct peak known, char *ret_what, size_t size);
