/* A whole decode step except the draws in one launch, on a CPU. Every row of the plan has one token, and the groups
 * that run share the work of all layers.
 *
 * The work list (kernels/step.h; engine/decode_work.c writes it) is a sequence of phases. A phase is one operation of
 * one layer, or of the embedding or the head. Its work is divided into parts, which stand in columns and rows. A ticket
 * is up to PHASE_TAKE neighbouring parts of one row; tickets are numbered through all phases. A group takes the next
 * ticket, waits until all tickets of earlier phases are done, does the ticket's parts, and counts the ticket as done. A
 * ticket waits for lower tickets alone, and groups that already run have taken all lower tickets. So any number of
 * groups suffices, even one, and no group has to be resident for another.
 *
 * A part is done by the functions of the other kernels. Only the router's product has a function of its own, with the
 * same sums (moe_route.cl). So the bits are those of separate launches.
 *
 * A kernel has far fewer arguments than a model has matrices. So buffers are passed as addresses, which address.cl
 * writes once: at[i] is the address of buffer i. The address of a buffer does not change while it lives. OpenCL 1.2
 * does not promise that; PoCL and NVIDIA's driver keep it.
 *
 *     step      the step table (kernels/step.h) with the work list at work_at, whose counters are written; in and out
 *     at        [AT_LAYERS + layers * AT_LAYER_COUNT] ulong, device addresses (kernels/step.h)
 *
 * Sums and their precision: as in the files that are included. Global size: any number of groups. Options: those of the
 * included files (kernels/programs.c). Reference: separate launches, bit by bit (tests/test_invariance.c), and the
 * references of the included files. */
#define STEP /* leaves out the __kernels of the included files: only their functions are needed */
#include "embed.cl"
#include "norm.cl"
#include "gemm.cl"
#include "moe_gemm.cl"
#include "moe_route.cl"
#if HEADS
#include "attention.cl"
#endif
#if HK
#include "delta_decode.cl"
#endif

/* Waits a moment for other groups. The system may run another program in place of the group whose ticket all others
 * wait for. So a group that has waited for a while lets other threads run (sched_yield); otherwise all groups would
 * spin until the system's next time slice. turn: how often the group has waited before. */
#define PATIENCE 256 /* how often a group waits by `pause` before it calls sched_yield */
#if defined(__x86_64__) && defined(__linux__)
#define WAIT(turn)                                                                                 \
	do {                                                                                       \
		long call_ = 24; /* sched_yield */                                                 \
                                                                                                   \
		if ((turn) < PATIENCE)                                                             \
			__asm__ volatile("pause" ::: "memory");                                    \
		else                                                                               \
			__asm__ volatile("syscall" : "+a"(call_)::"rcx", "r11", "memory");         \
	} while (0)
#else
#define WAIT(turn) mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif

#ifndef PREFETCH
#define PREFETCH(p) ((void)(p), mem_fence(CLK_GLOBAL_MEM_FENCE))
#endif

/* About the number of cache lines of a panel. */
#if PACKING == 4
#define PANEL(w, p, K) QUANT_PANEL_AT(w, p)
#define PANEL_LINES(K) ((K)*10 / 64)
#elif BF16 && PACKING == 3
#define PANEL_LINES(K) ((K)*24 / 64)
#else
#define PANEL_LINES(K) ((K)*16 * (uint)sizeof(elem_t) / 64)
#endif

/* One part of a phase, which stands in column x and row y of the phase's parts, and the memory of the group that does
 * it. */
struct part {
	__global const int *step, *work;
	__global const ulong *at, *layer; /* addresses of the model's buffers, and of the present layer's */
	uint x, y;
	LOCAL float *memory; /* [MEMORY] */
	LOCAL float *scratch;
};

/* Buffer i of the model, and buffer i of the layer of part p (AT_* of kernels/step.h). */
#define GLOBAL_AT(type, i) ((__global type *)p->at[i])
#define LAYER_AT(type, i)  ((__global type *)p->layer[i])

/* Returns the weights of an operation that is a product with one matrix, 0 for any other operation. */
static inline __global const elem_t *product_weights(const struct part *p, int op)
{
	switch (op) {
	case OP_ATTENTION_IN:
	case OP_DELTA_IN: return LAYER_AT(elem_t, AT_IN_PROJ);
	case OP_ATTENTION_OUT:
	case OP_DELTA_OUT: return LAYER_AT(elem_t, AT_OUT_PROJ);
	case OP_LOGITS: return GLOBAL_AT(elem_t, AT_LM_HEAD);
	}
	return 0;
}

/* Returns the number of terms of each sum of an operation that is a product (product_weights). */
static inline uint product_terms(int op)
{
	switch (op) {
#if HEADS
	case OP_ATTENTION_OUT: return HEADS * HD;
#endif
#if HK
	case OP_DELTA_OUT: return HV * DV;
#endif
	}
	return LD(HIDDEN);
}

GROUP_FUNCTION void product(const struct part *p, int op, __global const elem_t *W)
{
	const uint D = LD(HIDDEN), T = (uint)p->work[WORK_TOKENS], K = product_terms(op);
	__global float *to = GLOBAL_AT(float, AT_PROJ);
	uint M = T, N = LD(VOCAB);

	if (op == OP_ATTENTION_OUT || op == OP_DELTA_OUT) {
#if OUT_NORMS
		gemm_store_group(p->x, p->y, GLOBAL_AT(elem_t, AT_MIXED), IN_LD(K), W, GLOBAL_AT(float, AT_Y), D, T, D, K);
#else
		gemm_add_group(p->x, p->y, GLOBAL_AT(elem_t, AT_MIXED), IN_LD(K), W, GLOBAL_AT(float, AT_X), D, T, D, K, 0);
#endif
		return;
	}
	switch (op) {
#if HEADS
	case OP_ATTENTION_IN: N = ATTENTION_LD; break;
#endif
#if HK
	case OP_DELTA_IN: N = DELTA_LD; break;
#endif
	case OP_LOGITS:
		M = (uint)p->work[WORK_LOGITS];
		to = GLOBAL_AT(float, AT_LOGITS);
		break;
	}
	gemm_store_group(p->x, p->y, GLOBAL_AT(elem_t, AT_H), IN_LD(K), W, to, N, M, N, K);
}

/* Norms row y of the residual stream into row y of h and h32. With row_at >= 0 it norms another row: its number is at
 * row_at + y of the step table. */
GROUP_FUNCTION void norm(const struct part *p, int row_at, __global const float *w)
{
	rms_norm_group(p->y, p->step, row_at, GLOBAL_AT(float, AT_X), w, GLOBAL_AT(elem_t, AT_H),
		       GLOBAL_AT(float, AT_H32), p->scratch);
}

GROUP_FUNCTION void embed_part(const struct part *p)
{
	embed_group(p->y, p->step, p->work[WORK_TOKENS_AT], p->work[WORK_POSITIONS_AT], GLOBAL_AT(int, AT_RESULT),
		    GLOBAL_AT(elem_t, AT_EMBED), GLOBAL_AT(float, AT_INV_FREQ), GLOBAL_AT(float, AT_X),
		    GLOBAL_AT(float, AT_ROPE));
	BARRIER();
	norm(p, -1, LAYER_AT(float, AT_INPUT_NORM));
}

#if HEADS
/* Prepares KV head x of token y and the query heads that share it, then computes their attention. A tile is one
 * token. sliding: the layer has a sliding window (attention.clh). */
GROUP_FUNCTION void attention_part(const struct part *p, uint sliding)
{
	const int rows_at = p->work[sliding ? WORK_RING_ROWS_AT : WORK_ROWS_AT];

	for (uint i = 0; i <= SHARERS; i++) {
		attention_prepare_group(p->y, i < SHARERS ? p->x * SHARERS + i : HEADS + p->x, p->step,
					rows_at, p->work[WORK_TOKEN_ROWS_AT], GLOBAL_AT(float, AT_PROJ),
					LAYER_AT(float, AT_QKV_BIAS), LAYER_AT(float, AT_Q_NORM), LAYER_AT(float, AT_K_NORM),
					GLOBAL_AT(float, AT_ROPE), GLOBAL_AT(float, AT_Q),
					LAYER_AT(kv_t, AT_K_PAGES), LAYER_AT(kv_t, AT_V_PAGES), sliding,
					p->memory, p->scratch);
		BARRIER();
	}
	attention_group(p->y, p->x, p->step, rows_at, p->work[WORK_TILES_AT], GLOBAL_AT(float, AT_PROJ),
			GLOBAL_AT(float, AT_Q), LAYER_AT(kv_t, AT_K_PAGES), LAYER_AT(kv_t, AT_V_PAGES),
			GLOBAL_AT(elem_t, AT_MIXED), sliding, (LOCAL float(*)[KEYS])p->memory, p->scratch);
}
#endif

#if HK
GROUP_FUNCTION void delta_part(const struct part *p)
{
	delta_decode_group(p->y, p->x, p->step, p->work[WORK_ROWS_AT], 0, GLOBAL_AT(float, AT_PROJ),
			   LAYER_AT(float, AT_CONV), LAYER_AT(float, AT_NEG_A), LAYER_AT(float, AT_DT_BIAS),
			   LAYER_AT(float, AT_GATED_NORM), LAYER_AT(float, AT_RING), LAYER_AT(float, AT_STATE),
			   GLOBAL_AT(elem_t, AT_MIXED), p->memory, p->scratch);
}
#endif

/* Norms row y and computes its router logits in the columns of part x. Each part of a row computes the norm for itself,
 * so that it need not wait for another part. All of them write the same normed values. */
GROUP_FUNCTION void router_part(const struct part *p)
{
	norm(p, -1, LAYER_AT(float, AT_POST_NORM));
	BARRIER();
#if EXPERTS
	moe_router_group(p->x, p->y, GLOBAL_AT(float, AT_H32), LAYER_AT(float, AT_ROUTER),
			 GLOBAL_AT(float, AT_ROUTER_LOGITS));
#endif
}

/* Chooses the experts of n tokens from `first` on. Does nothing for a dense MLP. */
GROUP_FUNCTION void topk_part(const struct part *p, uint first, uint n)
{
#if EXPERTS
	for (uint t = first; t < first + n; t++)
		moe_topk_group(t, GLOBAL_AT(float, AT_ROUTER_LOGITS), GLOBAL_AT(int, AT_EXPERTS),
			       GLOBAL_AT(float, AT_WEIGHTS), p->memory, p->scratch);
#endif
}

GROUP_FUNCTION void sort_part(const struct part *p)
{
	moe_sort_group(GLOBAL_AT(int, AT_EXPERTS), (uint)p->work[WORK_TOKENS], GLOBAL_AT(int, AT_ROWS),
		       GLOBAL_AT(int, AT_TASKS), (LOCAL uint *)p->memory);
}

GROUP_FUNCTION void do_part(const struct part *p, int op)
{
	__global const elem_t *W = product_weights(p, op);

	if (W) {
		product(p, op, W);
		return;
	}
	switch (op) {
	case OP_EMBED: embed_part(p); break;
#if HEADS
#if WINDOW
	case OP_SLIDING:
#endif
	case OP_ATTENTION: attention_part(p, op == OP_SLIDING); break;
#endif
#if HK
	case OP_DELTA: delta_part(p); break;
#endif
	case OP_ROUTER: router_part(p); break;
#if OUT_NORMS
	case OP_ADD_NORM:
		add_norm_group(p->y, GLOBAL_AT(float, AT_X), GLOBAL_AT(float, AT_Y), LAYER_AT(float, AT_MIXER_NORM),
			       LAYER_AT(float, AT_POST_NORM), GLOBAL_AT(elem_t, AT_H), GLOBAL_AT(float, AT_H32), 0,
			       p->scratch);
		break;
#endif
	case OP_TOPK: topk_part(p, p->y, 1); break;
	case OP_TOPK_SORT:
		topk_part(p, 0, (uint)p->work[WORK_TOKENS]);
		BARRIER(); /* fall through */
	case OP_SORT: sort_part(p); break;
	case OP_GATE_UP:
		moe_gate_up_group(p->x, p->y, GLOBAL_AT(elem_t, AT_H), LAYER_AT(elem_t, AT_EXPERTS_GATE_UP),
				  LAYER_AT(elem_t, AT_SHARED_GATE_UP), GLOBAL_AT(int, AT_TASKS), GLOBAL_AT(int, AT_ROWS),
				  GLOBAL_AT(elem_t, AT_ACT));
		break;
	case OP_DOWN:
		moe_down_group(p->x, p->y, GLOBAL_AT(elem_t, AT_ACT), LAYER_AT(elem_t, AT_EXPERTS_DOWN),
			       LAYER_AT(elem_t, AT_SHARED_DOWN), GLOBAL_AT(int, AT_TASKS), GLOBAL_AT(int, AT_ROWS),
			       GLOBAL_AT(float, AT_Y));
		break;
	case OP_COMBINE:
		combine_norm_group(p->y, GLOBAL_AT(float, AT_X), GLOBAL_AT(float, AT_Y), GLOBAL_AT(float, AT_WEIGHTS),
				   GLOBAL_AT(float, AT_ROUTER_LOGITS), LAYER_AT(float, AT_MLP_NORM),
				   LAYER_AT(float, AT_NEXT_NORM),
				   GLOBAL_AT(elem_t, AT_H), GLOBAL_AT(float, AT_H32), 0, p->scratch);
		break;
	case OP_LAST_NORM: norm(p, p->work[WORK_LOGITS_AT], GLOBAL_AT(float, AT_FINAL_NORM)); break;
	}
}

/* The most floats of LOCAL memory that an operation needs. */
#define MEMORY_0 MAX_(EXPERTS, 1)
#if HEADS
#define MEMORY_1 MAX_(MEMORY_0, MAX_(HD, QUERIES * KEYS))
#else
#define MEMORY_1 MEMORY_0
#endif
#if HK
#define MEMORY MAX_(MEMORY_1, DELTA_DECODE_FLOATS)
#else
#define MEMORY MEMORY_1
#endif

/* Waits until all tickets before `first` are done. p: the first part of the group's ticket. If the ticket's operation
 * is a product, its weights are prefetched meanwhile, because they do not depend on the tickets before. */
GROUP_FUNCTION void wait_for(volatile __global int *done, int first, const struct part *p, __global const int *phase)
{
	__global const elem_t *W = product_weights(p, phase[PHASE_OP]);
	uint K = product_terms(phase[PHASE_OP]), panels = NPG * WIDTH / 16;
	uint lines = W ? (uint)phase[PHASE_TAKE] * panels * PANEL_LINES(K) : 0;
	__global const uchar *from = W ? (__global const uchar *)PANEL(W, p->x * panels, K) : 0;

	for (uint turn = 0; LANE == 0 && *done < first; turn++)
		if (turn < lines)
			PREFETCH(from + turn * 64);
		else
			WAIT(turn - lines);
	BARRIER();
	mem_fence(CLK_GLOBAL_MEM_FENCE);
}

__kernel GROUP_SIZE void decode_step(__global int *step, int work_at, __global const ulong *at)
{
	__global const int *work = step + work_at;
	volatile __global int *next = step + work_at + WORK_NEXT, *done = step + work_at + WORK_DONE;
	__global const int *phase = work + WORK_INTS;
	int ready = -1; /* the first ticket of the last phase for which the group has waited */
	LOCAL float memory[MEMORY];
	LOCAL int mine[1];
	GROUP_SCRATCH(scratch);
	struct part p = {.step = step, .work = work, .at = at, .memory = memory, .scratch = scratch};

	for (;;) {
		int ticket, first;
		uint i, parts, end;

		BARRIER(); /* every lane has read `mine` */
		if (LANE == 0)
			mine[0] = atomic_inc(next);
		BARRIER();
		ticket = mine[0];
		while (phase[PHASE_OP] != OP_END && ticket >= phase[PHASE_INTS + PHASE_FIRST])
			phase += PHASE_INTS;
		if (phase[PHASE_OP] == OP_END)
			return;
		first = phase[PHASE_FIRST];
		i = (uint)(ticket - first);
		parts = CEIL_((uint)phase[PHASE_COLUMNS], (uint)phase[PHASE_TAKE]);
		p.layer = at + AT_LAYERS + phase[PHASE_LAYER] * AT_LAYER_COUNT;
		p.x = i % parts * (uint)phase[PHASE_TAKE];
		p.y = i / parts;
		if (ready != first)
			wait_for(done, first, &p, phase);
		ready = first;
		for (end = MIN_(p.x + (uint)phase[PHASE_TAKE], (uint)phase[PHASE_COLUMNS]); p.x < end; p.x++)
			do_part(&p, phase[PHASE_OP]);
		mem_fence(CLK_GLOBAL_MEM_FENCE);
		BARRIER();
		if (LANE == 0)
			atomic_inc(done);
	}
}
