/*
 * Which cut each launch of a set of kernels takes: the tuning tables (tuning.h), looked up once for every product of a
 * shape in every bucket of M, when the set is opened. A cut that is used anywhere is a program of its own; a launch then
 * chooses by its number. Cut 0 is the default one, which the kernels come with. Inside kernels/ only.
 */
#ifndef KERNELS_TUNING_CUTS_H
#define KERNELS_TUNING_CUTS_H

#include "kernels/kernels.h"

/* Programs that a cut makes; different cuts of a program have different numbers, those of others may be the same. */
enum cut_program { CUT_GEMM, CUT_ATTENTION, CUT_DECODE_STEP, CUT_PROGRAMS };

enum {
	CUTS_MAX = 8, /* of a program; what would be more takes the default cut */
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
	struct tuning_use given; /* what came of the table that was given */
};

enum cut_program cuts_program(enum tuning_family family);

struct cuts_source {
	const struct tuning_device *device;
	const struct tuning_table *tables[2]; /* given, built in; the first one counts; or NULL */
	bool any_bits;
	bool products;	  /* gemm.cl is cut this way, not for tensor cores */
	bool decode_step; /* there is one */
};

/* Looks up every launch of a shape, in all buckets of M. c->given says what came of tables[0]. */
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

/* Everything that decides which launches take which cut, as 32 hex digits. */
void cuts_identity(const struct cuts *c, char ret[33]);

#endif
