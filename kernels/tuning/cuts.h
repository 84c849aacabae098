/* The cut that each launch of a set of kernels uses. When the set is opened, the tuning tables (tuning.h) are looked
 * up for every product of the shape in every bucket of M. Each cut in use is compiled as a program of its own, and a
 * launch names its cut by number. Cut 0 is the default one. Inside kernels/ only. */
#pragma once

#include "kernels/shape.h"
#include "kernels/tuning/tuning.h"

/* Programs that are compiled once for each cut, each with cut numbers of its own. CUT_NONE stands for all other
 * programs, which have cut 0 alone. */
enum cut_program { CUT_NONE, CUT_GEMM, CUT_ATTENTION, CUT_DECODE_STEP, CUT_PROGRAMS };

enum {
	CUTS_MAX = 8, /* most cuts of a program; further sizes use the default cut */
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
	bool defaults;		 /* all launches use cut 0 */
	bool same_bits;		 /* no cut in use changes bits */
	struct tuning_use given; /* use of the given table */
};

struct cuts_source {
	const struct tuning_device *device;
	/* the given table and the built-in one, or NULL; the first one's rows count first */
	const struct tuning_table *tables[2];
	bool any_bits;
	bool products;	  /* products use these cuts, because they do not run on tensor cores */
	bool decode_step; /* a decode step is one launch */
};

/* Looks up every launch of a shape, in all buckets of M. c->given says how much of tables[0] is used. */
void cuts_choose(struct cuts *c, const struct kernel_shape *s,
		 const struct tuning_cut defaults[CUT_PROGRAMS], const struct cuts_source *source);

/* The places of the launches of a step of T tokens. */
struct tuning_place cuts_experts(const struct kernel_shape *s, uint32_t mlp, bool down, uint32_t T);
struct tuning_place cuts_attention(const struct kernel_shape *s, uint32_t T);
struct tuning_place cuts_decode_step(const struct kernel_shape *s, uint32_t T);

/* Tokens of an attention tile. */
uint32_t cuts_tile_tokens(const struct kernel_shape *s, const struct tuning_cut *cut);

/* The number of the cut of launches at a place. */
uint32_t cuts_find(const struct cuts *c, const struct tuning_place *p);

/* A hash of the cuts of all places, as 32 hex digits. */
void cuts_identity(const struct cuts *c, char ret[33]);
