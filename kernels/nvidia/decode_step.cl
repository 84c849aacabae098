/* A whole decode step except the draws in one launch, on an NVIDIA GPU, for up to ROWS rows of one token each.
 *
 * There is a group for each multiprocessor, and all of them run at the same time. They go through the phases of the
 * work list (kernels/step.h; engine/decode_work.c) together: a group does its share of a phase, which follows from its
 * number alone, counts itself as done, and waits until all groups are done. Meanwhile its first weights of the next
 * phase are on their way into registers.
 *
 * Every group norms all rows for itself, and chooses the experts of all rows for itself. So all groups do this work,
 * but it is not a phase of its own, at whose end they would wait for each other. The bits are those of separate
 * launches: an operation is done by the functions of its kernel, or adds in the same order.
 *
 * It has no phases for layers with a sliding window, and none for norms of outputs (kernels/set.c says which shapes it
 * takes).
 *
 * The code is longer than the instruction cache, and a phase is short: so a loop is unrolled only where its loads have
 * to be under way together.
 *
 * The parts of this program; each uses only those before it:
 *
 *     step_group.clh      the threads of a group, their registers and local memory
 *     step_reduce.clh     sums and maxima of the lanes of a half; step_group.clh includes it, for the kernels' files
 *     step_warp.clh       exchange between the lanes of a warp, and between warps
 *     step_norm.clh       norms of rows
 *     step_product.clh    matrix products
 *     step_attention.clh  attention
 *     step_delta.clh      Gated DeltaNet
 *     step_router.clh     router logits, the choice of the experts, the list of the experts that have rows
 *     step_down.clh       the experts' outputs and their sum
 *     step_phases.clh     a group's share of each phase, and its loads before the phase
 *     step_prefetch.clh   data that is asked for in the L2 cache before its phase
 *     step_barrier.clh    the wait of all groups for each other between two phases
 *
 *     step      the step table (kernels/step.h) with the work list at work_at; its counter WORK_DONE is written;
 *               in and out
 *     at        [AT_LAYERS + layers * AT_LAYER_COUNT] ulong, device addresses (kernels/step.h); in
 *
 * Local size: GROUP_LANES. Global size: no more groups than run at the same time. Options: those of the included files,
 * and of moe_route.cl and norm.cl; LANES 256; elements are bf16. Reference: separate launches, bit by bit
 * (tests/test_invariance.c). */
#if BF16
#if WINDOW || OUT_NORMS
#error "there are no phases for such layers"
#endif
#include "step_group.clh"
#include "step_warp.clh"
#include "step_norm.clh"
#include "step_product.clh"
#if HEADS
#include "step_attention.clh"
#endif
#if HK
#include "step_delta.clh"
#endif
#include "step_router.clh"
#include "step_down.clh"
#include "step_phases.clh"
#include "step_prefetch.clh"
#include "step_barrier.clh"

/* Floats of `memory`, which the phases take in turns: the most that one of them needs. Attention has `sums` as well. */
#define SUMS (WARPS * 128)
#if HEADS
#define MEMORY_1 MAX_(MAX_(H_FLOATS, HALVES * SPLIT_FLOATS - SUMS), HALVES * 3 * LANES)
#else
#define MEMORY_1 H_FLOATS
#endif
#if HK
#define MEMORY_2 MAX_(MEMORY_1, HALVES * TOKEN_FLOATS)
#else
#define MEMORY_2 MEMORY_1
#endif
#define MEMORY MAX_(MEMORY_2, ROWS * SLOTS * 16)

__kernel __attribute__((reqd_work_group_size(GROUP_LANES, 1, 1))) void decode_step(__global int *step, int work_at,
										   __global const ulong *at)
{
	LOCAL float memory[MEMORY + SUMS] QUADS_ALIGNED;
	LOCAL float scales[ROWS + 1], weights[MAX_(CHOICES, 1)], gates[ROWS];
	LOCAL uint sent[WARPS], taken[WARPS], n_tasks[1];
	LOCAL int chosen[MAX_(CHOICES, 1)];
	LOCAL struct task tasks[CHOICES + 1];
	__global const int *work = step + work_at, *phase = work + WORK_INTS, *done = work + WORK_DONE;
	LOCAL ulong all_at[AT_LAYERS], layers[2 * AT_LAYER_COUNT];
	LOCAL int coming[2], row_ints[ROWS * ROW_INTS];
	struct place place = {.step = step, .work = work, .table = at, .at = all_at, .layer = layers,
			      .layers = layers, .row_ints = row_ints, .coming = coming,
			      .memory = memory, .sums = memory + MEMORY,
			      .sent = sent, .taken = taken, .scales = scales, .weights = weights, .gates = gates,
			      .chosen = chosen, .tasks = tasks, .n_tasks = n_tasks, .rows = (uint)work[WORK_TOKENS],
			      .group = (uint)get_group_id(0), .groups = (uint)get_num_groups(0),
			      .thread = (uint)get_local_id(0)};
	const struct place *p = &place;
	uint4 w[PART_STEPS];
	int op = OP_EMBED;

#pragma unroll
	for (uint i = 0; i < PART_STEPS; i++)
		w[i] = 0;
	if (THREAD == 0)
		n_tasks[0] = 0;
	if (THREAD < AT_LAYERS)
		all_at[THREAD] = at[THREAD];
	if (THREAD < p->rows * ROW_INTS)
		row_ints[THREAD] = step[work[WORK_ROWS_AT] + (int)THREAD];
	look_ahead(p, phase + PHASE_INTS);
	ALL_BARRIER();
	for (uint target = p->groups;; target += p->groups) {
		/* Makes the compiler believe that the thread's number changes here. Else it computes the addresses of
		 * all phases once and keeps them, in memory. */
		__asm__ volatile("" : "+r"(place.thread));
		do_phase(p, op, w);
		phase += PHASE_INTS;
		ALL_BARRIER();
		op = coming[0];
		if (op == OP_END)
			return;
		if (THREAD == 0)
			__asm__ volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(done) : "memory");
		place.layer = layers + coming[1] % 2 * AT_LAYER_COUNT;
		__asm__ volatile("" : "+r"(place.thread));
		load_ahead(p, op, w);
		prefetch_later(p, op);
		if (!wait_for(p, done, target, phase + PHASE_INTS))
			return;
	}
}
#endif
