/* Tuning tables: the fastest cut of a kernel's work, by device and size. A cut is the sizes of tiles and groups and a
 * few more numbers (struct tuning_cut). `tigon tune` measures and writes tables, kernels_open uses them (cuts.h); this
 * file only parses them, looks rows up and writes them.
 *
 * A table is a text of tab-separated values. Its first line is "tigon tuning 1". Lines that begin with # and empty
 * lines are skipped; every other line is a row of 13 fields:
 *
 *     device  driver  units  kernels  dtype  family  N  K  M  cut  bits  us  default_us
 *
 *     device, driver, units   OpenCL's name of the device, version of the driver, number of compute units; or *: any
 *     kernels, dtype          the variant and the element type
 *     family                  product, experts, attention or decode_step
 *     N, K, M                 buckets: the row is for sizes up to its bucket and above the next smaller one (for all
 *                             larger sizes too if it is the largest bucket); or *: any
 *     cut                     name=value, separated by spaces, or - (none); all other values are the default cut's
 *     bits                    same: as with the default cut; or differ: then only --batch-invariant off uses the row
 *     us, default_us          microseconds of a launch with this cut, and with the default one; -: not known
 *
 * Of the rows that fit, the one with the fewest * in device, driver and units is used; of several such rows, the one
 * with the fewest * in N, K and M; of these, if bits may change, one that changes them. So rows may be for one device,
 * for devices with equally many units (device and driver *), or for all devices. A row of the user's table (struct
 * tuning_options) comes before any row of the built-in one (cpu.tsv). If neither has a row that fits, a launch uses the
 * default cut (kernels.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum tuning_family {
	TUNING_NONE,	/* not tuned */
	TUNING_PRODUCT, /* gemm_store, gemm_add: N, K, M are the sizes of the product */
	TUNING_EXPERTS, /* moe_gate_up, moe_down: N, K of an expert or dense MLP, M its mean number of rows */
	TUNING_ATTENTION, /* N query heads of a KV head, K dimensions of a head, M tokens of the step */
	/* N columns of the residual stream, K the size of an expert or dense MLP, M tokens of the step */
	TUNING_DECODE_STEP,
	TUNING_FAMILIES,
};

/* The sizes of a cut. 0 in a table: the default cut's value. */
struct tuning_cut {
	/* a GEMM tile: rows, and column blocks (16 columns each on a CPU, 64 on a GPU) */
	uint32_t tile_rows, tile_blocks;
	uint32_t blocks;    /* column blocks of a group */
	uint32_t row_block; /* rows of a group */
	uint32_t ahead;	    /* bytes between a weight's prefetch and its use (x86) */
	uint32_t chains;    /* partial sums of an element; 2 changes bits (x86) */
	uint32_t queries;   /* an attention tile has about so many queries */
};

/* The place of a launch in a table. n, k and m are buckets; 0: any. */
struct tuning_place {
	enum tuning_family family;
	uint32_t n, k, m;
};

struct tuning_device {
	char name[256], driver[128]; /* "*": any */
	uint32_t units;		     /* compute units; 0: any */
	char kernels[16];	     /* kernels_variant_name */
	bool bf16;
};

struct tuning_row {
	struct tuning_device device;
	struct tuning_place place;
	struct tuning_cut cut;
	bool same_bits;
	double us, default_us;
	uint32_t line; /* line of the text, from 1 */
};

struct tuning_table {
	struct tuning_row *rows;
	size_t n;
};

/* The tuning with which a set of kernels is opened. */
struct tuning_options {
	const struct tuning_table *table; /* NULL: only the built-in table */
	bool any_bits;			  /* cuts may change bits */
};

/* The buckets of M, ascending; the last one includes all larger sizes. */
enum { TUNING_M_BUCKETS = 10 };
extern const uint32_t tuning_m_buckets[TUNING_M_BUCKETS];

/* Return the bucket of an M, as its index in tuning_m_buckets, and the bucket of an N or K, which is a power of two. */
size_t tuning_m_bucket(uint64_t m);
uint32_t tuning_size_bucket(uint64_t size);

/* Returns the place of a launch of these sizes: their buckets. */
struct tuning_place tuning_place_of(enum tuning_family family, uint64_t n, uint64_t k, uint64_t m);

/* Read a table from a text, or from a file; *ret is freed by tuning_free. name: what errors call the text. -EINVAL: the
 * table is wrong; if a line is wrong, the error names it. -ENOMEM: out of memory. tuning_open: also -ENOENT or another
 * errno of reading the file. */
int tuning_parse(const char *name, const char *text, size_t len, struct tuning_table **ret,
		 struct err *e) MUST_CHECK;
int tuning_open(const char *path, struct tuning_table **ret, struct err *e) MUST_CHECK;
void tuning_free(struct tuning_table *t);

/* Returns the row for a device (without *) at a place (without 0), borrowed; NULL: there is none. any_bits: rows that
 * change bits are looked at too, and come before rows with equally many * that do not. t may be NULL. */
const struct tuning_row *tuning_find(const struct tuning_table *t, const struct tuning_device *d,
				     const struct tuning_place *p, bool any_bits);

/* Returns whether the table has any row for this device, its kernels and its dtype. t may be NULL. */
bool tuning_knows(const struct tuning_table *t, const struct tuning_device *d);

/* How much of a given table a device and a model use. */
struct tuning_use {
	uint32_t sizes, taken; /* sizes that were looked up, and those with a row of the table */
	bool known;	       /* tuning_knows of the table */
};

/* Writes a tuning_use as a sentence about `file`. TUNING_USE_TEXT bytes are enough for any path. */
enum { TUNING_USE_TEXT = 4352 };
void tuning_use_text(const struct tuning_use *u, const char *file, char *ret, size_t size);

/* Parses a cut such as "tile_rows=8 chains=2", or "-". Values that the text does not name become 0. -EINVAL: no kernel
 * accepts a value, the family does not use it (not checked for TUNING_NONE), or the text is no cut. */
int tuning_parse_cut(const char *text, enum tuning_family family, struct tuning_cut *ret,
		     struct err *e) MUST_CHECK;

/* Returns the values of `over`; where a value is 0 there, the one of `under`. */
struct tuning_cut tuning_over(struct tuning_cut over, struct tuning_cut under);

/* Returns the cut with 0 for each value that the family does not use, so that cuts of a family that compile to the same
 * programs are equal. */
struct tuning_cut tuning_cut_of(struct tuning_cut cut, enum tuning_family family);
bool tuning_equal(const struct tuning_cut *a, const struct tuning_cut *b);

/* Writes a cut as tuning_parse_cut reads it: the values that are not 0, or "-" if all are 0. */
void tuning_cut_text(const struct tuning_cut *cut, char *ret, size_t size);

/* Write the first lines of a table, and one row, as tuning_parse reads them. */
void tuning_write_head(FILE *out);
void tuning_write_row(FILE *out, const struct tuning_row *row);
