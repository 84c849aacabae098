/* The kernels of a model on a device: compiled for its shapes, launched through checked functions.
 *
 * A model has one set of kernels. Its variant (generic, x86, nvidia) and the width of its groups (one work-item with
 * vectors of 16 floats on a CPU, 64 work-items or more on a GPU) are chosen once; callers see the same functions. An
 * element is a number of the model's type, float or bf16. The .cl files say what each kernel computes;
 * tests/kernels/reference.c has most of it as plain C.
 *
 * Launches are asynchronous on one in-order queue. The first error is kept: later launches do nothing, and
 * kernels_status returns it. So a forward pass reads as a list of launches. */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/profile.h"
#include "kernels/shape.h"
#include "kernels/tuning/tuning.h"

enum kernel_variant { KERNELS_GENERIC, KERNELS_X86, KERNELS_NVIDIA };

struct kernels;

/* Opens a set. Compiles every program that the shape needs, or loads it from cache_dir (NULL: there is no cache). A
 * program that has cuts (tuning/tuning.h) is compiled for the default cut and for the cuts that the tuning tables give
 * the launches of this shape, CUTS_MAX (tuning/cuts.h) at most in all. abilities: those of the device (probe.h); the
 * variant must be supported with them. The queue is borrowed until kernels_close. tuning: NULL is the same as zeros;
 * its table is borrowed until the return. -ENOEXEC: the driver's compiler refuses a program. -ENOMEM: host or device
 * memory is short. -EIO: another failure of driver or cache. */
int kernels_open(cl_context context, cl_device_id device, cl_command_queue queue,
		 const struct kernel_shape *shape, enum kernel_variant variant, uint32_t abilities,
		 const char *cache_dir, const struct tuning_options *tuning, struct kernels **ret,
		 struct err *e) MUST_CHECK;
void kernels_close(struct kernels *k);

/* Returns whether a program was compiled, not read from the cache, when the set was opened. The driver may then compile
 * more at the first launches. */
bool kernels_compiled(const struct kernels *k);

/* Returns 0, or the first error since the set was opened. */
int kernels_status(const struct kernels *k, struct err *e) MUST_CHECK;
uint64_t kernels_launches(const struct kernels *k);
const struct kernel_shape *kernels_shape(const struct kernels *k);

/* Returns name i in the list of all kernels, as profiles and errors show it; NULL past the last. Several kernels
 * may have the same name. */
const char *kernels_name(size_t i);

/* Turns the noting of launches (profile.h) on or off, and forgets those that were noted. It is off at first. -ENOMEM
 * is the only error. */
int kernels_profile(struct kernels *k, bool on, struct err *e) MUST_CHECK;

/* As profile_take, for the launches of this set. While noting is off it returns 0, and *ret_n is 0. */
int kernels_profile_take(struct kernels *k, const struct kernel_timing **ret, size_t *ret_n,
			 struct err *e) MUST_CHECK;

/* Operations without weights whose products a set rounds to bf16 numbers and computes on tensor cores. */
struct kernel_tensor {
	bool attention; /* of prompts */
	bool splits;	/* attention of rows that generate */
	bool delta;	/* Gated DeltaNet of prompts, but not its convolution */
};
struct kernel_tensor kernels_tensor(const struct kernels *k);

/* Returns whether launches of this set have cuts, which tuning tables can give. Those on tensor cores have none. */
bool kernels_has_cuts(const struct kernels *k);

/* Return whether a variant can run on a device with these abilities (probe.h), and the fastest variant that can.
 * generic runs on all devices, x86 needs vdpbf16ps, nvidia needs mma.sync of bf16. */
bool kernels_supported(enum kernel_variant variant, uint32_t abilities);
enum kernel_variant kernels_best_variant(uint32_t abilities);

/* Returns whether this machine's CPU has registers of 16 floats. Otherwise tiles are smaller. */
bool kernels_wide_registers(void);
const char *kernels_variant_name(enum kernel_variant variant);

/* How a matrix of weights is packed for the products of this set. A panel has the weights of 16 columns of the product,
 * in this order:
 *
 *     PANELS      [K][16] elements
 *     PAIRS       [K/2][16][2], two k together (x86, bf16)
 *     CODED       PAIRS in three quarters of the bytes (kernels/coded.h; x86 with AVX512_VBMI, bf16)
 *     FRAGMENTS   [K/16][32][8], in the order of a tensor core's A operand (nvidia, bf16): of 16 k, element e of lane l
 *                 belongs to column l/4 + 8 (e/2 % 2) and to k = 2 (l % 4) + e % 2 + 8 (e/4).
 *     QUANT       each panel has a type of its own (kernels/quant.h)
 *     STAGES      the same in the order of stages (kernels/quant_stages.h; nvidia, bf16) */
enum kernel_packing {
	KERNEL_PACK_PANELS,
	KERNEL_PACK_PAIRS,
	KERNEL_PACK_FRAGMENTS,
	KERNEL_PACK_CODED,
	KERNEL_PACK_QUANT,
	KERNEL_PACK_STAGES
};
enum kernel_packing kernels_packing(const struct kernels *k);

/* Returns whether matrices of that packing are of panels that have types of their own. */
static inline bool kernel_packing_has_types(enum kernel_packing p)
{
	return p == KERNEL_PACK_QUANT || p == KERNEL_PACK_STAGES;
}

/* Returns the packing of panels of plain weights: that of the set, but for QUANT and STAGES, whose plain panels have
 * one of the others. */
enum kernel_packing kernels_plain_packing(const struct kernels *k);

/* Returns the floats of scratch that kernel_delta_prefill needs for T tokens in so many rows, 0 for a shape without
 * delta layers. */
uint64_t kernels_delta_scratch(const struct kernels *k, uint32_t T, uint32_t rows);

/* Returns the bytes of a number of q, k and v between kernel_delta_conv and kernel_delta_prefill: 2 for bf16, 4 for
 * float. */
uint32_t kernels_delta_input_bytes(const struct kernels *k);

/* Returns the most splits (kernels/step.h) that one call of kernel_attention_decode takes. The longest sequence does
 * not have more. Returns 0 where kernel_attention computes all rows: on a CPU, and on a GPU whose local memory is too
 * small for a split of all query heads of a KV head (48 KiB for less than 32 heads of 128). 0, too, for a shape without
 * attention layers. */
uint32_t kernels_split_slots(const struct kernels *k);

/* Returns the most tokens of a step. UINT32_MAX: the kernels have no limit of their own. */
uint32_t kernels_most_tokens(const struct kernels *k);

/* Return the floats of scratch that one draw, or one score, needs (kernels/sample.h). */
uint64_t kernels_sample_floats(const struct kernel_shape *s);
uint64_t kernels_score_floats(const struct kernel_shape *s);

/* Return the most tasks (kernels/step.h) that moe_sort writes for so many tokens, and the number of ints of a list with
 * room for these tasks. */
uint64_t kernels_max_tasks(const struct kernel_mlp *m, uint32_t T);
uint64_t kernels_task_ints(const struct kernel_mlp *m, uint32_t n_tokens);

/* Returns whether decode steps can run as one launch (decode_step.cl): not with two kinds of MLPs, and not if the shape
 * has `dump` or `separate_launches`. On a GPU only the nvidia variant in bf16 can, for shapes without sliding windows,
 * `out_norms` and `kv_int8` that fit its groups (set.c). */
bool kernels_has_decode_step(const struct kernels *k);

/* Returns the most rows of such a step, UINT32_MAX if there is no limit. */
uint32_t kernels_decode_rows(const struct kernels *k);

/* Returns whether such a step runs on a GPU, where all of its groups run at the same time (struct decode_cut in
 * engine/layers/phases.h). */
bool kernels_decode_resident(const struct kernels *k);

/* Says how kernel_decode_step of T tokens divides a product into the parts of a phase (kernels/step.h): the columns and
 * rows of a part, and the columns of a part of the router's product. A part of the router's product has one row. */
void kernels_decode_cut(const struct kernels *k, uint32_t T, uint32_t *ret_columns,
			uint32_t *ret_rows, uint32_t *ret_router_columns);

/* Return the most tokens that an attention tile (kernels/step.h) may have in a step of T tokens, and the smallest of
 * these numbers over all T and the default cut. */
uint32_t kernels_tile_tokens(const struct kernels *k, uint32_t T);
uint32_t kernels_least_tile_tokens(const struct kernels *k);

/* Parses the tuning table that is built into this program, for the caller to free (tuning_free). */
int kernels_built_in_table(struct tuning_table **ret, struct err *e) MUST_CHECK;

/* Returns whether launches at a place (tuning.h) use another cut than the default one. */
bool kernels_tuned(const struct kernels *k, const struct tuning_place *p);

/* Returns the place (tuning.h) of kernel_decode_step of T tokens. */
struct tuning_place kernels_decode_place(const struct kernels *k, uint32_t T);

/* Says how much of the table that kernels_open got is in use. */
struct tuning_use kernels_tuning_use(const struct kernels *k);

/* From now on launches use the default cuts (on), or the cuts of the tables again (off), so that the two can be
 * compared. Not to be called while a step is queued, because its step table was built for certain cuts. */
void kernels_use_default_cuts(struct kernels *k, bool on);

/* Returns whether launches may give other bits than with the default cuts. If so, ret gets a name of the cuts, 32 hex
 * digits, the same for equal cuts. */
bool kernels_other_bits(const struct kernels *k, char ret[33]);

/* ---- launches; `step` is the step table, *_at are offsets into it (kernels/step.h), T a number of tokens ----
 *
 * Capitals are numbers of the shape (shape.h): D is hidden, V vocab, E an MLP's experts, F the larger one of its
 * expert_size and shared_size, HD head_dim, HK and HV the key and the value heads, DK and DV their sizes. LD(n) is
 * KERNEL_LD(n), slots kernel_mlp_slots, RL kernel_mlp_router_ld. Elements are those of the shape, and other numbers
 * floats, if nothing else is said. */

/* drawn: the result of the step before. It has the ids of tokens that are negative numbers in the step table. table
 * [V, LD(D)] elements, inv_freq [ropes, rotary_dim / 2]; out: x [T, LD(D)], rope [T, ropes, rotary_dim]. */
void kernel_embed(struct kernels *k, cl_mem step, cl_int tokens_at, cl_int positions_at,
		  cl_mem drawn, cl_mem table, cl_mem inv_freq, cl_mem x, cl_mem rope, uint32_t T);
/* rows_at: where the list of the tokens to be normed is; -1: they are 0 .. rows - 1. x [T, LD(D)], w [LD(D)]; out: h
 * [rows, LD(D)] elements, h32 the same in float. */
void kernel_rms_norm(struct kernels *k, cl_mem step, cl_int rows_at, cl_mem x, cl_mem w, cl_mem h,
		     cl_mem h32, uint32_t rows);
/* Adds the experts' outputs y [T, slots, LD(D)] to x [T, LD(D)], by weights [T, topk] and the gate in router [T, RL];
 * then norms as kernel_rms_norm. out_w [LD(D)]: the weights of the norm of what is added, NULL without out_norms. dump
 * [T, LD(D)]: gets the sums if the shape has `dump`. */
void kernel_combine_norm(struct kernels *k, uint32_t mlp, cl_mem x, cl_mem y, cl_mem weights,
			 cl_mem router, cl_mem out_w, cl_mem w, cl_mem h, cl_mem h32, cl_mem dump,
			 uint32_t T);

/* The same for a mixer's output y [T, LD(D)], which is normed and added to x; with out_norms alone. */
void kernel_add_norm(struct kernels *k, cl_mem x, cl_mem y, cl_mem out_w, cl_mem w, cl_mem h,
		     cl_mem h32, cl_mem dump, uint32_t T);

/* C [M, ldc] = A [M, lda] W, or C += A W; C is floats, N and K are multiples of 16. router: the router's product, whose
 * A and W are floats, whatever the elements are. dump: gets A W if the shape has `dump`. */
void kernel_gemm_store(struct kernels *k, bool router, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
		       uint32_t ldc, uint32_t M, uint32_t N, uint32_t K);
void kernel_gemm_add(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		     uint32_t M, uint32_t N, uint32_t K, cl_mem dump);

/* The product of a mixer (attention, Gated DeltaNet) with a projection: C = A W, or with add C += A W; the rest as
 * above. The last `generating` of the M rows are rows that generate: on tensor cores they have an order of additions of
 * their own (nvidia/tensor.clh). dump, parts: of add alone. parts: work space of kernels_parts_bytes bytes for
 * `generating` rows; NULL: the product does without, and may take longer. */
void kernel_project(struct kernels *k, bool add, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
		    uint32_t ldc, uint32_t M, uint32_t generating, uint32_t N, uint32_t K,
		    cl_mem dump, cl_mem parts);
/* Returns the bytes of `parts` that suffice for at most so many generating rows. 0: no such product needs any. */
uint64_t kernels_parts_bytes(const struct kernels *k, uint32_t N, uint32_t K, uint32_t rows);

/* Chooses the experts of each token and sorts the rows by expert. router [T, RL], logits; out: experts
 * [T, topk] int, weights [T, topk], rows [T * slots] int, tasks [kernels_task_ints] int. */
void kernel_moe_route(struct kernels *k, uint32_t mlp, cl_mem router, cl_mem experts,
		      cl_mem weights, cl_mem rows, cl_mem tasks, uint32_t T);
/* The two products of an MLP. h [T, LD(D)] elements; experts, shared: packed matrices, [2 LD(expert_size), D] each and
 * [2 LD(shared_size), D] in gate_up, [D, expert_size] and [D, shared_size] in down; tasks, rows: of kernel_moe_route;
 * act [T * slots, LD(F)] elements, out of gate_up and into down; out: y [T * slots, LD(D)]. */
void kernel_moe_gate_up(struct kernels *k, uint32_t mlp, cl_mem h, cl_mem experts, cl_mem shared,
			cl_mem tasks, cl_mem rows, cl_mem act, uint32_t T);
void kernel_moe_down(struct kernels *k, uint32_t mlp, cl_mem act, cl_mem experts, cl_mem shared,
		     cl_mem tasks, cl_mem rows, cl_mem y, uint32_t T);

/* Norms and turns q and k, and writes k and v to their pages. proj [T, kernels_attention_ld(shape)]; biases
 * [kernels_attention_ld(shape)], NULL without qkv_bias; wq and wk [HD], NULL without qk_norm; rope [T, ropes,
 * rotary_dim]; sliding: the layer has a sliding window, here and below; out: q [T, heads * HD], and the pages
 * (generic/attention.clh). kernel_attention reads these; out [T, heads * HD] elements. n_tiles: tiles at tiles_at. */
void kernel_attention_prepare(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
			      cl_mem proj, cl_mem biases, cl_mem wq, cl_mem wk, cl_mem rope,
			      cl_mem q, cl_mem k_pages, cl_mem v_pages, bool sliding, uint32_t T);
void kernel_attention(struct kernels *k, cl_mem step, cl_int rows_at, cl_int tiles_at, cl_mem proj,
		      cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem out, bool sliding,
		      uint32_t n_tiles, uint32_t T);

/* Computes attention of n_rows rows that generate, from first_row on. Their keys are cut into n_splits splits, listed
 * at splits_at. partial [kernels_split_slots, heads, HD] and stats [kernels_split_slots, heads, 2]: work space
 * (attention_decode.cl). The rest as above. */
void kernel_attention_decode(struct kernels *k, cl_mem step, cl_int rows_at, cl_int splits_at,
			     uint32_t n_splits, uint32_t first_row, uint32_t n_rows, cl_mem proj,
			     cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem partial, cl_mem stats,
			     cl_mem out, bool sliding);

/* Makes the n page copies at copies_at, for shapes with a sliding window. k_pages, v_pages: in and out. */
void kernel_copy_pages(struct kernels *k, cl_mem step, cl_int copies_at, uint32_t n, cl_mem k_pages,
		       cl_mem v_pages);

/* proj [T, kernels_delta_ld(shape)], conv_w [conv, channels], neg_a and dt_bias [HV], ring [slots, conv, channels],
 * channels = 2 HK DK + HV DV; out: qs and ks [T, HK * DK], vs [T, HV * DV] (kernels_delta_input_bytes a number), gates
 * [T, HV, 2]. */
void kernel_delta_conv(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
		       cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias, cl_mem ring,
		       cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates, uint32_t T);
/* Computes the first n_rows rows of the step, which have T tokens in all, from the numbers of kernel_delta_conv. vs may
 * be overwritten (delta_chunks.cl does so). norm_w [DV]; ring as above, state [slots, HV, DK, DV], in and out; work
 * [kernels_delta_scratch] floats; out [T, HV * DV] elements. */
void kernel_delta_prefill(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t n_rows,
			  uint32_t T, cl_mem proj, cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates,
			  cl_mem norm_w, cl_mem ring, cl_mem state, cl_mem work, cl_mem out);
/* Computes n_rows rows of one token each, from first_row on; the arguments as above. */
void kernel_delta_decode(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t first_row,
			 uint32_t n_rows, cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias,
			 cl_mem norm_w, cl_mem ring, cl_mem state, cl_mem out);

/* Makes n_draws draws. logits [rows, LD(V)], work [n_draws, kernels_sample_floats], counts [seats, V] uint, in and out;
 * out: result (kernels/step.h). */
void kernel_sample(struct kernels *k, cl_mem step, cl_int draws_at, cl_mem logits, cl_mem work,
		   cl_mem counts, cl_mem result, uint32_t n_draws);
/* Computes log-probabilities of n given tokens. Score i at scores_at names a token; row i of logits [n, LD(V)] belongs
 * to it. work [n, kernels_score_floats]. */
void kernel_score(struct kernels *k, cl_mem step, cl_int scores_at, cl_mem logits, cl_mem work,
		  cl_mem result, uint32_t n);
/* Copies the first n rows of a matrix [rows, LD(V)] of floats to host [n, V], which belongs to the copy until commands
 * that were queued later have run. */
void kernels_read_rows(struct kernels *k, cl_mem matrix, uint32_t n, uint32_t V, float *host);
/* Waits for all that was queued and copies the first bytes of a buffer to the host. False: an error, which is kept. */
bool kernels_read(struct kernels *k, cl_mem buffer, size_t bytes, void *host) MUST_CHECK;
/* Sets the counts [seats, V] of the n seats that the resets at resets_at name (kernels/step.h). */
void kernel_seat_reset(struct kernels *k, cl_mem step, cl_int resets_at, cl_mem counts, uint32_t n);
/* Adds hidden states to sums, for n poolings at poolings_at; writes the finished sums to result. */
void kernel_pool(struct kernels *k, cl_mem step, cl_int poolings_at, cl_mem h32, cl_mem sums,
		 cl_mem result, uint32_t n);

/* Writes the device address of a buffer to addresses[i], a ulong, for kernel_decode_step (kernels/step.h: AT_*). */
void kernel_address(struct kernels *k, cl_mem buffer, cl_mem addresses, uint32_t i);

/* Runs the work list at work_at of the step table (kernels/step.h), of T tokens, kernels_decode_rows at most.
 * addresses: those that kernel_address wrote. */
void kernel_decode_step(struct kernels *k, cl_mem step, cl_int work_at, cl_mem addresses,
			uint32_t T);

/* Fills a packed matrix, or some panels of one, with synthetic weights (synthetic.clh): rows x cols elements before
 * packing. The p-th panel that is filled (p from 0) is panel first_panel + p * stride of W. If the set uses CODED, the
 * panels are written as PAIRS, and the host codes them afterwards. */
void kernel_synthesize(struct kernels *k, cl_mem W, uint64_t first_panel, uint32_t stride,
		       uint64_t rows, uint64_t cols, uint64_t key, float scale, float offset);

/* Fills a row-major table [rows, KERNEL_LD(cols)] of elements with synthetic weights. */
void kernel_synthesize_rows(struct kernels *k, cl_mem table, uint64_t rows, uint64_t cols,
			    uint64_t key, float scale, float offset);
