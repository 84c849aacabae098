/*
 * A whole decode step but the draws in one launch, on a CPU: every row of the plan has one token, and the groups that run deal the work of all
 * layers out among themselves.
 *
 * The work list (engine/decode_work.c) is a sequence of phases. A phase is one operation on one layer, cut into tickets;
 * tickets are numbered through all phases. A group takes the next ticket, waits until all tickets of earlier phases
 * are done, does its parts (up to PHASE_TAKE neighbouring columns of one row), and counts it as done. A ticket waits only for lower ones, and those are in the hands of groups
 * that run: so any number of groups gets through, one alone as well, and none has to be resident for another.
 *
 * What a ticket does are the functions of the other kernels: the bits are those of separate launches.
 *
 * Buffers come as addresses (address below): a kernel has far fewer arguments than a model has matrices. Device
 * addresses do not change while a buffer lives; OpenCL 1.2 does not promise that, PoCL and NVIDIA's driver keep it.
 *
 * work, at work_at of the step table: WORK_* ints, then the phases; the list ends with a phase of no operation, whose
 * first ticket is the number of all; the host zeroes the two counters with each list. Options: those of the files below
 * (kernels/programs.c).
 */
#define STEP /* leaves their __kernels out: only their functions are wanted */
#include "embed.cl"
#include "norm.cl"
#include "gemm.cl"
#include "moe_route.cl"
#if HEADS
#include "attention.cl"
#endif
#if HK
#include "delta_decode.cl"
#endif

/*
 * Waiting for other groups. A thread whose processor was given to somebody else may hold what all wait for: on a busy
 * machine whoever has waited for longer than a part takes lets others run (sched_yield), or all would spin until the
 * system's next time slice.
 */
#define PATIENCE 256 /* turns of `pause` */
/* GPUs launch kernel by kernel; what they would do here is tested, not used. */
#if LANES > 1
#define WAIT(turn) mem_fence(CLK_GLOBAL_MEM_FENCE)
#elif defined(__x86_64__) && defined(__linux__)
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

/* Cache lines of a panel, about. */
#if BF16 && PACKING == 3
#define PANEL_LINES(K) ((K)*24 / 64)
#else
#define PANEL_LINES(K) ((K)*16 * (uint)sizeof(elem_t) / 64)
#endif

#define GLOBAL_AT(type, i) ((__global type *)at[i])
#define LAYER_AT(type, i)  ((__global type *)layer[i])

/* The weights of a product by rows of one matrix, 0 for other operations; its terms. */
static inline __global const elem_t *product_weights(__global const ulong *at, __global const ulong *layer, int op)
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

GROUP_FUNCTION void product(__global const int *work, __global const ulong *at, int op, __global const elem_t *W,
			    uint gx, uint gy)
{
	const uint D = LD(HIDDEN), T = (uint)work[WORK_TOKENS], K = product_terms(op);
	__global float *proj = GLOBAL_AT(float, AT_PROJ);
	uint M = T, N = LD(VOCAB);

	if (op == OP_ATTENTION_OUT || op == OP_DELTA_OUT) {
		gemm_add_group(gx, gy, GLOBAL_AT(elem_t, AT_MIXED), K, W, GLOBAL_AT(float, AT_X), D, T, D, K, 0);
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
		M = (uint)work[WORK_LOGITS];
		proj = GLOBAL_AT(float, AT_LOGITS);
		break;
	}
	gemm_store_group(gx, gy, GLOBAL_AT(elem_t, AT_H), K, W, proj, N, M, N, K);
}

/* Part (gx, gy) of a phase. */
GROUP_FUNCTION void part(__global const int *step, __global const int *work, __global const ulong *at, int op,
			 __global const ulong *layer, uint gx, uint gy, LOCAL float *memory, LOCAL float *scratch,
			 LOCAL int *ids)
{
	const uint T = (uint)work[WORK_TOKENS];
	const int rows_at = work[WORK_ROWS_AT];
	__global float *x = GLOBAL_AT(float, AT_X), *h32 = GLOBAL_AT(float, AT_H32);
	__global elem_t *h = GLOBAL_AT(elem_t, AT_H);
	__global const elem_t *W = product_weights(at, layer, op);

	if (W) {
		product(work, at, op, W, gx, gy);
		return;
	}
	switch (op) {
	case OP_EMBED:
		embed_group(gy, step, work[WORK_TOKENS_AT], work[WORK_POSITIONS_AT], GLOBAL_AT(int, AT_RESULT),
			    GLOBAL_AT(elem_t, AT_EMBED), GLOBAL_AT(float, AT_INV_FREQ), x, GLOBAL_AT(float, AT_ROPE));
		BARRIER();
		rms_norm_group(gy, step, -1, x, LAYER_AT(float, AT_INPUT_NORM), h, h32, scratch);
		break;
#if HEADS
	case OP_ATTENTION: /* a tile is one token */
		for (uint i = 0; i <= SHARERS; i++) {
			attention_prepare_group(gy, i < SHARERS ? gx * SHARERS + i : HEADS + gx, step, rows_at,
						work[WORK_TOKEN_ROWS_AT], GLOBAL_AT(float, AT_PROJ),
						LAYER_AT(float, AT_Q_NORM), LAYER_AT(float, AT_K_NORM),
						GLOBAL_AT(float, AT_ROPE), GLOBAL_AT(float, AT_Q),
						LAYER_AT(elem_t, AT_K_PAGES), LAYER_AT(elem_t, AT_V_PAGES), memory,
						scratch);
			BARRIER();
		}
		attention_group(gy, gx, step, rows_at, work[WORK_TILES_AT], GLOBAL_AT(float, AT_PROJ),
				GLOBAL_AT(float, AT_Q), LAYER_AT(elem_t, AT_K_PAGES), LAYER_AT(elem_t, AT_V_PAGES),
				GLOBAL_AT(elem_t, AT_MIXED), (LOCAL float(*)[KEYS])memory, scratch);
		break;
#endif
#if HK
	case OP_DELTA:
		delta_decode_group(gy, gx, step, rows_at, 0, GLOBAL_AT(float, AT_PROJ), LAYER_AT(float, AT_CONV),
				   LAYER_AT(float, AT_NEG_A), LAYER_AT(float, AT_DT_BIAS), LAYER_AT(float, AT_NORM),
				   LAYER_AT(float, AT_RING), LAYER_AT(float, AT_STATE), GLOBAL_AT(elem_t, AT_MIXED),
				   memory, scratch);
		break;
#endif
	case OP_ROUTER: /* every part norms the row for itself; the first one's is kept */
		rms_norm_group(gy, step, -1, x, LAYER_AT(float, AT_POST_NORM), h, h32, scratch);
		BARRIER();
#if EXPERTS
		moe_router_group(gx, gy, h32, LAYER_AT(float, AT_ROUTER), GLOBAL_AT(float, AT_ROUTER_LOGITS));
#endif
		break;
#if EXPERTS
	case OP_TOPK:
		moe_topk_group(gy, GLOBAL_AT(float, AT_ROUTER_LOGITS), GLOBAL_AT(int, AT_EXPERTS),
			       GLOBAL_AT(float, AT_WEIGHTS), memory, scratch, ids);
		break;
	case OP_TOPK_SORT:
		for (uint t = 0; t < T; t++)
			moe_topk_group(t, GLOBAL_AT(float, AT_ROUTER_LOGITS), GLOBAL_AT(int, AT_EXPERTS),
				       GLOBAL_AT(float, AT_WEIGHTS), memory, scratch, ids);
		BARRIER(); /* and sort: */
#endif
	case OP_SORT:
		moe_sort_group(GLOBAL_AT(int, AT_EXPERTS), T, GLOBAL_AT(int, AT_ROWS), GLOBAL_AT(int, AT_TASKS),
			       (LOCAL uint *)memory);
		break;
	case OP_GATE_UP:
		moe_gate_up_group(gx, gy, h, LAYER_AT(elem_t, AT_EXPERTS_GATE_UP), LAYER_AT(elem_t, AT_SHARED_GATE_UP),
				  GLOBAL_AT(int, AT_TASKS), GLOBAL_AT(int, AT_ROWS), GLOBAL_AT(elem_t, AT_ACT));
		break;
	case OP_DOWN:
		moe_down_group(gx, gy, GLOBAL_AT(elem_t, AT_ACT), LAYER_AT(elem_t, AT_EXPERTS_DOWN),
			       LAYER_AT(elem_t, AT_SHARED_DOWN), GLOBAL_AT(int, AT_TASKS), GLOBAL_AT(int, AT_ROWS),
			       GLOBAL_AT(float, AT_Y));
		break;
	case OP_COMBINE:
		combine_norm_group(gy, x, GLOBAL_AT(float, AT_Y), GLOBAL_AT(float, AT_WEIGHTS),
				   GLOBAL_AT(float, AT_ROUTER_LOGITS), LAYER_AT(float, AT_NEXT_NORM), h, h32, 0, scratch);
		break;
	case OP_LAST_NORM:
		rms_norm_group(gy, step, work[WORK_LOGITS_AT], x, GLOBAL_AT(float, AT_FINAL_NORM), h, h32, scratch);
		break;
	}
}

/* The most that an operation needs. */
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

__kernel GROUP_SIZE void decode_step(__global int *step, int work_at, __global const ulong *at)
{
	__global const int *work = step + work_at;
	volatile __global int *next = step + work_at + WORK_NEXT, *done = step + work_at + WORK_DONE;
	__global const int *phase = work + WORK_INTS;
	int ready = -1; /* the phase that has been waited for, by its first ticket */
	LOCAL float memory[MEMORY];
	LOCAL int mine[1];
	GROUP_SCRATCH(scratch);
	GROUP_INT_SCRATCH(ids);

	for (;;) {
		__global const ulong *layer;
		int ticket, first;
		uint i, parts, x, y;

		BARRIER(); /* mine is read */
		if (LANE == 0)
			mine[0] = atomic_inc(next);
		BARRIER();
		ticket = mine[0];
		while (phase[PHASE_OP] != OP_END && ticket >= phase[PHASE_INTS + PHASE_FIRST])
			phase += PHASE_INTS;
		if (phase[PHASE_OP] == OP_END)
			return;
		first = phase[PHASE_FIRST];
		layer = at + AT_LAYERS + phase[PHASE_LAYER] * AT_LAYER_COUNT;
		i = (uint)(ticket - first);
		parts = CEIL_((uint)phase[PHASE_COLUMNS], (uint)phase[PHASE_TAKE]);
		x = i % parts * (uint)phase[PHASE_TAKE];
		y = i / parts;
		if (ready != first) {
			__global const elem_t *W = product_weights(at, layer, phase[PHASE_OP]);
			uint K = product_terms(phase[PHASE_OP]), panels = NPG * WIDTH / 16;
			uint lines = W ? (uint)phase[PHASE_TAKE] * panels * PANEL_LINES(K) : 0;
			__global const uchar *from = W ? (__global const uchar *)PANEL(W, x * panels, K) : 0;

			/* Weights are there for everybody at any time: what will be read first comes meanwhile. */
			for (uint turn = 0; LANE == 0 && *done < first; turn++)
				if (turn < lines)
					PREFETCH(from + turn * 64);
				else
					WAIT(turn - lines);
			BARRIER();
			mem_fence(CLK_GLOBAL_MEM_FENCE);
			ready = first;
		}
		for (uint end = MIN_(x + (uint)phase[PHASE_TAKE], (uint)phase[PHASE_COLUMNS]); x < end; x++)
			part(step, work, at, phase[PHASE_OP], layer, x, y, memory, scratch, ids);
		mem_fence(CLK_GLOBAL_MEM_FENCE);
		BARRIER();
		if (LANE == 0)
			atomic_inc(done);
	}
}

/* at[i] = where a buffer is. */
__kernel GROUP_SIZE void address(__global uchar *buffer, __global ulong *at, uint i)
{
	if (LANE == 0)
		at[i] = (ulong)buffer;
}
