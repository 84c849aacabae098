/*
 * Which cut each launch of a set of kernels takes. When the set is opened, the tuning tables (tuning.h) are looked up for
 * every product of the shape in every bucket of M. Each cut that is used is compiled as a program of its own, and a launch
 * takes one by its number. Cut 0 is the default one. Inside kernels/ only.
 */
#pragma once

#include "kernels/shape.h"
#include "kernels/tuning/tuning.h"

/* Programs that are compiled once a cut. Cuts are numbered for each of them; CUT_NONE, for all other programs, has one. */
enum cut_program { CUT_NONE, CUT_GEMM, CUT_ATTENTION, CUT_DECODE_STEP, CUT_PROGRAMS };

enum {
	CUTS_MAX = 8, /* of a program; sizes that want one more take the default cut */
	CUT_PLACES_MAX = 16,
};

struct cuts {
	struct tuning_cut of[CUT_PROGRAMS][CUTS_MAX];
	uint32_t n[CUT_PROGRAMS];
	struct {
		enum tuning_family family;
		uint32_t n, k; /* buckets */
		uint8_t cut[TUNING_M_BUCKETS];
	} places[CUT_PLACES_MAX];
	uint32_t n_places;
	bool defaults;		 /* all launches take cut 0 */
	bool same_bits;		 /* none in use changes bits */
	struct tuning_use given; /* how much of the given table is used */
};

struct cuts_source {
	const struct tuning_device *device;
	const struct tuning_table
		*tables[2]; /* given, built in, or NULL; a row of the first comes first */
	bool any_bits;
	bool products;	  /* products take these cuts: they do not run on tensor cores */
	bool decode_step; /* a decode step is one launch */
};

/* Looks up every launch of a shape, in all buckets of M. c->given tells how much of tables[0] is used. */
void cuts_choose(struct cuts *c, const struct kernel_shape *s,
		 const struct tuning_cut defaults[CUT_PROGRAMS], const struct cuts_source *source);

/* Where the launches of a step of T tokens stand. */
struct tuning_place cuts_experts(const struct kernel_shape *s, uint32_t mlp, bool down, uint32_t T);
struct tuning_place cuts_attention(const struct kernel_shape *s, uint32_t T);
struct tuning_place cuts_decode_step(const struct kernel_shape *s, uint32_t T);

/* Tokens of an attention tile. */
uint32_t cuts_tile_tokens(const struct kernel_shape *s, const struct tuning_cut *cut);

/* The number of the cut that a launch at a place takes. */
uint32_t cuts_find(const struct cuts *c, const struct tuning_place *p);

/* A hash of the cuts of all places, as 32 hex digits. */
void cuts_identity(const struct cuts *c, char ret[33]);
