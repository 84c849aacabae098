/* A whole decode step except the draws in one launch, on an NVIDIA GPU, for up to ROWS rows of one token each.
 *
 * There is a group for each multiprocessor, and all of them run at the same time. They go through the phases of the work
 * list (kernels/step.h; engine/decode_work.c) together: a group does its share of a phase, which follows from its number
 * alone, counts itself as done, and waits until all groups are done. Meanwhile its first weights of the next phase are on
 * their way into registers. A wait of WAIT_NS means that a group is lost. Then the step ends, and all logits are NaN, so
 * that its draws fail.
 *
 * A product is cut into chains (tensor.clh): 16 columns, the terms of one chain. A chain is the work of a team of warps.
 * Each warp has up to PART_STEPS steps of 16 terms and keeps their weights in registers. The sums go through the team
 * from warp to warp, because a chain's order of additions is fixed. A warp that has passed the sums on has loaded its
 * weights of the team's next chain already.
 *
 * What one group alone computes on a GPU in separate launches is computed by all groups here, where that saves a phase:
 * norms, and the choice of the experts. The bits are those of separate launches: the other operations are done by the
 * functions of their kernels, or have their order of additions.
 *
 *     step      the step table (kernels/step.h) with the work list at work_at; its counter WORK_DONE is written; in, out
 *     at        [AT_LAYERS + layers * AT_LAYER_COUNT] ulong, device addresses (kernels/step.h); in
 *
 * Local size: GROUP_LANES. Global size: no more groups than run at the same time. Options: those of the included files,
 * and of moe_route.cl and norm.cl; LANES 256; elements are bf16. Reference: separate launches, bit by bit
 * (tests/test_invariance.c).
 *
 * Source of the grid barrier and of loads ahead of it: AlpinDale's qwen_megakernel; the PTX ISA, "Memory Consistency
 * Model". */
#if BF16
#define STEP /* leaves out the __kernels of the included files */
#define ROWS	    8
#define WARPS	    16
#define GROUP_LANES (WARPS * 32)
#define HALVES	    2 /* of a group, of LANES each; the included functions take a half */
#define HALF	    ((uint)get_local_id(0) / LANES)
#define LANE	    ((uint)get_local_id(0) % LANES)
#define BARRIER()                                                                                  \
	__asm__ volatile("bar.sync %0, %1;" ::"r"((uint)get_local_id(0) / LANES + 1), "n"(LANES) : "memory")
#define LOCAL_BARRIER() BARRIER()
#define ALL_BARRIER()	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

#include "embed.cl"
#include "mma.clh"
#include "quads.clh"
#if HEADS
#include "attention_decode.cl"
#undef COLUMN_QUADS
#undef D_PARTS
#endif
#if HK
#include "delta_token.cl"
#endif

#define WAIT_NS 2000000000ul

#define THREAD	    (p->thread)
#define WARP	    (THREAD / 32)
#define WARP_LANE   (THREAD % 32)
#define WARP_SYNC() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")

#define CHAIN_TERMS 2048 /* tensor.clh */
#define PART_STEPS  16
#define PART_TERMS  (PART_STEPS * 16)
/* The warps of a team whose longest chain has so many terms. */
#define TEAM(terms)                                                                                \
	((terms) <= PART_TERMS ? 1u : (terms) <= 2 * PART_TERMS ? 2u : (terms) <= 4 * PART_TERMS ? 4u : 8u)

#define SLOTS	 (TOPK + 1) /* of a token: its experts, then the shared one */
#define CHOICES	 (ROWS * TOPK)
#define H_LD	 (LD(HIDDEN) + 8) /* rows begin in different banks of local memory */
#define H_FLOATS (ROWS * H_LD / 2)
#define DOWN_TERMS MAX_(EXPERTS ? LD(EXPERT_SIZE) : 0, LD(SHARED_SIZE))
#define ROUTER_PART 128 /* PART of router.cl */

/* Local memory of a phase, in floats. The normed rows of OP_ROUTER are kept until OP_GATE_UP. */
#if HEADS
#define SPLIT_WEIGHTS_AT (SHARERS * HD)
#define SPLIT_PARTS_AT	 (SPLIT_WEIGHTS_AT + SHARERS * SPLIT_TOKENS)
#define SPLIT_SCRATCH_AT (SPLIT_PARTS_AT + LANES * 4 * CHUNK)
#define SPLIT_KEY_AT	 (SPLIT_SCRATCH_AT + LANES)
#define MEMORY_1	 MAX_(MAX_(H_FLOATS, SPLIT_KEY_AT + HD), HALVES * 3 * LANES)
#else
#define MEMORY_1 H_FLOATS
#endif
#if HK
#define MEMORY_2 MAX_(MEMORY_1, HALVES * TOKEN_FLOATS)
#else
#define MEMORY_2 MEMORY_1
#endif
#define MEMORY MAX_(MEMORY_2, ROWS * SLOTS * 16)

/* An expert that has rows. */
struct task {
	uint expert, rows; /* rows: bit r for row r */
	uint slots;	   /* four bits for each row: the number of the choice among the row's */
};

struct place {
	__global const int *step, *work;
	__global const ulong *table;	  /* all addresses; these are in local memory: */
	LOCAL const ulong *at, *layer;	  /* `at`: addresses of all buffers; `layer`: of the layer's own */
	LOCAL ulong *layers;		  /* [2][AT_LAYER_COUNT] of layers with even and odd numbers */
	LOCAL int *coming;		  /* operation and layer of the phase after this one */
	LOCAL float *memory;		  /* [MEMORY] */
	LOCAL float *sums;		  /* [WARPS][128] sums that a warp receives */
	LOCAL uint *sent, *taken;	  /* [WARPS] of these, since the phase began */
	LOCAL float *scales;		  /* [ROWS] of norms */
	LOCAL float *weights, *gates;	  /* [ROWS][TOPK] of experts, [ROWS] of the shared one */
	LOCAL int *chosen;		  /* [ROWS][TOPK] */
	LOCAL struct task *tasks;	  /* [CHOICES + 1] */
	LOCAL uint *n_tasks;		  /* [1] experts that have rows */
	uint rows, group, groups, thread;
};

/* Buffer i of the model, and buffer i of the layer (AT_* of kernels/step.h). */
#define GLOBAL_AT(type, i) ((__global type *)p->at[i])
#define LAYER_AT(type, i)  ((__global type *)p->layer[i])

/* ---- within a warp ---- */

static inline float from_lane(float x, uint lane)
{
	float r;

	__asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(x), "r"(lane));
	return r;
}

static inline float add_other(float x, uint distance)
{
	float r;

	__asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(x), "r"(distance));
	return x + r;
}

static inline float max_other(float x, uint distance)
{
	float r;

	__asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(x), "r"(distance));
	return fmax(x, r);
}

static inline uint warp_max(uint x)
{
	uint r;

	__asm__ volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(x));
	return r;
}

static inline uint warp_min(uint x)
{
	uint r;

	__asm__ volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(x));
	return r;
}

static inline uint warp_ballot(bool x)
{
	uint r, v = x;

	__asm__ volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; vote.sync.ballot.b32 %0, q, 0xffffffff;}"
			 : "=r"(r)
			 : "r"(v));
	return r;
}

/* Sends the sums to the warp that receives in slot `to`, as its message number n (from 1). */
GROUP_FUNCTION void send_sums(const struct place *p, uint to, uint n, const float acc[4])
{
	uint taken, at = (uint)(ulong)(p->taken + to), flag = (uint)(ulong)(p->sent + to);

	do
		__asm__ volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(taken) : "r"(at) : "memory");
	while (taken + 1 < n);
	SET_LOCAL_4(p->sums + (to * 32 + WARP_LANE) * 4, (float4)(acc[0], acc[1], acc[2], acc[3]));
	WARP_SYNC();
	if (WARP_LANE == 0)
		__asm__ volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(flag), "r"(n) : "memory");
}

/* Waits for message number n in slot `to`. */
GROUP_FUNCTION void receive_sums(const struct place *p, uint to, uint n, float acc[4])
{
	uint sent, at = (uint)(ulong)(p->sent + to), flag = (uint)(ulong)(p->taken + to);
	float4 v;

	do
		__asm__ volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(sent) : "r"(at) : "memory");
	while (sent < n);
	v = LOCAL_4(p->sums + (to * 32 + WARP_LANE) * 4);
	acc[0] = v.x;
	acc[1] = v.y;
	acc[2] = v.z;
	acc[3] = v.w;
	WARP_SYNC();
	if (WARP_LANE == 0)
		__asm__ volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(flag), "r"(n) : "memory");
}

/* ---- norms ---- */

/* Norms rows of the residual stream into p->memory as bf16, [rows][H_LD], and keeps their scales. With row_at >= 0 row
 * r is the token whose number is at row_at + r of the step table. The sum is that of norm.cl for 256 lanes: float i of
 * s[h] of a lane is the sum of lane 128 h + 4 lane + i there. */
GROUP_FUNCTION void norm_rows(const struct place *p, uint rows, int row_at, __global const float *w)
{
	__global const float *all = GLOBAL_AT(const float, AT_X);
	LOCAL elem_t *h = (LOCAL elem_t *)p->memory;

	if (WARP < rows) {
		__global const float *x = all + (ulong)(row_at < 0 ? (int)WARP : p->step[row_at + (int)WARP]) * LD(HIDDEN);
		float4 s[2] = {0, 0}, a;

#pragma unroll 4
		for (uint c0 = 0; c0 < LD(HIDDEN); c0 += 256)
#pragma unroll
			for (uint i = 0; i < 2; i++) {
				uint c = c0 + i * 128 + WARP_LANE * 4;

				if (LD(HIDDEN) % 256 == 0 || c < LD(HIDDEN)) {
					float4 v = GLOBAL_4(x + c);

					s[i] = fma(v, v, s[i]);
				}
			}
		a = s[0] + s[1];
#pragma unroll
		for (uint d = 16; d; d /= 2)
			a = (float4)(add_other(a.x, d), add_other(a.y, d), add_other(a.z, d), add_other(a.w, d));
		if (WARP_LANE == 0)
			p->scales[WARP] = 1.0f / sqrt(((a.x + a.z) + (a.y + a.w)) / HIDDEN + EPS);
	}
	ALL_BARRIER();
	for (uint c = THREAD * 4; c < LD(HIDDEN); c += GROUP_LANES * 4) {
		float4 v = GLOBAL_4(w + c);

		for (uint r = 0; r < rows; r++) {
			ulong t = (ulong)(row_at < 0 ? (int)r : p->step[row_at + (int)r]);
			float4 y = GLOBAL_4(all + t * LD(HIDDEN) + c) * p->scales[r] * v;

			*(LOCAL ushort4 *)(h + r * H_LD + c) =
				(ushort4)(bf16_round(y.x), bf16_round(y.y), bf16_round(y.z), bf16_round(y.w));
		}
	}
	ALL_BARRIER();
}

/* ---- products ---- */

/* The kinds of products: PANELS stores the columns of a panel of one chain, ADD adds them to the residual stream, and
 * ADD_TWO those of two chains. In ADD_TWO and GATE_UP two neighbouring teams work on a panel, or on a gate panel and an
 * up panel; the first of them gets the other's sums. */
#define PANELS	0
#define ADD	1
#define ADD_TWO 2
#define GATE_UP 3
#define DOWN	4
#define IN_PAIRS(kind) ((kind) == ADD_TWO || (kind) == GATE_UP)

struct product {
	int kind;
	uint K;			     /* terms of a sum */
	uint team;		     /* warps of a team */
	__global const elem_t *W;    /* matrix; of the experts in GATE_UP and DOWN */
	__global const elem_t *more; /* matrix of the shared expert */
	uint panels, first_panel;    /* first_panel: of DOWN, which computes one panel at a time */
	__global const elem_t *A;    /* rows in global memory; of ADD, ADD_TWO, DOWN */
	uint rows;
	__global float *C;
	uint ldc;
};

/* A chain that a team computes. */
struct chain {
	__global const elem_t *w; /* its weights; 0: the team has no more chains */
	uint terms;
	uint panel, task; /* of 16 columns; task: in GATE_UP and DOWN, n_tasks is the shared expert */
};

/* Returns chain j of the warp's team. */
GROUP_FUNCTION struct chain chain_of(const struct place *p, const struct product *d, uint j)
{
	const uint teams = WARPS / d->team, team = WARP / d->team, side = team % 2;
	struct chain c = {0, d->K, 0, 0};
	uint i;

	switch (d->kind) {
	case PANELS:
	case ADD:
		c.panel = (j * teams + team) * p->groups + p->group;
		if (c.panel < d->panels)
			c.w = d->W + (ulong)c.panel * d->K * 16;
		break;
	case ADD_TWO:
		c.panel = j * p->groups + p->group;
		c.terms = side ? d->K - CHAIN_TERMS : CHAIN_TERMS;
		if (c.panel < d->panels)
			c.w = d->W + ((ulong)c.panel * d->K + side * CHAIN_TERMS) * 16;
		break;
	case GATE_UP:
		i = (j * (teams / 2) + team / 2) * p->groups + p->group;
		c.panel = i;
		if (i < LD(SHARED_SIZE) / 16) {
			c.task = *p->n_tasks;
			c.w = d->more + (ulong)(i * 2 + side) * d->K * 16;
		}
#if EXPERTS
		else {
			i -= LD(SHARED_SIZE) / 16;
			c.task = i / (LD(EXPERT_SIZE) / 16);
			c.panel = i % (LD(EXPERT_SIZE) / 16);
			if (c.task < *p->n_tasks)
				c.w = d->W + ((ulong)p->tasks[c.task].expert * 2 * LD(EXPERT_SIZE) +
					      (c.panel * 2 + side) * 16) * d->K;
		}
#endif
		break;
	case DOWN:
		c.panel = d->first_panel;
		c.task = j * teams + team;
		if (c.task == *p->n_tasks) {
			c.terms = LD(SHARED_SIZE);
			c.w = d->more + (ulong)c.panel * LD(SHARED_SIZE) * 16;
		}
#if EXPERTS
		else if (c.task < *p->n_tasks) {
			c.terms = LD(EXPERT_SIZE);
			c.w = d->W + ((ulong)p->tasks[c.task].expert * LD(HIDDEN) + c.panel * 16) * LD(EXPERT_SIZE);
		}
#endif
		break;
	}
	return c;
}

/* Returns how many steps the warp has of a chain. */
GROUP_FUNCTION uint steps_of(const struct place *p, const struct product *d, const struct chain *c)
{
	uint first = WARP % d->team * PART_STEPS, steps = c->terms / 16;

	if (!c->w)
		return 0;
	return first >= steps ? 0 : MIN_(steps - first, (uint)PART_STEPS);
}

#define LOAD_ONCE(v, at)                                                                           \
	__asm__ volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"                \
			 : "=r"((v).x), "=r"((v).y), "=r"((v).z), "=r"((v).w)                      \
			 : "l"(at))

/* The lane's first weights of a chain. */
#define LANE_WEIGHTS(d, c) ((c).w + (WARP % (d)->team * PART_TERMS * 16 + WARP_LANE * 8))

GROUP_FUNCTION void load_chain(const struct place *p, const struct product *d, const struct chain *c,
			       uint4 w[PART_STEPS])
{
	uint n = steps_of(p, d, c);
	__global const elem_t *from = LANE_WEIGHTS(d, *c);

#pragma unroll
	for (uint i = 0; i < PART_STEPS; i++) {
		w[i] = 0;
		if (i < n)
			LOAD_ONCE(w[i], from + i * 256);
	}
}

/* Returns the rows of a chain's task (bit r for row r), and the slot of one of them. */
GROUP_FUNCTION uint task_rows(const struct place *p, uint task)
{
	return task == *p->n_tasks ? (1u << p->rows) - 1 : p->tasks[task].rows;
}

GROUP_FUNCTION uint task_slot(const struct place *p, uint task, uint row)
{
	return task == *p->n_tasks ? (uint)TOPK : p->tasks[task].slots >> 4 * row & 15;
}

/* Returns the two pairs of terms that the lane has of its row, from term k on, in global memory. */
static inline uint2 pairs_at(__global const elem_t *a)
{
	return (uint2)(*(__global const uint *)a, *(__global const uint *)(a + 8));
}

/* Takes the sums of a finished chain, number n of its team. */
GROUP_FUNCTION void finish(const struct place *p, const struct product *d, const struct chain *c, uint n, float acc[4])
{
	const uint team = WARP / d->team, slot = team / 2 * 2 * d->team;
	float more[4];

	if (IN_PAIRS(d->kind) && team % 2) {
		send_sums(p, slot, n, acc);
		return;
	}
	if (IN_PAIRS(d->kind))
		receive_sums(p, slot, n, more);
#pragma unroll
	for (uint e = 0; e < 4; e++) {
		uint row = WARP_LANE % 4 * 2 + e % 2, column = c->panel * 16 + WARP_LANE / 4 + e / 2 * 8;
		__global float *to = d->C + (ulong)row * d->ldc + column;

		if (row >= d->rows)
			continue;
		switch (d->kind) {
		case PANELS: *to = acc[e]; break;
		case ADD: *to = *to + acc[e]; break;
		case ADD_TWO: *to = (*to + acc[e]) + more[e]; break;
		case GATE_UP:
			if (task_rows(p, c->task) >> row & 1)
				E_STORE(silu_v(acc[e]) * more[e],
					GLOBAL_AT(elem_t, AT_ACT) +
						(ulong)(row * SLOTS + task_slot(p, c->task, row)) * ACT_LD + column);
			break;
		case DOWN:
			if (task_rows(p, c->task) >> row & 1)
				p->memory[(row * SLOTS + task_slot(p, c->task, row)) * 16 + column % 16] = acc[e];
			break;
		}
	}
}

/* Computes the team's chains. w: the warp's weights of the first one. */
GROUP_FUNCTION void multiply(const struct place *p, const struct product *d, uint4 w[PART_STEPS])
{
	const uint part = WARP % d->team, row = MIN_(WARP_LANE / 4, d->rows - 1);
	const uint first = part * PART_TERMS + WARP_LANE % 4 * 2; /* the lane's first term */
	LOCAL const elem_t *h = (LOCAL const elem_t *)p->memory + row * H_LD + first;
	const bool fetched = d->kind == ADD || d->kind == ADD_TWO || d->kind == DOWN;
	struct chain c = chain_of(p, d, 0);

	for (uint j = 0; c.w; j++) {
		struct chain next = chain_of(p, d, j + 1);
		uint n = steps_of(p, d, &c), n_next = steps_of(p, d, &next);
		__global const elem_t *from = LANE_WEIGHTS(d, next);
		__global const elem_t *a = d->A + first;
		uint2 b[PART_STEPS];
		float acc[4] = {0, 0, 0, 0};

		if (d->kind == DOWN)
			a += (ulong)(row * SLOTS + task_slot(p, c.task, row)) * ACT_LD;
		else if (fetched)
			a += (ulong)row * d->K + (d->kind == ADD_TWO && WARP / d->team % 2 ? CHAIN_TERMS : 0);
		if (fetched)
#pragma unroll
			for (uint i = 0; i < PART_STEPS; i++)
				b[i] = i < n ? pairs_at(a + i * 16) : (uint2)0;
		if (part)
			receive_sums(p, WARP, j + 1, acc);
#pragma unroll
		for (uint i = 0; i < PART_STEPS; i++) {
			if (i < n) {
				if (!fetched)
					b[i] = (uint2)(*(LOCAL const uint *)(h + i * 16),
						       *(LOCAL const uint *)(h + i * 16 + 8));
				MMA_BF16(acc, w[i].x, w[i].y, w[i].z, w[i].w, b[i].x, b[i].y);
			}
			if (i < n_next)
				LOAD_ONCE(w[i], from + i * 256);
		}
		if (part + 1 < d->team)
			send_sums(p, WARP + 1, j + 1, acc);
		else
			finish(p, d, &c, j + 1, acc);
		c = next;
	}
}

/* Returns a product of the normed rows whose results are stored. */
GROUP_FUNCTION struct product stored_product(const struct place *p, int op)
{
	struct product d = {.kind = PANELS, .K = LD(HIDDEN), .team = TEAM(LD(HIDDEN)), .rows = p->rows};

	d.W = LAYER_AT(const elem_t, AT_IN_PROJ);
	d.C = GLOBAL_AT(float, AT_PROJ);
	d.ldc = LD(VOCAB);
#if HEADS
	if (op == OP_ATTENTION_IN)
		d.ldc = ATTENTION_LD;
#endif
#if HK
	if (op == OP_DELTA_IN)
		d.ldc = DELTA_LD;
#endif
	if (op == OP_LOGITS) {
		d.W = GLOBAL_AT(const elem_t, AT_LM_HEAD);
		d.C = GLOBAL_AT(float, AT_LOGITS);
		d.rows = (uint)p->work[WORK_LOGITS];
	}
	d.panels = d.ldc / 16;
	return d;
}

/* Returns the product of a mixer's output, K columns, whose results are added to the residual stream. */
GROUP_FUNCTION struct product added_product(const struct place *p, uint K)
{
	struct product d = {.kind = K > CHAIN_TERMS ? ADD_TWO : ADD, .K = K, .rows = p->rows};

	d.team = TEAM(MIN_(K, (uint)CHAIN_TERMS));
	d.W = LAYER_AT(const elem_t, AT_OUT_PROJ);
	d.A = GLOBAL_AT(const elem_t, AT_MIXED);
	d.C = GLOBAL_AT(float, AT_X);
	d.ldc = LD(HIDDEN);
	d.panels = LD(HIDDEN) / 16;
	return d;
}

GROUP_FUNCTION struct product gate_up_product(const struct place *p)
{
	struct product d = {.kind = GATE_UP, .K = LD(HIDDEN), .team = TEAM(LD(HIDDEN)), .rows = p->rows};

	d.W = LAYER_AT(const elem_t, AT_EXPERTS_GATE_UP);
	d.more = LAYER_AT(const elem_t, AT_SHARED_GATE_UP);
	return d;
}

GROUP_FUNCTION struct product down_product(const struct place *p, uint panel)
{
	struct product d = {.kind = DOWN, .K = DOWN_TERMS, .team = TEAM(DOWN_TERMS), .rows = p->rows};

	d.W = LAYER_AT(const elem_t, AT_EXPERTS_DOWN);
	d.more = LAYER_AT(const elem_t, AT_SHARED_DOWN);
	d.A = GLOBAL_AT(const elem_t, AT_ACT);
	d.first_panel = panel;
	return d;
}

/* ---- mixers ---- */

#if HEADS
/* Norms and rotates one head in `out` [HD], by a warp, with the sums of attention.cl for 64 lanes. */
GROUP_FUNCTION void prepare_head(const struct place *p, __global const float *in, __global const float *w,
				 __global const float *angle, LOCAL float *out)
{
	float even = 0, odd = 0, total, scale;

#pragma unroll
	for (uint c = WARP_LANE; c < HD; c += 64) {
		float v = in[c], u = c + 32 < HD ? in[c + 32] : 0.0f;

		even = fma(v, v, even);
		odd = c + 32 < HD ? fma(u, u, odd) : odd;
	}
	total = even + odd;
#pragma unroll
	for (uint d = 16; d; d /= 2)
		total = add_other(total, d);
	scale = 1.0f / sqrt(total / HD + EPS);
	for (uint c = WARP_LANE; c < HD; c += 32)
		out[c] = in[c] * scale * w[c];
	WARP_SYNC();
	for (uint j = WARP_LANE; j < ROT / 2; j += 32) {
		float a = out[j], b = out[j + ROT / 2], co = angle[j], si = angle[ROT / 2 + j];

		out[j] = a * co - b * si;
		out[j + ROT / 2] = b * co + a * si;
	}
	WARP_SYNC();
}

/* Writes the key in `key`, and the value of the same token, into their pages (attention.cl), by a warp. */
GROUP_FUNCTION void keep_key(const struct place *p, LOCAL const float *key, __global const float *value, ulong page,
			     uint g, uint at, __global elem_t *k_pages, __global elem_t *v_pages)
{
	__global elem_t *k = k_pages + (page * KV_HEADS + g) * HD * PAGE + at;
	__global elem_t *v = v_pages + ((page * KV_HEADS + g) * PAGE + at) * HD;

	for (uint c = WARP_LANE; c < HD; c += 32) {
		E_STORE(key[c], k + c * PAGE);
		E_STORE(value[c], v + c);
	}
}

/* Computes the group's splits. A split prepares its queries for itself; the split that has the token's own position
 * prepares its key too. The first half of the group does it. */
GROUP_FUNCTION void attention_splits(const struct place *p)
{
	const uint n = (uint)p->work[WORK_SPLITS] * KV_HEADS;
	LOCAL float *queries = p->memory, *weights = p->memory + SPLIT_WEIGHTS_AT, *parts = p->memory + SPLIT_PARTS_AT;
	LOCAL float *scratch = p->memory + SPLIT_SCRATCH_AT, *key = p->memory + SPLIT_KEY_AT;
	__global elem_t *k_pages = LAYER_AT(elem_t, AT_K_PAGES), *v_pages = LAYER_AT(elem_t, AT_V_PAGES);

	for (uint i = p->group; i < n && HALF == 0; i += p->groups) {
		uint slot = i / KV_HEADS, g = i % KV_HEADS;
		__global const int *split = p->step + p->work[WORK_SPLITS_AT] + slot * SPLIT_INTS;
		__global const int *row = p->step + p->work[WORK_ROWS_AT] + split[SPLIT_ROW] * ROW_INTS;
		__global const int *pages = p->step + row[ROW_PAGES_AT];
		uint first = (uint)split[SPLIT_NUMBER] * SPLIT_TOKENS, position = (uint)row[ROW_START];
		uint keys = MIN_(position + 1 - first, (uint)SPLIT_TOKENS);
		ulong head = (ulong)slot * HEADS + g * SHARERS, t = (ulong)row[ROW_TOKEN];
		__global const float *in = GLOBAL_AT(const float, AT_PROJ) + t * ATTENTION_LD;
		__global const float *angle = GLOBAL_AT(const float, AT_ROPE) + t * ROT;

		BARRIER(); /* the split before has been used */
		for (uint s = WARP; s < SHARERS; s += LANES / 32)
			prepare_head(p, in + (g * SHARERS + s) * QUERY_LD, LAYER_AT(const float, AT_Q_NORM), angle,
				     queries + s * HD);
		if (WARP == LANES / 32 - 1 && position < first + SPLIT_TOKENS) {
			prepare_head(p, in + KEYS_AT + g * HD, LAYER_AT(const float, AT_K_NORM), angle, key);
			keep_key(p, key, in + VALUES_AT + g * HD, (ulong)pages[position / PAGE], g, position % PAGE,
				 k_pages, v_pages);
		}
		BARRIER();
		split_scores(pages, g, first, keys, k_pages, queries, weights, parts);
		split_weights(keys, weights, GLOBAL_AT(float, AT_STATS) + 2 * head, scratch);
		split_values(pages, g, first, keys, v_pages, weights, GLOBAL_AT(float, AT_PARTIAL) + head * HD, parts);
	}
}

GROUP_FUNCTION void attention_combines(const struct place *p)
{
	LOCAL float *own = p->memory + HALF * 3 * LANES;

	for (uint i = p->group + HALF * p->groups; i < p->rows * HEADS; i += HALVES * p->groups)
		attention_combine_group(p->step + p->work[WORK_ROWS_AT] + i / HEADS * ROW_INTS, i % HEADS,
					GLOBAL_AT(const float, AT_PROJ), GLOBAL_AT(const float, AT_PARTIAL),
					GLOBAL_AT(const float, AT_STATS), GLOBAL_AT(elem_t, AT_MIXED), own, own + LANES,
					own + 2 * LANES);
}
#endif

#if HK
/* Value heads of rows are numbered; this is the row of number i. */
#define DELTA_ROW(i) (p->step + p->work[WORK_ROWS_AT] + (i) / HV * ROW_INTS)

/* Loads the state of the half's first value head. */
GROUP_FUNCTION void load_first_state(const struct place *p, uint4 w[PART_STEPS])
{
	uint i = p->group + HALF * p->groups;
	float4 S[LANE_ROWS];

#pragma unroll
	for (uint k = 0; k < PART_STEPS; k++)
		w[k] = 0;
	if (i >= p->rows * HV)
		return;
	load_state(DELTA_ROW(i), i % HV, LAYER_AT(const float, AT_STATE), S);
#pragma unroll
	for (uint k = 0; k < LANE_ROWS; k++)
		w[k] = as_uint4(S[k]);
}

/* w: from load_first_state. */
GROUP_FUNCTION void delta_heads(const struct place *p, const uint4 w[PART_STEPS])
{
	LOCAL float *own = p->memory + HALF * TOKEN_FLOATS;
	float4 S[LANE_ROWS];

#pragma unroll
	for (uint k = 0; k < LANE_ROWS; k++)
		S[k] = as_float4(w[k]);
	for (uint i = p->group + HALF * p->groups; i < p->rows * HV; i += HALVES * p->groups) {
		if (i >= HALVES * p->groups)
			load_state(DELTA_ROW(i), i % HV, LAYER_AT(const float, AT_STATE), S);
		delta_token_group(DELTA_ROW(i), i % HV, GLOBAL_AT(const float, AT_PROJ), LAYER_AT(const float, AT_CONV),
				  LAYER_AT(const float, AT_NEG_A), LAYER_AT(const float, AT_DT_BIAS),
				  LAYER_AT(const float, AT_NORM), LAYER_AT(float, AT_RING), LAYER_AT(float, AT_STATE),
				  GLOBAL_AT(elem_t, AT_MIXED), S, own);
	}
}
#endif

/* ---- routing ---- */

#if EXPERTS
#define ROUTER_LD LD(EXPERTS + 1)
/* A group computes 8 columns of the router's product. A warp has a part of the sums (router.cl), and a lane a quarter of
 * a part's terms for one column. */
#define QUARTER	       (ROUTER_PART / 4)
#define QUARTER_TERM() (WARP * ROUTER_PART + WARP_LANE / 8 * QUARTER)

/* Loads the lane's weights. */
GROUP_FUNCTION void load_router(const struct place *p, uint4 w[PART_STEPS])
{
	const uint column = p->group * 8 + WARP_LANE % 8, k = QUARTER_TERM();
	__global const uint *W = LAYER_AT(const uint, AT_ROUTER) + (ulong)(column / 16) * LD(HIDDEN) * 16 + column % 16;

#pragma unroll
	for (uint i = 0; i < PART_STEPS; i++)
		w[i] = 0;
	if (p->group * 8 >= ROUTER_LD)
		return;
#define WEIGHT_AT(i) (k + (i) < LD(HIDDEN) ? W[(k + (i)) * 16] : 0)
#pragma unroll
	for (uint i = 0; i < QUARTER / 4; i++)
		w[i] = (uint4)(WEIGHT_AT(4 * i), WEIGHT_AT(4 * i + 1), WEIGHT_AT(4 * i + 2), WEIGHT_AT(4 * i + 3));
#undef WEIGHT_AT
}

/* Computes the router logits of all rows in the group's 8 columns. The four lanes that have a part's terms of a column
 * work on four rows at the same time: in round i the lane with quarter q has row i - q, and gets the sum of the quarter
 * before from its neighbour. */
GROUP_FUNCTION void router_columns(const struct place *p, __global const float *norm, const uint4 w[PART_STEPS])
{
	const uint quarter = WARP_LANE / 8, k = QUARTER_TERM(), parts = CEIL_(LD(HIDDEN), ROUTER_PART);
	const uint n = k < LD(HIDDEN) ? MIN_(LD(HIDDEN) - k, (uint)QUARTER) : 0;
	float sum = 0;

	if (p->group * 8 >= ROUTER_LD)
		return;
	for (uint i = 0; i < p->rows + 3 && WARP < parts; i++) {
		uint row = i - quarter;
		float part = from_lane(sum, WARP_LANE - 8);

		if (quarter == 0)
			part = 0;
		if (row < p->rows) {
			__global const float *x = GLOBAL_AT(const float, AT_X) + (ulong)row * LD(HIDDEN) + k;
			float scale = p->scales[row];

#pragma unroll
			for (uint t = 0; t < QUARTER / 4; t++)
				if (t * 4 < n) {
					float4 v = GLOBAL_4(x + t * 4) * scale * GLOBAL_4(norm + k + t * 4);

					part = fma(v.x, as_float(w[t].x), part);
					part = fma(v.y, as_float(w[t].y), part);
					part = fma(v.z, as_float(w[t].z), part);
					part = fma(v.w, as_float(w[t].w), part);
				}
			if (quarter == 3)
				p->sums[(row * WARPS + WARP) * 8 + WARP_LANE % 8] = part;
		}
		sum = part;
	}
	ALL_BARRIER();
	if (THREAD < p->rows * 8) {
		float all = 0;

		for (uint i = 0; i < parts; i++)
			all += p->sums[(THREAD / 8 * WARPS + i) * 8 + THREAD % 8];
		GLOBAL_AT(float, AT_ROUTER_LOGITS)[THREAD / 8 * ROUTER_LD + p->group * 8 + THREAD % 8] = all;
	}
}

#define LANE_EXPERTS CEIL_(EXPERTS, 32)

/* Chooses the experts of row `row`, by a warp, as moe_topk does with 256 lanes. Lane l has the experts l, l + 32 ... */
GROUP_FUNCTION void choose_experts(const struct place *p, uint row)
{
	__global const float *in = GLOBAL_AT(const float, AT_ROUTER_LOGITS) + row * ROUTER_LD;
	uint keys[LANE_EXPERTS]; /* ordered as the probabilities: 0 taken or none, 1 not a number */
	float most = -INFINITY, sums[8] = {0}, sum, own = 0, kept = 0;

#pragma unroll
	for (uint i = 0; i < LANE_EXPERTS; i++)
		if (i * 32 + WARP_LANE < EXPERTS)
			most = fmax(most, in[i * 32 + WARP_LANE]);
#pragma unroll
	for (uint d = 16; d; d /= 2)
		most = max_other(most, d);
#pragma unroll
	for (uint i = 0; i < LANE_EXPERTS; i++) {
		keys[i] = 0;
		if (i * 32 + WARP_LANE < EXPERTS) {
			float x = exp(in[i * 32 + WARP_LANE] - most);

			sums[i % 8] += x;
			keys[i] = isnan(x) ? 1 : as_uint(x) + 2;
		}
	}
	sum = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
#pragma unroll
	for (uint d = 16; d; d /= 2)
		sum = add_other(sum, d);
	for (uint k = 0; k < TOPK; k++) {
		uint best = 0, id = UINT_MAX, expert;

#pragma unroll
		for (uint i = 0; i < LANE_EXPERTS; i++)
			best = MAX_(best, keys[i]);
		best = warp_max(best);
#pragma unroll
		for (uint i = LANE_EXPERTS; i-- > 0;)
			id = keys[i] == best ? i * 32 + WARP_LANE : id;
		expert = warp_min(id);
#pragma unroll
		for (uint i = 0; i < LANE_EXPERTS; i++)
			if (i * 32 + WARP_LANE == expert)
				keys[i] = 0;
		if (WARP_LANE == k) {
			own = (best == 1 ? -1.0f : as_float(best - 2)) / sum;
			p->chosen[row * TOPK + k] = (int)expert;
		}
	}
	for (uint k = 0; k < TOPK; k++)
		kept += from_lane(own, k);
	if (WARP_LANE < TOPK)
		p->weights[row * TOPK + WARP_LANE] = NORM_TOPK ? own / kept : own;
	if (WARP_LANE == 0)
#if SHARED_GATE
		p->gates[row] = 1.0f / (1.0f + exp(-in[EXPERTS]));
#else
		p->gates[row] = 1.0f;
#endif
}

/* Makes the list of experts that have rows, by a warp. An expert's place is that of its first choice. */
GROUP_FUNCTION void list_tasks(const struct place *p)
{
	const uint n = p->rows * TOPK;
	uint n_tasks = 0;

	for (uint i0 = 0; i0 < n; i0 += 32) {
		uint i = i0 + WARP_LANE, bits;
		int expert = i < n ? p->chosen[i] : -1;
		bool first = i < n;

		for (uint k = 0; k < i && k < n; k++)
			first = first && p->chosen[k] != expert;
		bits = warp_ballot(first);
		if (first) {
			LOCAL struct task *t = &p->tasks[n_tasks + popcount(bits & ((1u << WARP_LANE) - 1))];
			uint rows = 0, slots = 0;

			for (uint k = i; k < n; k++)
				if (p->chosen[k] == expert) {
					rows |= 1u << k / TOPK;
					slots |= k % TOPK << 4 * (k / TOPK);
				}
			t->expert = (uint)expert;
			t->rows = rows;
			t->slots = slots;
		}
		n_tasks += popcount(bits);
	}
	if (WARP_LANE == 0)
		*p->n_tasks = n_tasks;
}
#endif

/* Chooses the experts of all rows. Without experts there is the shared one alone. */
GROUP_FUNCTION void route(const struct place *p)
{
#if EXPERTS
	if (WARP < p->rows)
		choose_experts(p, WARP);
	ALL_BARRIER();
	if (WARP == 0)
		list_tasks(p);
#else
	if (THREAD < ROWS)
		p->gates[THREAD] = 1.0f;
	if (THREAD == 0)
		*p->n_tasks = 0;
#endif
	ALL_BARRIER();
}

/* Computes the experts' outputs in the group's panels, and adds their sum to the residual stream (norm.cl). w: the
 * warp's weights of its first chain. */
GROUP_FUNCTION void down_panels(const struct place *p, uint4 w[PART_STEPS])
{
	for (uint panel = p->group; panel < LD(HIDDEN) / 16; panel += p->groups) {
		struct product d = down_product(p, panel);

		if (panel != p->group) {
			struct chain c = chain_of(p, &d, 0);

			ALL_BARRIER(); /* the panel before is stored */
			if (THREAD < WARPS)
				p->sent[THREAD] = p->taken[THREAD] = 0;
			load_chain(p, &d, &c, w);
			ALL_BARRIER();
		}
		multiply(p, &d, w);
		ALL_BARRIER();
		if (THREAD < p->rows * 16) {
			uint row = THREAD / 16, column = THREAD % 16;
			__global float *x = GLOBAL_AT(float, AT_X) + (ulong)row * LD(HIDDEN) + panel * 16 + column;
			LOCAL const float *y = p->memory + row * SLOTS * 16 + column;
			float sum = 0;

			for (uint k = 0; k < TOPK; k++)
				sum = fma(p->weights[row * TOPK + k], y[k * 16], sum);
			sum = fma(p->gates[row], y[TOPK * 16], sum);
			*x = *x + sum;
		}
	}
}

/* ---- phases ---- */

/* Begins to load what a phase reads first and no phase of this step has written. */
GROUP_FUNCTION void load_ahead(const struct place *p, int op, uint4 w[PART_STEPS])
{
	struct product d;
	struct chain c = {0, 0, 0, 0};

	switch (op) {
	case OP_ATTENTION_IN:
	case OP_DELTA_IN:
	case OP_LOGITS: d = stored_product(p, op); break;
#if HEADS
	case OP_ATTENTION_OUT: d = added_product(p, HEADS * HD); break;
#endif
#if HK
	case OP_DELTA_OUT: d = added_product(p, HV * DV); break;
	case OP_DELTA: load_first_state(p, w); return;
#endif
#if EXPERTS
	case OP_ROUTER: load_router(p, w); return;
#endif
	case OP_GATE_UP: d = gate_up_product(p); break;
	case OP_DOWN: d = down_product(p, p->group); break;
	default:
#pragma unroll
		for (uint i = 0; i < PART_STEPS; i++)
			w[i] = 0;
		return;
	}
	/* The experts are not known yet. */
	if (op != OP_GATE_UP || (WARP / d.team / 2) * p->groups + p->group < LD(SHARED_SIZE) / 16)
		if (op != OP_DOWN || p->group < LD(HIDDEN) / 16)
			c = chain_of(p, &d, 0);
	load_chain(p, &d, &c, w);
}

GROUP_FUNCTION void do_phase(const struct place *p, int op, uint4 w[PART_STEPS])
{
	struct product d;

	switch (op) {
	case OP_EMBED:
		for (uint t = p->group; t < p->rows && HALF == 0; t += p->groups)
			embed_group(t, p->step, p->work[WORK_TOKENS_AT], p->work[WORK_POSITIONS_AT],
				    GLOBAL_AT(const int, AT_RESULT), GLOBAL_AT(const elem_t, AT_EMBED),
				    GLOBAL_AT(const float, AT_INV_FREQ), GLOBAL_AT(float, AT_X),
				    GLOBAL_AT(float, AT_ROPE));
		break;
	case OP_ATTENTION_IN:
	case OP_DELTA_IN:
	case OP_LOGITS:
		d = stored_product(p, op);
		norm_rows(p, d.rows, op == OP_LOGITS ? p->work[WORK_LOGITS_AT] : -1,
			  op == OP_LOGITS ? GLOBAL_AT(const float, AT_FINAL_NORM) : LAYER_AT(const float, AT_INPUT_NORM));
		multiply(p, &d, w);
		break;
#if HEADS
	case OP_ATTENTION: attention_splits(p); break;
	case OP_ATTENTION_COMBINE: attention_combines(p); break;
	case OP_ATTENTION_OUT:
		d = added_product(p, HEADS * HD);
		multiply(p, &d, w);
		break;
#endif
#if HK
	case OP_DELTA: delta_heads(p, w); break;
	case OP_DELTA_OUT:
		d = added_product(p, HV * DV);
		multiply(p, &d, w);
		break;
#endif
	case OP_ROUTER:
		norm_rows(p, p->rows, -1, LAYER_AT(const float, AT_POST_NORM));
#if EXPERTS
		router_columns(p, LAYER_AT(const float, AT_POST_NORM), w);
#endif
		break;
	case OP_GATE_UP: {
		struct chain c;

		d = gate_up_product(p);
		route(p);
		c = chain_of(p, &d, 0);
		if (c.task != *p->n_tasks)
			load_chain(p, &d, &c, w);
		multiply(p, &d, w);
		break;
	}
	case OP_DOWN: down_panels(p, w); break;
	}
}

/* Takes the operation and the layer of a phase to local memory, and the addresses of the layer's buffers. Global memory
 * would keep every phase waiting for them. The last phases belong to no layer. */
GROUP_FUNCTION void look_ahead(const struct place *p, __global const int *phase)
{
	if (WARP == WARPS - 1) {
		int op = phase[PHASE_OP], layer = phase[PHASE_LAYER];

		p->coming[0] = op;
		p->coming[1] = layer;
		if (op != OP_LOGITS && op != OP_END && WARP_LANE < AT_LAYER_COUNT)
			p->layers[layer % 2 * AT_LAYER_COUNT + WARP_LANE] =
				p->table[AT_LAYERS + layer * AT_LAYER_COUNT + WARP_LANE];
	}
}

/* Waits until all groups have counted `target` in *done. Returns whether they have. Meanwhile looks ahead to `phase`. */
GROUP_FUNCTION bool wait_for(const struct place *p, __global const int *done, uint target, __global const int *phase)
{
	ALL_BARRIER(); /* p->coming has been read */
	look_ahead(p, phase);
	if (THREAD == 0) {
		ulong now, begun = 0;
		uint x;

		for (uint turn = 1;; turn++) {
			__asm__ volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(done) : "memory");
			if (x >= target)
				break;
			if (turn % 1024 == 0) {
				__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
				begun = begun ? begun : now;
				if (now - begun > WAIT_NS)
					break;
			}
		}
		p->scales[ROWS] = x >= target;
	}
	if (THREAD < WARPS)
		p->sent[THREAD] = p->taken[THREAD] = 0;
	ALL_BARRIER();
	return p->scales[ROWS] != 0;
}

__kernel __attribute__((reqd_work_group_size(GROUP_LANES, 1, 1))) void decode_step(__global int *step, int work_at,
										   __global const ulong *at)
{
	LOCAL float memory[MEMORY] QUADS_ALIGNED, sums[WARPS * 128] QUADS_ALIGNED;
	LOCAL float scales[ROWS + 1], weights[MAX_(CHOICES, 1)], gates[ROWS];
	LOCAL uint sent[WARPS], taken[WARPS], n_tasks[1];
	LOCAL int chosen[MAX_(CHOICES, 1)];
	LOCAL struct task tasks[CHOICES + 1];
	__global const int *work = step + work_at, *phase = work + WORK_INTS, *done = work + WORK_DONE;
	LOCAL ulong all_at[AT_LAYERS], layers[2 * AT_LAYER_COUNT];
	LOCAL int coming[2];
	struct place place = {.step = step, .work = work, .table = at, .at = all_at, .layer = layers,
			      .layers = layers, .coming = coming, .memory = memory, .sums = sums,
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
	look_ahead(p, phase + PHASE_INTS);
	ALL_BARRIER();
	for (uint target = p->groups;; target += p->groups) {
		/* Makes the compiler believe that the lane's number changes here. Else it computes the addresses of all
		 * phases once and keeps them, in memory. */
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
		if (!wait_for(p, done, target, phase + PHASE_INTS))
			break;
	}
	for (uint i = THREAD; i < (uint)work[WORK_LOGITS] * LD(VOCAB); i += GROUP_LANES)
		GLOBAL_AT(float, AT_LOGITS)[i] = NAN;
}
#endif
