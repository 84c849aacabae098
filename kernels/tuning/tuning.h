/* Tuning tables: the fastest cut of a kernel's work, by device and size. `tigon tune` measures and writes them,
 * kernels_open reads them (cuts.h); this file only parses, looks up and writes.
 *
 * A table is a text of tab-separated values. Its first line is "tigon tuning 1". Lines that begin with # and empty
 * lines are skipped; every other line is a row of 13 fields:
 *
 *     device  driver  units  kernels  dtype  family  N  K  M  cut  bits  us  default_us
 *
 *     device, driver, units   as OpenCL names them, or *: any
 *     kernels, dtype          the variant and the element type
 *     family                  product, experts, attention or decode_step
 *     N, K, M                 buckets: the row is for sizes up to them and above the next smaller bucket; or *: any
 *     cut                     name=value, separated by spaces; a value that is not named is the default cut's; -: none
 *     bits                    same, or differ: then only --batch-invariant off uses it
 *     us, default_us          microseconds of a launch with this cut, and with the default one
 *
 * Of the rows that fit, the one with the fewest * in its device counts, then the one with the fewest * in its sizes.
 * So a table has rows for one device, for a family of devices (device and driver *), or for all devices. A given
 * table comes before the built-in one (cpu.tsv). If neither has a row, a launch uses the default cut (kernels.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum tuning_family {
	TUNING_NONE,	/* not tuned */
	TUNING_PRODUCT, /* gemm_store, gemm_add: N, K, M of the product */
	TUNING_EXPERTS, /* moe_gate_up, moe_down: N, K of one expert, M its mean number of rows */
	TUNING_ATTENTION, /* N queries that share a key, K dimensions of a head, M tokens of the step */
	TUNING_DECODE_STEP, /* N the hidden size, K an expert's, M tokens of the step */
	TUNING_FAMILIES,
};

/* The sizes in which work is cut. 0 in a table: the default cut's value. */
struct tuning_cut {
	/* accumulators of the GEMM tile; a block is 16 columns on a CPU */
	uint32_t tile_rows, tile_blocks;
	uint32_t blocks;    /* column blocks of a group */
	uint32_t row_block; /* rows of a group */
	uint32_t ahead;	    /* bytes between a weight's prefetch and its use (x86) */
	uint32_t chains;    /* partial sums of an element; 2 changes bits (x86) */
	uint32_t queries;   /* queries of an attention tile, about */
};

/* The place of a launch in the table: buckets, 0: any. */
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

/* The bucket of a size of M (one of tuning_m_buckets; the last one includes all larger sizes) and of N or K (a power
 * of two). */
enum { TUNING_M_BUCKETS = 10 };
extern const uint32_t tuning_m_buckets[TUNING_M_BUCKETS];
size_t tuning_m_bucket(uint64_t m); /* its index */
uint32_t tuning_size_bucket(uint64_t size);
struct tuning_place tuning_place_of(enum tuning_family family, uint64_t n, uint64_t k, uint64_t m);

/* New table from a text, or from a file; errors call a text `name`. -EINVAL names the line; -ENOENT or another errno. */
int tuning_parse(const char *name, const char *text, size_t len, struct tuning_table **ret,
		 struct err *e) MUST_CHECK;
int tuning_open(const char *path, struct tuning_table **ret, struct err *e) MUST_CHECK;
void tuning_free(struct tuning_table *t);

/* The row for a device (without *) at a place (without 0), NULL: none. any_bits: also rows that change bits, which
 * come before rows of the same rank that do not. Borrowed. t may be NULL. */
const struct tuning_row *tuning_find(const struct tuning_table *t, const struct tuning_device *d,
				     const struct tuning_place *p, bool any_bits);

/* Whether the table has any row for this device, its kernels and its dtype. t may be NULL. */
bool tuning_knows(const struct tuning_table *t, const struct tuning_device *d);

/* The use that a device and a model make of a given table. */
struct tuning_use {
	uint32_t sizes, taken; /* sizes that were looked up; those that take a row of the table */
	bool known;	       /* tuning_knows of the table */
};

/* Writes that as a sentence; with any path it fits into so many bytes. */
enum { TUNING_USE_TEXT = 4352 };
void tuning_use_text(const struct tuning_use *u, const char *file, char *ret, size_t size);

/* Parses "tile_rows=8 chains=2": the named values, 0 in the others. -EINVAL: no kernel accepts a value, or the family
 * does not use it (TUNING_NONE: any family). */
int tuning_parse_cut(const char *text, enum tuning_family family, struct tuning_cut *ret,
		     struct err *e) MUST_CHECK;

/* The values that `over` names; the others from `under`. */
struct tuning_cut tuning_over(struct tuning_cut over, struct tuning_cut under);

/* The values that a family uses, 0 in the rest: equal cuts compile to equal programs. */
struct tuning_cut tuning_cut_of(struct tuning_cut cut, enum tuning_family family);
bool tuning_equal(const struct tuning_cut *a, const struct tuning_cut *b);

/* Writes a cut so that tuning_parse_cut can read it; without values "-". */
void tuning_cut_text(const struct tuning_cut *cut, char *ret, size_t size);

/* Write lines that tuning_parse reads. */
void tuning_write_head(FILE *out);
void tuning_write_row(FILE *out, const struct tuning_row *row);
