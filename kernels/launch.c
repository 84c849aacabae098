/* Launches kernels. Each launch sets all arguments of its kernel, although some may be set already. Arguments are few,
 * and a test would not notice an argument that is left as an earlier launch set it. */
#include "kernels/kernels_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/cl_error.h"
#include "kernels/sample.h"
#include "kernels/step.h"

/* Notes a launch of x by y groups in k->profile, which is not NULL. Returns the place for its event; NULL: out of
 * memory. */
static cl_event *note_launch(struct kernels *k, int id, uint64_t x, uint64_t y)
{
	const int a_set = K_END_OF_FIRST_MLP - K_COMBINE_NORM;
	int of_mlp = id < K_COMBINE_NORM ? -1 : id < K_END_OF_FIRST_MLP ? id : id - a_set;
	uint32_t mlp = of_mlp < 0 ? 0 : (uint32_t)((id - of_mlp) / a_set);
	bool tensor = id == K_ATTENTION_FLASH || id == K_DELTA_CHUNK_TENSOR ||
		      id == K_DELTA_SCAN_TENSOR || id == K_DELTA_OUT_TENSOR ||
		      (id == K_ATTENTION_SPLIT && kernels_has_tensor_splits(k));

	return profile_launch(k->profile, k->names[id], x, y,
			      of_mlp >= 0 && !k->shape.mlps[mlp].experts, tensor,
			      of_mlp == K_MOE_SORT || of_mlp == K_MOE_GATE_UP ||
				      of_mlp == K_MOE_DOWN || of_mlp == K_GATE_UP_WIDE ||
				      of_mlp == K_DOWN_WIDE);
}

/* ---- launching ---- */

struct arg {
	size_t size;
	const void *value;
};

#define ARG(x)                  \
	{                       \
		sizeof(x), &(x) \
	}

/* Queues x by y groups of `lanes` work-items. Does nothing if x or y is 0, or after an error. */
static void launch(struct kernels *k, uint32_t cut, int id, uint32_t lanes, uint64_t x, uint64_t y,
		   const struct arg *args, size_t n)
{
	cl_kernel kernel = k->kernels[cut][id];
	size_t local[2] = {lanes, 1}, global[2] = {x * lanes, y};
	cl_int code = CL_SUCCESS;

	if (k->error.code || !x || !y)
		return;
	assert(kernel);
	for (size_t i = 0; i < n && code == CL_SUCCESS; i++)
		code = clSetKernelArg(kernel, (cl_uint)i, args[i].size, args[i].value);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(k->queue, kernel, 2, NULL, global, local, 0, NULL,
					      k->profile ? note_launch(k, id, x, y) : NULL);
	k->launches++;
	if (code != CL_SUCCESS)
		cl_error(&k->error, code, k->names[id]);
}

#define LAUNCH_CUT(k, cut, id, lanes, x, y, ...)                           \
	do {                                                               \
		const struct arg args_[] = {__VA_ARGS__};                  \
		launch(k, cut, id, lanes, x, y, args_, ARRAY_SIZE(args_)); \
	} while (0)

#define LAUNCH(k, id, x, y, ...) LAUNCH_CUT(k, 0, id, (k)->lanes[id], x, y, __VA_ARGS__)

void kernel_embed(struct kernels *k, cl_mem step, cl_int tokens_at, cl_int positions_at,
		  cl_mem drawn, cl_mem table, cl_mem inv_freq, cl_mem x, cl_mem rope, uint32_t T)
{
	LAUNCH(k, K_EMBED, T, 1, ARG(step), ARG(tokens_at), ARG(positions_at), ARG(drawn),
	       ARG(table), ARG(inv_freq), ARG(x), ARG(rope));
}

void kernel_rms_norm(struct kernels *k, cl_mem step, cl_int rows_at, cl_mem x, cl_mem w, cl_mem h,
		     cl_mem h32, uint32_t rows)
{
	LAUNCH(k, K_RMS_NORM, rows, 1, ARG(step), ARG(rows_at), ARG(x), ARG(w), ARG(h), ARG(h32));
}

void kernel_combine_norm(struct kernels *k, uint32_t mlp, cl_mem x, cl_mem y, cl_mem weights,
			 cl_mem router, cl_mem out_w, cl_mem w, cl_mem h, cl_mem h32, cl_mem dump,
			 uint32_t T)
{
	LAUNCH(k, MLP_KERNEL(K_COMBINE_NORM, mlp), T, 1, ARG(x), ARG(y), ARG(weights), ARG(router),
	       ARG(out_w), ARG(w), ARG(h), ARG(h32), ARG(dump));
}

void kernel_add_norm(struct kernels *k, cl_mem x, cl_mem y, cl_mem out_w, cl_mem w, cl_mem h,
		     cl_mem h32, cl_mem dump, uint32_t T)
{
	LAUNCH(k, K_ADD_NORM, T, 1, ARG(x), ARG(y), ARG(out_w), ARG(w), ARG(h), ARG(h32),
	       ARG(dump));
}

/* Returns the number of groups that cover N columns of K terms. On tensor cores the two warps of a group share a panel
 * of 16 columns if K is several chains, and have a panel each if K is one chain (nvidia/tensor.clh). */
static uint64_t column_groups(const struct kernels *k, uint32_t cut, uint32_t N, uint32_t K)
{
	if (kernels_on_tensor_cores(k))
		return K > CHAIN_TERMS ? N / 16 : CEIL_DIV(N, 32u);
	return CEIL_DIV(N, k->tuning->lanes * k->tuning->vec * k->cuts.of[CUT_GEMM][cut].blocks);
}

static uint64_t row_blocks(const struct kernels *k, uint32_t cut, uint32_t M)
{
	return CEIL_DIV(M, k->cuts.of[CUT_GEMM][cut].row_block);
}

static void note_product(struct kernels *k, uint32_t M, uint32_t N, uint32_t K)
{
	if (k->profile && M && N && !k->error.code)
		profile_product(k->profile, M, N, K);
}

/* Note what the last launch of attention computes (profile.h): that of prompts in n tiles, which may be 0, and that of
 * n rows that generate. */
static void note_prompts(struct kernels *k, uint32_t n, bool sliding)
{
	if (k->profile && n && !k->error.code && sliding)
		profile_sliding(k->profile);
}

static void note_rows(struct kernels *k, uint32_t first, uint32_t n, bool sliding)
{
	if (!k->profile || k->error.code)
		return;
	profile_rows(k->profile, first, n);
	if (sliding)
		profile_sliding(k->profile);
}

/* Notes the last launch's place (tuning.h) in k->profile. Does nothing while launches are not noted. */
static void note_place(struct kernels *k, const struct tuning_place *p)
{
	if (k->profile && !k->error.code)
		profile_place(k->profile, p);
}

/* Returns whether the device has wgmma, and a product of so many rows and of sums of K terms suits gemm_wide.cl. */
static bool is_wide(const struct kernels *k, uint32_t rows, uint32_t K)
{
	return k->wgmma && rows > WIDE_ABOVE && K % WIDE_TERMS == 0;
}

/* Computes C = A W, or C += A W, by gemm_wide.cl: one launch for each chain of CHAIN_TERMS terms. */
static void gemm_wide(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		      uint32_t M, uint32_t N, uint32_t K, enum kernel_id id)
{
	uint64_t tiles =
		(uint64_t)CEIL_DIV(M, (uint32_t)WIDE_TOKENS) * CEIL_DIV(N, (uint32_t)WIDE_COLUMNS);

	for (cl_uint k0 = 0; k0 < K; k0 += CHAIN_TERMS) {
		cl_uint add = id == K_GEMM_ADD_WIDE || k0;

		LAUNCH(k, id, tiles, 1, ARG(A), ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N),
		       ARG(K), ARG(k0), ARG(add));
		note_product(k, M, N, MIN(K - k0, (uint32_t)CHAIN_TERMS));
	}
}

/* Computes the columns of a router's product from panel `first` on by router_few (router.cl). */
static void router_few(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		       uint32_t M, uint32_t N, uint32_t K, uint32_t first)
{
	LAUNCH(k, K_ROUTER_FEW, N / 16 - first, CEIL_DIV(M, (uint32_t)ROUTER_FEW_ROWS), ARG(A),
	       ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N), ARG(K), ARG(first));
	note_product(k, M, N - first * 16, K);
}

static void router(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		   uint32_t M, uint32_t N, uint32_t K)
{
	const bool gpu = k->tuning->lanes > 1, tall = gpu && M >= ROUTER_TALL_LEAST;
	const uint32_t rows = tall ? 2 * ROUTER_ROWS : ROUTER_ROWS;
	/* A single panel behind whole groups of columns, such as that of the shared expert's gate, would cost as much
	 * as a whole group. */
	const uint32_t left = gpu && N > ROUTER_COLUMNS && N % ROUTER_COLUMNS == 16 ? 16 : 0;

	if (gpu && M <= ROUTER_FEW_MOST) {
		router_few(k, A, lda, W, C, ldc, M, N, K, 0);
		return;
	}
	N -= left;
	LAUNCH(k, tall ? K_ROUTER_TALL : K_ROUTER_GEMM,
	       gpu ? CEIL_DIV(N, (uint32_t)ROUTER_COLUMNS) : column_groups(k, 0, N, K),
	       gpu ? CEIL_DIV(M, rows) : row_blocks(k, 0, M), ARG(A), ARG(lda), ARG(W), ARG(C),
	       ARG(ldc), ARG(M), ARG(N), ARG(K));
	note_product(k, M, N, K);
	if (left)
		router_few(k, A, lda, W, C, ldc, M, N + left, K, N / 16);
}

void kernel_gemm_store(struct kernels *k, bool of_router, cl_mem A, uint32_t lda, cl_mem W,
		       cl_mem C, uint32_t ldc, uint32_t M, uint32_t N, uint32_t K)
{
	struct tuning_place p = tuning_place_of(TUNING_PRODUCT, N, K, M);
	uint32_t cut = cuts_find(&k->cuts, &p);

	if (of_router) {
		router(k, A, lda, W, C, ldc, M, N, K);
		return;
	}
	if (is_wide(k, M, K)) {
		gemm_wide(k, A, lda, W, C, ldc, M, N, K, K_GEMM_STORE_WIDE);
		return;
	}
	LAUNCH_CUT(k, cut, K_GEMM_STORE, k->tuning->lanes, column_groups(k, cut, N, K),
		   row_blocks(k, cut, M), ARG(A), ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M),
		   ARG(N), ARG(K));
	note_product(k, M, N, K);
	note_place(k, &p);
}

void kernel_gemm_add(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		     uint32_t M, uint32_t N, uint32_t K, cl_mem dump)
{
	struct tuning_place p = tuning_place_of(TUNING_PRODUCT, N, K, M);
	uint32_t cut = cuts_find(&k->cuts, &p);

	if (is_wide(k, M, K) && !k->shape.dump) {
		gemm_wide(k, A, lda, W, C, ldc, M, N, K, K_GEMM_ADD_WIDE);
		return;
	}
	LAUNCH_CUT(k, cut, K_GEMM_ADD, k->tuning->lanes, column_groups(k, cut, N, K),
		   row_blocks(k, cut, M), ARG(A), ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M),
		   ARG(N), ARG(K), ARG(dump));
	note_product(k, M, N, K);
	note_place(k, &p);
}

/* Returns how many tiles gemm_wide_parts and gemm_split have. */
static uint64_t part_tiles(uint32_t rows, uint32_t N)
{
	return (uint64_t)CEIL_DIV(rows, (uint32_t)PART_TOKENS) *
	       CEIL_DIV(N, (uint32_t)WIDE_COLUMNS);
}

/* Computes rows first .. M - 1 of C = A W, or of C += A W with `add`, by gemm_wide_parts. */
static void gemm_wide_parts(struct kernels *k, bool add, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
			    uint32_t ldc, uint32_t first, uint32_t M, uint32_t N, uint32_t K)
{
	uint64_t tiles = part_tiles(M - first, N);

	for (cl_uint k0 = 0; k0 < K; k0 += CHAIN_TERMS) {
		cl_uint adds = add || k0;

		LAUNCH(k, add ? K_GEMM_ADD_WIDE_PARTS : K_GEMM_STORE_WIDE_PARTS, tiles, 1, ARG(A),
		       ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N), ARG(K), ARG(k0),
		       ARG(adds), ARG(first));
		note_product(k, M - first, N, MIN(K - k0, (uint32_t)CHAIN_TERMS));
	}
}

/* Returns how many parts the sums of K terms have. */
static uint32_t parts_of(uint32_t K)
{
	return CEIL_DIV(K, (uint32_t)PART_TERMS);
}

uint64_t kernels_parts_bytes(const struct kernels *k, uint32_t N, uint32_t K, uint32_t rows)
{
	if (!is_wide(k, rows, K) || k->shape.dump)
		return 0;
	return (uint64_t)MIN(rows, (uint32_t)GEMM_SPLIT_MOST) * N * parts_of(K) * sizeof(float);
}

/* Computes rows first .. M - 1 of C += A W as gemm_wide_parts does, with a group for each part. */
static void gemm_split(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		       uint32_t first, uint32_t M, uint32_t N, uint32_t K, cl_mem parts)
{
	uint32_t rows = M - first;

	LAUNCH(k, K_GEMM_SPLIT, part_tiles(rows, N), parts_of(K), ARG(A), ARG(lda), ARG(W),
	       ARG(parts), ARG(first), ARG(M), ARG(N), ARG(K));
	note_product(k, rows, N, K);
	LAUNCH(k, K_GEMM_SUM_PARTS, CEIL_DIV(N, 4u * WIDE_LANES), rows, ARG(parts), ARG(C),
	       ARG(ldc), ARG(first), ARG(M), ARG(N), ARG(K));
	note_product(k, rows, N, parts_of(K));
}

void kernel_project(struct kernels *k, bool add, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
		    uint32_t ldc, uint32_t M, uint32_t generating, uint32_t N, uint32_t K,
		    cl_mem dump, cl_mem parts)
{
	uint32_t first = kernels_on_tensor_cores(k) ? M - generating : M;
	uint64_t columns = column_groups(k, 0, N, K), blocks = row_blocks(k, 0, M - first);

	if (first && add)
		kernel_gemm_add(k, A, lda, W, C, ldc, first, N, K, dump);
	else if (first)
		kernel_gemm_store(k, false, A, lda, W, C, ldc, first, N, K);
	if (first == M)
		return;
	if (is_wide(k, M - first, K) && !(add && k->shape.dump)) {
		if (add && parts && M - first <= GEMM_SPLIT_MOST)
			gemm_split(k, A, lda, W, C, ldc, first, M, N, K, parts);
		else
			gemm_wide_parts(k, add, A, lda, W, C, ldc, first, M, N, K);
		return;
	}
	if (add)
		LAUNCH(k, K_GEMM_ADD_PARTS, columns, blocks, ARG(A), ARG(lda), ARG(W), ARG(C),
		       ARG(ldc), ARG(first), ARG(M), ARG(N), ARG(K), ARG(dump));
	else
		LAUNCH(k, K_GEMM_STORE_PARTS, columns, blocks, ARG(A), ARG(lda), ARG(W), ARG(C),
		       ARG(ldc), ARG(first), ARG(M), ARG(N), ARG(K));
	note_product(k, M - first, N, K);
}

void kernel_moe_route(struct kernels *k, uint32_t mlp, cl_mem router, cl_mem experts,
		      cl_mem weights, cl_mem rows, cl_mem tasks, uint32_t T)
{
	const struct kernel_mlp *m = &k->shape.mlps[mlp];

	if (m->experts)
		LAUNCH_CUT(k, 0, MLP_KERNEL(K_MOE_TOPK, mlp),
			   kernels_has_warp_topk(k, m) ? WARP_LANES
						       : k->lanes[MLP_KERNEL(K_MOE_TOPK, mlp)],
			   T, 1, ARG(router), ARG(experts), ARG(weights));
	LAUNCH(k, MLP_KERNEL(K_MOE_SORT, mlp), k->tuning->lanes == 1 ? 1 : m->experts + 1, 1,
	       ARG(experts), ARG(T), ARG(rows), ARG(tasks));
	if (k->profile && !k->error.code)
		profile_tasks(k->profile, tasks, kernels_task_ints(m, T), m->experts);
}

/* Returns the number of rows that an expert has on average, rounded down, or T for an MLP without experts. */
static uint32_t rows_of_task(const struct kernel_mlp *m, uint32_t T)
{
	return m->experts ? (uint32_t)((uint64_t)T * m->topk / m->experts) : T;
}

void kernel_moe_gate_up(struct kernels *k, uint32_t mlp, cl_mem h, cl_mem experts, cl_mem shared,
			cl_mem tasks, cl_mem rows, cl_mem act, uint32_t T)
{
	const struct kernel_mlp *m = &k->shape.mlps[mlp];
	uint32_t N = KERNEL_LD(MAX(m->expert_size, m->shared_size));
	struct tuning_place p = cuts_experts(&k->shape, mlp, false, T);
	uint32_t cut = cuts_find(&k->cuts, &p);

	if (is_wide(k, rows_of_task(m, T), KERNEL_LD(k->shape.hidden))) {
		LAUNCH(k, MLP_KERNEL(K_GATE_UP_WIDE, mlp), CEIL_DIV(2 * N, (uint32_t)WIDE_COLUMNS),
		       kernels_max_tasks(m, T), ARG(h), ARG(experts), ARG(shared), ARG(tasks),
		       ARG(rows), ARG(act));
		return;
	}
	/* On tensor cores a group computes the gate panel and the up panel of the same 16 columns. */
	LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_GATE_UP, mlp), k->tuning->lanes,
		   kernels_on_tensor_cores(k) ? CEIL_DIV(N, 16u) : column_groups(k, cut, N, 0),
		   kernels_max_tasks(m, T), ARG(h), ARG(experts), ARG(shared), ARG(tasks),
		   ARG(rows), ARG(act));
	note_place(k, &p);
}

void kernel_moe_down(struct kernels *k, uint32_t mlp, cl_mem act, cl_mem experts, cl_mem shared,
		     cl_mem tasks, cl_mem rows, cl_mem y, uint32_t T)
{
	const struct kernel_mlp *m = &k->shape.mlps[mlp];
	uint32_t N = KERNEL_LD(k->shape.hidden), K = KERNEL_LD(MAX(m->expert_size, m->shared_size));
	struct tuning_place p = cuts_experts(&k->shape, mlp, true, T);
	uint32_t cut = cuts_find(&k->cuts, &p);

	if (is_wide(k, rows_of_task(m, T), KERNEL_LD(m->expert_size)) &&
	    KERNEL_LD(m->shared_size) % WIDE_TERMS == 0) {
		for (cl_uint k0 = 0; k0 < K; k0 += CHAIN_TERMS) {
			LAUNCH(k, MLP_KERNEL(K_DOWN_WIDE, mlp), CEIL_DIV(N, (uint32_t)WIDE_COLUMNS),
			       kernels_max_tasks(m, T), ARG(act), ARG(experts), ARG(shared),
			       ARG(tasks), ARG(rows), ARG(y), ARG(k0));
			if (k->profile && !k->error.code)
				profile_terms(k->profile, k0, CHAIN_TERMS);
		}
		return;
	}
	LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_DOWN, mlp), k->tuning->lanes,
		   column_groups(k, cut, N, K), kernels_max_tasks(m, T), ARG(act), ARG(experts),
		   ARG(shared), ARG(tasks), ARG(rows), ARG(y));
	note_place(k, &p);
}

void kernel_attention_prepare(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
			      cl_mem proj, cl_mem biases, cl_mem wq, cl_mem wk, cl_mem rope,
			      cl_mem q, cl_mem k_pages, cl_mem v_pages, bool sliding, uint32_t T)
{
	cl_uint windowed = sliding;

	LAUNCH(k, K_ATTENTION_PREPARE, T, k->shape.heads + k->shape.kv_heads, ARG(step),
	       ARG(rows_at), ARG(token_rows_at), ARG(proj), ARG(biases), ARG(wq), ARG(wk),
	       ARG(rope), ARG(q), ARG(k_pages), ARG(v_pages), ARG(windowed));
}

void kernel_attention(struct kernels *k, cl_mem step, cl_int rows_at, cl_int tiles_at, cl_mem proj,
		      cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem out, bool sliding,
		      uint32_t n_tiles, uint32_t T)
{
	cl_uint windowed = sliding;
	struct tuning_place p = cuts_attention(&k->shape, T);

	if (kernels_has_flash(k)) {
		LAUNCH(k, K_ATTENTION_FLASH, n_tiles, k->shape.kv_heads, ARG(step), ARG(rows_at),
		       ARG(tiles_at), ARG(proj), ARG(q), ARG(k_pages), ARG(v_pages), ARG(out),
		       ARG(windowed));
		note_prompts(k, n_tiles, sliding);
		return;
	}
	LAUNCH_CUT(k, cuts_find(&k->cuts, &p), K_ATTENTION, k->tuning->lanes, n_tiles,
		   k->shape.kv_heads, ARG(step), ARG(rows_at), ARG(tiles_at), ARG(proj), ARG(q),
		   ARG(k_pages), ARG(v_pages), ARG(out), ARG(windowed));
	note_place(k, &p);
	note_prompts(k, n_tiles, sliding);
}

void kernel_attention_decode(struct kernels *k, cl_mem step, cl_int rows_at, cl_int splits_at,
			     uint32_t n_splits, uint32_t first_row, uint32_t n_rows, cl_mem proj,
			     cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem partial, cl_mem stats,
			     cl_mem out, bool sliding)
{
	cl_int first = (cl_int)first_row;
	cl_uint windowed = sliding;

	LAUNCH(k, K_ATTENTION_SPLIT, n_splits, k->shape.kv_heads, ARG(step), ARG(rows_at),
	       ARG(splits_at), ARG(q), ARG(k_pages), ARG(v_pages), ARG(partial), ARG(stats),
	       ARG(windowed));
	note_rows(k, first_row, n_rows, sliding);
	LAUNCH(k, K_ATTENTION_COMBINE, n_rows, k->shape.heads, ARG(step), ARG(rows_at), ARG(first),
	       ARG(proj), ARG(partial), ARG(stats), ARG(out), ARG(windowed));
	note_rows(k, first_row, n_rows, sliding);
}

void kernel_copy_pages(struct kernels *k, cl_mem step, cl_int copies_at, uint32_t n, cl_mem k_pages,
		       cl_mem v_pages)
{
	LAUNCH(k, K_COPY_PAGES, n, 2 * k->shape.kv_heads, ARG(step), ARG(copies_at), ARG(k_pages),
	       ARG(v_pages));
}

void kernel_delta_conv(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
		       cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias, cl_mem ring,
		       cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates, uint32_t T)
{
	const uint64_t units = 2 * k->shape.key_heads + k->shape.value_heads;

	if (kernels_has_tensor_delta(k))
		LAUNCH(k, K_DELTA_CONV_TENSOR,
		       CEIL_DIV(CEIL_DIV(T, (uint32_t)CONV_TOKENS) * units, (uint64_t)DELTA_WARPS),
		       1, ARG(step), ARG(rows_at), ARG(token_rows_at), ARG(proj), ARG(conv_w),
		       ARG(neg_a), ARG(dt_bias), ARG(ring), ARG(qs), ARG(ks), ARG(vs), ARG(gates),
		       ARG(T));
	else if (k->tuning->lanes == 1)
		LAUNCH(k, K_DELTA_CONV, T * units, 1, ARG(step), ARG(rows_at), ARG(token_rows_at),
		       ARG(proj), ARG(conv_w), ARG(neg_a), ARG(dt_bias), ARG(ring), ARG(qs),
		       ARG(ks), ARG(vs), ARG(gates));
	else
		LAUNCH(k, K_DELTA_CONV, CEIL_DIV(T, (uint32_t)CONV_TOKENS) * units, 1, ARG(step),
		       ARG(rows_at), ARG(token_rows_at), ARG(proj), ARG(conv_w), ARG(neg_a),
		       ARG(dt_bias), ARG(ring), ARG(qs), ARG(ks), ARG(vs), ARG(gates), ARG(T));
}

void kernel_delta_prefill(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t n_rows,
			  uint32_t T, cl_mem proj, cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates,
			  cl_mem norm_w, cl_mem ring, cl_mem state, cl_mem work, cl_mem out)
{
	uint64_t pairs = (uint64_t)n_rows * k->shape.value_heads;
	cl_int first_row = 0, rows = (cl_int)n_rows; /* prefill rows come first */
	const uint64_t chunks = n_rows ? kernels_delta_chunks(T, n_rows) : 0;

	if (k->tuning->lanes == 1) {
		LAUNCH(k, K_DELTA_PREFILL, MIN(pairs, (uint64_t)k->compute_units), 1, ARG(step),
		       ARG(rows_at), ARG(first_row), ARG(rows), ARG(proj), ARG(qs), ARG(ks),
		       ARG(vs), ARG(gates), ARG(norm_w), ARG(ring), ARG(state), ARG(work),
		       ARG(out));
		return;
	}
	if (kernels_has_tensor_delta(k)) {
		LAUNCH(k, K_DELTA_CHUNK_TENSOR, chunks, k->shape.value_heads, ARG(step),
		       ARG(rows_at), ARG(first_row), ARG(rows), ARG(qs), ARG(ks), ARG(vs),
		       ARG(gates), ARG(work));
		LAUNCH_CUT(k, 0, K_DELTA_SCAN_TENSOR, SCAN_LANES,
			   pairs * CEIL_DIV(k->shape.value_dim, (uint32_t)SCAN_COLUMNS), 1,
			   ARG(step), ARG(rows_at), ARG(first_row), ARG(work), ARG(state));
		LAUNCH(k, K_DELTA_OUT_TENSOR, chunks, k->shape.value_heads, ARG(step), ARG(rows_at),
		       ARG(first_row), ARG(rows), ARG(proj), ARG(work), ARG(norm_w), ARG(ring),
		       ARG(out));
	} else {
		LAUNCH(k, K_DELTA_CHUNK, chunks, k->shape.value_heads, ARG(step), ARG(rows_at),
		       ARG(first_row), ARG(rows), ARG(qs), ARG(ks), ARG(gates), ARG(work));
		LAUNCH(k, K_DELTA_SCAN, pairs * CEIL_DIV(k->shape.value_dim, (uint32_t)DELTA_BLOCK),
		       1, ARG(step), ARG(rows_at), ARG(first_row), ARG(proj), ARG(qs), ARG(ks),
		       ARG(vs), ARG(gates), ARG(work), ARG(ring), ARG(state));
		LAUNCH(k, K_DELTA_NORM,
		       (uint64_t)CEIL_DIV(T, (uint32_t)CONV_TOKENS) * k->shape.value_heads, 1,
		       ARG(proj), ARG(vs), ARG(norm_w), ARG(out), ARG(T));
	}
}

void kernel_delta_decode(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t first_row,
			 uint32_t n_rows, cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias,
			 cl_mem norm_w, cl_mem ring, cl_mem state, cl_mem out)
{
	cl_int first = (cl_int)first_row;

	LAUNCH(k, K_DELTA_DECODE, n_rows, k->shape.value_heads, ARG(step), ARG(rows_at), ARG(first),
	       ARG(proj), ARG(conv_w), ARG(neg_a), ARG(dt_bias), ARG(norm_w), ARG(ring), ARG(state),
	       ARG(out));
}

/* Returns the number of groups that share the blocks of a draw or a score if `rows` of them are launched together; each
 * reads one row of logits. On a GPU each team of 16 lanes (vocabulary.clh) gets one block, or more if there are more
 * groups than run at the same time. On a CPU all rows together get about one group for each compute unit; if there are
 * more rows than compute units, each row gets one group. But each of several groups of a row gets at least 64 blocks on
 * a CPU: a group for fewer blocks is not worth waking a thread. */
static uint32_t sample_parts(const struct kernels *k, enum kernel_id id, uint32_t rows)
{
	enum { GROUPS = 8 }; /* that run on a compute unit of a GPU at the same time */
	uint32_t blocks = SAMPLE_BLOCKS(k->shape.vocab), teams = k->lanes[id] / 16;

	if (teams)
		return MAX(MIN(CEIL_DIV(blocks, teams),
			       CEIL_DIV(k->compute_units * GROUPS, MAX(rows, 1u))),
			   1u);
	return MAX(MIN(CEIL_DIV(k->compute_units, MAX(rows, 1u)), blocks / 64), 1u);
}

void kernel_sample(struct kernels *k, cl_mem step, cl_int draws_at, cl_mem logits, cl_mem work,
		   cl_mem counts, cl_mem result, uint32_t n_draws)
{
	const uint32_t parts = sample_parts(k, K_SAMPLE_BLOCKS, n_draws);
	const cl_uint alone = k->tuning->lanes == 1 && parts == 1;

	if (!alone)
		LAUNCH(k, K_SAMPLE_BLOCKS, n_draws, parts, ARG(step), ARG(draws_at), ARG(logits),
		       ARG(work), ARG(counts));
	LAUNCH(k, alone ? K_SAMPLE_ALONE : K_SAMPLE, n_draws, 1, ARG(step), ARG(draws_at),
	       ARG(logits), ARG(work), ARG(counts), ARG(result), ARG(alone));
}

void kernel_score(struct kernels *k, cl_mem step, cl_int scores_at, cl_mem logits, cl_mem work,
		  cl_mem result, uint32_t n)
{
	LAUNCH(k, K_SCORE_BLOCKS, n, sample_parts(k, K_SCORE_BLOCKS, n), ARG(step), ARG(scores_at),
	       ARG(logits), ARG(work));
	LAUNCH(k, K_SCORE, n, 1, ARG(step), ARG(scores_at), ARG(logits), ARG(work), ARG(result));
}

void kernels_read_rows(struct kernels *k, cl_mem matrix, uint32_t n, uint32_t V, float *host)
{
	const size_t origin[3] = {0}, region[3] = {V * sizeof(*host), n, 1};
	cl_int code;

	if (k->error.code)
		return;
	code = clEnqueueReadBufferRect(k->queue, matrix, CL_FALSE, origin, origin, region,
				       KERNEL_LD(V) * sizeof(*host), 0, region[0], 0, host, 0, NULL,
				       NULL);
	if (code != CL_SUCCESS)
		cl_error(&k->error, code, "reading rows");
}

bool kernels_read(struct kernels *k, cl_mem buffer, size_t bytes, void *host)
{
	cl_int code;

	if (k->error.code)
		return false;
	code = clEnqueueReadBuffer(k->queue, buffer, CL_TRUE, 0, bytes, host, 0, NULL, NULL);
	if (code != CL_SUCCESS)
		cl_error(&k->error, code, "reading a buffer");
	return code == CL_SUCCESS;
}

void kernel_seat_reset(struct kernels *k, cl_mem step, cl_int resets_at, cl_mem counts, uint32_t n)
{
	LAUNCH(k, K_SEAT_RESET, n, 1, ARG(step), ARG(resets_at), ARG(counts));
}

void kernel_pool(struct kernels *k, cl_mem step, cl_int poolings_at, cl_mem h32, cl_mem sums,
		 cl_mem result, uint32_t n)
{
	uint32_t width = k->lanes[K_POOL] * k->tuning->vec;

	LAUNCH(k, K_POOL, CEIL_DIV(KERNEL_LD(k->shape.hidden), width), n, ARG(step),
	       ARG(poolings_at), ARG(h32), ARG(sums), ARG(result));
}

void kernel_synthesize(struct kernels *k, cl_mem W, uint64_t first_panel, uint32_t stride,
		       uint64_t rows, uint64_t cols, uint64_t key, float scale, float offset)
{
	cl_ulong first = first_panel, r = rows, c = cols, seed = key;

	LAUNCH(k, K_SYNTHESIZE, CEIL_DIV(rows, 16u), 1, ARG(W), ARG(first), ARG(stride), ARG(r),
	       ARG(c), ARG(seed), ARG(scale), ARG(offset));
}

void kernel_synthesize_rows(struct kernels *k, cl_mem table, uint64_t rows, uint64_t cols,
			    uint64_t key, float scale, float offset)
{
	cl_ulong r = rows, c = cols, seed = key;

	LAUNCH(k, K_SYNTHESIZE_ROWS, rows, 1, ARG(table), ARG(r), ARG(c), ARG(seed), ARG(scale),
	       ARG(offset));
}

void kernel_address(struct kernels *k, cl_mem buffer, cl_mem addresses, uint32_t i)
{
	cl_uint at = i;

	LAUNCH(k, K_ADDRESS, 1, 1, ARG(buffer), ARG(addresses), ARG(at));
}

void kernel_decode_step(struct kernels *k, cl_mem step, cl_int work_at, cl_mem addresses,
			uint32_t T)
{
	struct tuning_place p = cuts_decode_step(&k->shape, T);

	/* A group for each compute unit. On a GPU all of them have to run at the same time. */
	if (kernels_decode_resident(k)) {
		LAUNCH_CUT(k, 0, K_DECODE_STEP, STEP_LANES, k->compute_units, 1, ARG(step),
			   ARG(work_at), ARG(addresses));
		return;
	}
	LAUNCH_CUT(k, cuts_find(&k->cuts, &p), K_DECODE_STEP, k->tuning->lanes, k->compute_units, 1,
		   ARG(step), ARG(work_at), ARG(addresses));
	note_place(k, &p);
}

/* ---- warming cuts up ---- */

/* The place of a tile in a step table that begins with a row of zeros. These zeros are the row's block table too: it
 * names page 0. */
enum { WARM_TILE_AT = ROW_INTS };

/* Launches one group of each kernel of CUT_GEMM with a cut. There are no rows, and `none`, which is zeros, is an empty
 * task list. */
static void warm_gemm(struct kernels *k, uint32_t cut, cl_mem none, cl_mem out)
{
	cl_uint M = 0, side = 16;

	LAUNCH_CUT(k, cut, K_GEMM_STORE, k->tuning->lanes, 1, 1, ARG(none), ARG(side), ARG(none),
		   ARG(out), ARG(side), ARG(M), ARG(side), ARG(side));
	LAUNCH_CUT(k, cut, K_GEMM_ADD, k->tuning->lanes, 1, 1, ARG(none), ARG(side), ARG(none),
		   ARG(out), ARG(side), ARG(M), ARG(side), ARG(side), ARG(out));
	for (uint32_t i = 0; i < k->shape.n_mlps; i++) {
		LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_GATE_UP, i), k->tuning->lanes, 1, 1, ARG(none),
			   ARG(none), ARG(none), ARG(none), ARG(none), ARG(out));
		LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_DOWN, i), k->tuning->lanes, 1, 1, ARG(none),
			   ARG(none), ARG(none), ARG(none), ARG(none), ARG(out));
	}
}

/* Launches one group of `attention` with a cut. step: a table with a row of zeros and a tile of one token. */
static void warm_attention(struct kernels *k, uint32_t cut, cl_mem step, cl_mem none, cl_mem out)
{
	cl_int rows_at = 0, tiles_at = WARM_TILE_AT;
	cl_uint windowed = 0;

	LAUNCH_CUT(k, cut, K_ATTENTION, k->tuning->lanes, 1, 1, ARG(step), ARG(rows_at),
		   ARG(tiles_at), ARG(none), ARG(none), ARG(none), ARG(none), ARG(out),
		   ARG(windowed));
}

static bool has_other_cuts(const struct cuts *c)
{
	for (size_t i = 0; i < CUT_PROGRAMS; i++)
		if (c->n[i] > 1)
			return true;
	return false;
}

/* A driver may compile at a kernel's first launch (PoCL does). A cut that only some sizes use would have its first
 * launch during a request, so each cut but the default one is launched here, on zeros and with hardly any work. */
int kernels_warm_cuts(struct kernels *k, cl_context context, struct err *e)
{
	const struct kernel_shape *s = &k->shape;
	/* The most that a kernel reads of a buffer: a page, or a token's row of attention's projection. A work list
	 * without phases is shorter. */
	size_t bytes = 4 * MAX((size_t)s->kv_heads * s->head_dim * s->page_tokens,
			       (size_t)kernels_attention_ld(s) + 4096);
	const int32_t tile[WARM_TILE_AT + QUERY_TILE_INTS] = {[WARM_TILE_AT + QUERY_TILE_COUNT] =
								      1};
	cl_mem none, step, out;
	cl_int work_at = 0;
	void *zeros;

	if (!has_other_cuts(&k->cuts))
		return 0;
	zeros = calloc(1, bytes);
	if (!zeros)
		return err_no_memory(e);
	none = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, zeros,
			      NULL);
	step = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof(tile),
			      (void *)(uintptr_t)tile, NULL);
	out = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, NULL);
	free(zeros);
	if (none && step && out) {
		for (uint32_t i = 1; i < k->cuts.n[CUT_GEMM]; i++)
			warm_gemm(k, i, none, out);
		for (uint32_t i = 1; i < k->cuts.n[CUT_ATTENTION]; i++)
			warm_attention(k, i, step, none, out);
		/* Decode steps come last: they count tickets in `none`, which is not all zeros afterwards. */
		for (uint32_t i = 1; i < k->cuts.n[CUT_DECODE_STEP]; i++)
			LAUNCH_CUT(k, i, K_DECODE_STEP, k->tuning->lanes, k->compute_units, 1,
				   ARG(none), ARG(work_at), ARG(none));
		clFinish(k->queue);
	}
	if (none)
		clReleaseMemObject(none);
	if (step)
		clReleaseMemObject(step);
	if (out)
		clReleaseMemObject(out);
	k->launches = 0;
	return none && step && out ? kernels_status(k, e) : err_no_memory(e);
}
