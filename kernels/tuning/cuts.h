/* The cut that each launch of a set of kernels uses. When the set is opened, the launches that have cuts (attention,
 * the decode step, experts and all products but the router's, unless tensor cores run them) are looked up in the
 * tuning tables (tuning.h), for each bucket of M, the number of rows or tokens. A program is compiled once for each of
 * its cuts, and a launch names its cut by number. Cut 0 is the default one. Outside kernels/ only tests include this
 * header. */
#pragma once

#include "kernels/shape.h"
#include "kernels/tuning/tuning.h"

/* The kinds of programs that are compiled once for each cut; each kind numbers its cuts by itself. CUT_GEMM: gemm.cl
 * (except for the router) and moe_gemm.cl; CUT_ATTENTION: attention.cl; CUT_DECODE_STEP: decode_step.cl. CUT_NONE: all
 * other programs, which have cut 0 alone. */
enum cut_program { CUT_NONE, CUT_GEMM, CUT_ATTENTION, CUT_DECODE_STEP, CUT_PROGRAMS };

enum {
	CUTS_MAX = 8, /* of a kind; launches that want a further cut use the default one */
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
	bool same_bits;		 /* no chosen cut changes bits */
	struct tuning_use given; /* how much of the given table is used */
};

struct cuts_source {
	const struct tuning_device *device;
	/* the given table (NULL: none), and the built-in one, which is used where the given one has no row */
	const struct tuning_table *tables[2];
	bool any_bits;
	bool products,
		attention; /* products and attention use cuts: they do not run on tensor cores */
	bool decode_step;  /* a decode step is one launch */
};

/* Fills c: looks up every launch of a shape that has cuts, in all buckets of M. c->given says how much of tables[0] is
 * used. */
void cuts_choose(struct cuts *c, const struct kernel_shape *s,
		 const struct tuning_cut defaults[CUT_PROGRAMS], const struct cuts_source *source);

/* Return the places of the launches of a step of T tokens. down: moe_down, otherwise moe_gate_up. */
struct tuning_place cuts_experts(const struct kernel_shape *s, uint32_t mlp, bool down, uint32_t T);
struct tuning_place cuts_attention(const struct kernel_shape *s, uint32_t T);
struct tuning_place cuts_decode_step(const struct kernel_shape *s, uint32_t T);

/* Returns the most tokens of an attention tile with this cut. */
uint32_t cuts_tile_tokens(const struct kernel_shape *s, const struct tuning_cut *cut);

/* Returns the number of the cut that launches at a place use. */
uint32_t cuts_find(const struct cuts *c, const struct tuning_place *p);

/* Writes a hash of the cuts of all places to ret, as 32 hex digits. */
void cuts_identity(const struct cuts *c, char ret[33]);
