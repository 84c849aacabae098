/* The kernels of a model on a device: compiled for its shapes, launched through checked functions.
 *
 * A model has one set of kernels. Its variant (generic, x86, nvidia) and the device's width (one work-item with
 * float16 vectors on a CPU, 64 lanes on a GPU) are chosen once; callers see the same functions. The .cl files say
 * what each kernel computes; tests/kernels/reference.c has it as plain C.
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

/* New. Compiles (or loads) every program, also the programs of cuts that the tuning tables name for this shape. The
 * queue is borrowed. tuning: NULL is zeros; its table is borrowed until the return. */
int kernels_open(cl_context context, cl_device_id device, cl_command_queue queue,
		 const struct kernel_shape *shape, enum kernel_variant variant,
		 const char *cache_dir, const struct tuning_options *tuning, struct kernels **ret,
		 struct err *e) MUST_CHECK;
void kernels_close(struct kernels *k);

/* Returns 0, or the first error since the set was opened. */
int kernels_status(const struct kernels *k, struct err *e) MUST_CHECK;
uint64_t kernels_launches(const struct kernels *k);
const struct kernel_shape *kernels_shape(const struct kernels *k);

/* The name of kernel i of any set, as profiles and errors have it; NULL past the last. */
const char *kernels_name(size_t i);

/* Turns the noting of launches (profile.h) on or off. It is off at first. */
int kernels_profile(struct kernels *k, bool on, struct err *e) MUST_CHECK;

/* profile_take of the set; no launches while noting is off. */
int kernels_profile_take(struct kernels *k, const struct kernel_timing **ret, size_t *ret_n,
			 struct err *e) MUST_CHECK;

/* Compiles the int8 products of a set, for groups of so many values (int8.h). To be called before their first launch;
 * models without quantised weights do not need them. A second call for the same group does nothing. -EINVAL: the
 * group is not allowed, or the set has products of another group. */
int kernels_open_int8(struct kernels *k, const char *cache_dir, uint32_t group,
		      struct err *e) MUST_CHECK;

/* Whether a variant can run on a device. x86 needs AVX512_BF16 and a CPU device that is this process's processor;
 * nvidia needs an NVIDIA device of compute capability 8.0 or later. */
bool kernels_supported(enum kernel_variant variant, cl_device_id device);
const char *kernels_variant_name(enum kernel_variant variant);

/* The packing of GEMM weights for this set: panels of 16 columns of the product, inside which
 *
 *     PANELS      [K][16] elements
 *     PAIRS       [K/2][16][2], two k together (x86, bf16)
 *     CODED       PAIRS in three quarters of the bytes (kernels/coded.h; x86 with AVX512_VBMI, bf16)
 *     FRAGMENTS   [K/16][32][8], in the order of a tensor core's A operand (nvidia, bf16): lane l holds
 *                 elements e of row l/4 + 8 (e/2 % 2), k = 2 (l % 4) + e % 2 + 8 (e/4). */
enum kernel_packing {
	KERNEL_PACK_PANELS,
	KERNEL_PACK_PAIRS,
	KERNEL_PACK_FRAGMENTS,
	KERNEL_PACK_CODED
};
enum kernel_packing kernels_packing(const struct kernels *k);

/* Floats of scratch that kernel_delta_prefill needs for T tokens in so many rows; ints of moe_sort's task list for n
 * tokens. */
uint64_t kernels_delta_scratch(const struct kernels *k, uint32_t T, uint32_t rows);
uint64_t kernels_task_ints(const struct kernel_mlp *m, uint32_t n_tokens);

/* Splits that a batch of attention_decode.cl can have: those of the longest sequence, or more. 0 on a CPU, where attention
 * takes rows that generate in tiles, as all others. */
uint32_t kernels_split_slots(const struct kernels *k);

/* Floats of scratch that one draw or one score needs. */
uint64_t kernels_sample_floats(const struct kernel_shape *s);

/* The most tasks that moe_sort writes for T tokens. */
uint64_t kernels_max_tasks(const struct kernel_mlp *m, uint32_t T);

/* The first: whether a decode step can run as one launch (decode_step.cl); it cannot with two kinds of MLPs, while
 * dumping, or on a GPU. The second: the parts of its products: columns, rows, and columns of the router's product. */
bool kernels_has_decode_step(const struct kernels *k);
void kernels_decode_cut(const struct kernels *k, uint32_t T, uint32_t *ret_columns,
			uint32_t *ret_rows, uint32_t *ret_router_columns);

/* Tokens of one attention tile in a step of T tokens, and the least in any step. */
uint32_t kernels_tile_tokens(const struct kernels *k, uint32_t T);
uint32_t kernels_least_tile_tokens(const struct kernels *k);

/* New: the tuning table that is built into this program. */
int kernels_built_in_table(struct tuning_table **ret, struct err *e) MUST_CHECK;

/* Whether launches at a place (tuning.h) use another cut than the default one. */
bool kernels_tuned(const struct kernels *k, const struct tuning_place *p);

/* The place of kernel_decode_step of T tokens in a tuning table. */
struct tuning_place kernels_decode_place(const struct kernels *k, uint32_t T);

/* How much of the given table is in use. */
struct tuning_use kernels_tuning_use(const struct kernels *k);

/* From now on launches use the default cuts (on), or the cuts of the tables again (off), so that the two can be
 * compared. Not while a step is queued whose table was built for the other cuts. */
void kernels_use_default_cuts(struct kernels *k, bool on);

/* Whether launches may give other bits than with the default cuts. *ret then has a name of the cuts, the same for
 * equal cuts. */
bool kernels_other_bits(const struct kernels *k, char ret[33]);

/* ---- launches; `step` is the step table (kernels/step.h), *_at are offsets into it, T a number of tokens ---- */

/* `drawn`: the results of the step before, for tokens that it drew (negative numbers in the step table). */
void kernel_embed(struct kernels *k, cl_mem step, cl_int tokens_at, cl_int positions_at,
		  cl_mem drawn, cl_mem table, cl_mem inv_freq, cl_mem x, cl_mem rope, uint32_t T);
void kernel_rms_norm(struct kernels *k, cl_mem step, cl_int rows_at, cl_mem x, cl_mem w, cl_mem h,
		     cl_mem h32, uint32_t rows);
void kernel_combine_norm(struct kernels *k, uint32_t mlp, cl_mem x, cl_mem y, cl_mem weights,
			 cl_mem router, cl_mem w, cl_mem h, cl_mem h32, cl_mem dump, uint32_t T);

/* C [M, ldc] (+)= A [M, lda] W; N and K padded to 16. router: all in float whatever the elements are. */
void kernel_gemm_store(struct kernels *k, bool router, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
		       uint32_t ldc, uint32_t M, uint32_t N, uint32_t K);
void kernel_gemm_add(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		     uint32_t M, uint32_t N, uint32_t K, cl_mem dump);

/* Quantises rows of x [rows, ldx], of elements or floats, to int8: q [rows, ldq], ldq in words (int8_row_words). K
 * padded to 16, with zeros in x. */
void kernel_quantize_rows(struct kernels *k, bool floats, cl_mem x, uint32_t ldx, cl_mem q,
			  uint32_t ldq, uint32_t rows, uint32_t K);

/* The products of kernel_gemm_store and kernel_gemm_add, of quantised rows, A [M, lda] words, and weights packed by
 * int8_pack_panel. */
void kernel_gemm_int8_store(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
			    uint32_t ldc, uint32_t M, uint32_t N, uint32_t K);
void kernel_gemm_int8_add(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
			  uint32_t ldc, uint32_t M, uint32_t N, uint32_t K, cl_mem dump);

void kernel_moe_route(struct kernels *k, uint32_t mlp, cl_mem router, cl_mem experts,
		      cl_mem weights, cl_mem rows, cl_mem tasks, uint32_t T);
void kernel_moe_gate_up(struct kernels *k, uint32_t mlp, cl_mem h, cl_mem experts, cl_mem shared,
			cl_mem tasks, cl_mem rows, cl_mem act, uint32_t T);
void kernel_moe_down(struct kernels *k, uint32_t mlp, cl_mem act, cl_mem experts, cl_mem shared,
		     cl_mem tasks, cl_mem rows, cl_mem y, uint32_t T);

void kernel_attention_prepare(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
			      cl_mem proj, cl_mem wq, cl_mem wk, cl_mem rope, cl_mem q,
			      cl_mem k_pages, cl_mem v_pages, uint32_t T);
void kernel_attention(struct kernels *k, cl_mem step, cl_int rows_at, cl_int tiles_at, cl_mem proj,
		      cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem out, uint32_t n_tiles,
		      uint32_t T);

/* A batch: so many splits at splits_at, of n_rows rows from first_row on.
 * partial, stats: for kernels_split_slots. */
void kernel_attention_decode(struct kernels *k, cl_mem step, cl_int rows_at, cl_int splits_at,
			     uint32_t n_splits, uint32_t first_row, uint32_t n_rows, cl_mem proj,
			     cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem partial, cl_mem stats,
			     cl_mem out);

void kernel_delta_conv(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
		       cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias, cl_mem ring,
		       cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates, uint32_t T);
/* T tokens in n_rows rows, the first of the step. On a GPU vs is overwritten. */
void kernel_delta_prefill(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t n_rows,
			  uint32_t T, cl_mem proj, cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates,
			  cl_mem norm_w, cl_mem ring, cl_mem state, cl_mem work, cl_mem out);
void kernel_delta_decode(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t first_row,
			 uint32_t n_rows, cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias,
			 cl_mem norm_w, cl_mem ring, cl_mem state, cl_mem out);

void kernel_sample(struct kernels *k, cl_mem step, cl_int draws_at, cl_mem logits, cl_mem work,
		   cl_mem counts, cl_mem result, uint32_t n_draws);
/* Log-probabilities of n given tokens: of token i of the table, behind row i of logits. */
void kernel_score(struct kernels *k, cl_mem step, cl_int scores_at, cl_mem logits, cl_mem work,
		  cl_mem result, uint32_t n);
void kernel_seat_reset(struct kernels *k, cl_mem step, cl_int resets_at, cl_mem counts, uint32_t n);

/* Writes the address of a buffer to addresses[i], for decode_step. */
void kernel_address(struct kernels *k, cl_mem buffer, cl_mem addresses, uint32_t i);

/* Runs the work list at work_at of the step table (kernels/step.h), of T tokens. */
void kernel_decode_step(struct kernels *k, cl_mem step, cl_int work_at, cl_mem addresses,
			uint32_t T);

/* Fills one packed matrix, or a part of one, with synthetic weights (synthetic.clh): rows x cols logical elements;
 * panel p of the part is panel first + p * stride of W. In the order of PAIRS if the set uses CODED. */
void kernel_synthesize(struct kernels *k, cl_mem W, uint64_t first_panel, uint32_t stride,
		       uint64_t rows, uint64_t cols, uint64_t key, float scale, float offset);

/* Fills a row-major table [rows, LD(cols)] of elements likewise. */
void kernel_synthesize_rows(struct kernels *k, cl_mem table, uint64_t rows, uint64_t cols,
			    uint64_t key, float scale, float offset);
