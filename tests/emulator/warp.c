#include "tests/emulator/warp.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/macros.h"

enum { LANES_MAX = 1024, STACK = 256 << 10, PATIENCE = 1000000 };

typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef int int2 __attribute__((ext_vector_type(2)));
typedef unsigned uint2 __attribute__((ext_vector_type(2)));
typedef char char2 __attribute__((ext_vector_type(2)));
typedef unsigned char uchar2 __attribute__((ext_vector_type(2)));

/* A function of OpenCL C, by the name that clang gives it. */
#define BUILTIN(name) __asm__(name)

/* Lanes that wait for each other. */
struct meeting {
	unsigned there, number; /* how many wait now; how many times all were there */
};

static struct {
	void (*kernel)(void);
	unsigned lanes, lane; /* lane: the one that runs */
	size_t x, y, nx;
	unsigned alive;
	ucontext_t main, contexts[LANES_MAX];
	char *stacks;
	bool ended[LANES_MAX];
	struct meeting warps[LANES_MAX / 32], group, barriers[16];
	uint32_t shown[LANES_MAX][6]; /* registers that the lanes of a warp show each other */
} e;

/* ---- lanes ---- */

/* Lets the next lane run that has not ended. */
static void next_lane(void)
{
	unsigned from = e.lane, to = from;

	do
		to = (to + 1) % e.lanes;
	while (e.ended[to]);
	e.lane = to;
	if (to != from)
		swapcontext(&e.contexts[from], &e.contexts[to]);
}

static void run_lane(void)
{
	e.kernel();
	e.ended[e.lane] = true;
	if (--e.alive)
		next_lane();
	setcontext(&e.main);
}

void emulate(void (*kernel)(void), unsigned lanes, size_t x, size_t y, size_t nx)
{
	e.kernel = kernel;
	e.lanes = e.alive = lanes;
	e.lane = 0;
	e.x = x;
	e.y = y;
	e.nx = nx;
	memset(e.warps, 0, sizeof(e.warps));
	memset(&e.group, 0, sizeof(e.group));
	memset(e.barriers, 0, sizeof(e.barriers));
	memset(e.ended, 0, sizeof(e.ended));
	if (!e.stacks)
		e.stacks = malloc((size_t)LANES_MAX * STACK);
	if (!e.stacks)
		abort();
	for (unsigned i = 0; i < lanes; i++) {
		getcontext(&e.contexts[i]);
		e.contexts[i].uc_stack.ss_sp = e.stacks + (size_t)i * STACK;
		e.contexts[i].uc_stack.ss_size = STACK;
		makecontext(&e.contexts[i], run_lane, 0);
	}
	swapcontext(&e.main, &e.contexts[0]);
}

void emulate_together(void (*kernel)(void), unsigned lanes, size_t n)
{
	pid_t *groups = calloc(n, sizeof(*groups));
	int status = 0;

	fflush(stdout);
	for (size_t i = 0; i < n; i++) {
		groups[i] = fork();
		if (groups[i] < 0)
			abort();
		if (groups[i])
			continue;
		emulate(kernel, lanes, i, 0, n);
		_exit(0);
	}
	for (size_t ended = 0; ended < n && !status; ended++) {
		pid_t group = wait(&status);

		for (size_t i = 0; i < n; i++)
			groups[i] = groups[i] == group ? 0 : groups[i];
	}
	/* Groups that wait for one that has failed would wait for ever. */
	for (size_t i = 0; i < n && status; i++)
		if (groups[i])
			kill(groups[i], SIGKILL);
	if (status)
		exit(1);
	free(groups);
}

/* Waits until `lanes` lanes are there. */
static void meet(struct meeting *m, unsigned lanes)
{
	unsigned number = m->number;

	if (++m->there == lanes) {
		m->there = 0;
		m->number++;
		return;
	}
	for (unsigned turn = 0; m->number == number; turn++) {
		if (turn == PATIENCE) {
			printf("Bail out! lane %u of group %zu, %zu waits for lanes that do not come\n",
			       e.lane, e.x, e.y);
			exit(1);
		}
		next_lane();
	}
}

static void meet_warp(void)
{
	meet(&e.warps[e.lane / 32], 32);
}

/* The registers that lane `lane` of this lane's warp shows. */
static const uint32_t *shown_by(unsigned lane)
{
	return e.shown[e.lane / 32 * 32 + lane % 32];
}

/* ---- global memory ---- */

static struct {
	uintptr_t from, end;
} blocks[1 << 16];
static size_t n_blocks;

void *emulated_memory(size_t bytes)
{
	void *p = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || n_blocks == ARRAY_SIZE(blocks))
		abort();
	blocks[n_blocks].from = (uintptr_t)p;
	blocks[n_blocks++].end = (uintptr_t)p + bytes;
	return p;
}

/* ---- functions of OpenCL C ---- */

size_t get_local_id(unsigned d) BUILTIN("_Z12get_local_idj");
size_t get_group_id(unsigned d) BUILTIN("_Z12get_group_idj");
size_t get_num_groups(unsigned d) BUILTIN("_Z14get_num_groupsj");
void group_barrier(unsigned flags) BUILTIN("_Z7barrierj");
float cl_fma(float a, float b, float c) BUILTIN("_Z3fmafff");
float4 cl_fma_float4(float4 a, float4 b, float4 c) BUILTIN("_Z3fmaDv4_fS_S_");
float cl_exp(float x) BUILTIN("_Z3expf");
float cl_sqrt(float x) BUILTIN("_Z4sqrtf");
float cl_sin(float x) BUILTIN("_Z3sinf");
float cl_cos(float x) BUILTIN("_Z3cosf");
float cl_log1p(float x) BUILTIN("_Z5log1pf");
int cl_isnan(float x) BUILTIN("_Z5isnanf");
unsigned cl_popcount(unsigned x) BUILTIN("_Z8popcountj");
float cl_float(int v) BUILTIN("_Z13convert_floati");
unsigned cl_uint(unsigned short v) BUILTIN("_Z12convert_uintt");
int2 cl_int2(float2 v) BUILTIN("_Z12convert_int2Dv2_f");
float cl_fabs(float x) BUILTIN("_Z4fabsf");
float cl_fmax(float a, float b) BUILTIN("_Z4fmaxff");
float2 cl_float2(char2 v) BUILTIN("_Z14convert_float2Dv2_c");
uint2 cl_uint2(uchar2 v) BUILTIN("_Z13convert_uint2Dv2_h");
float2 cl_select_float2(float2 a, float2 b, int2 c) BUILTIN("_Z6selectDv2_fS_Dv2_i");
uint2 cl_select_uint2(uint2 a, uint2 b, int2 c) BUILTIN("_Z6selectDv2_jS_Dv2_i");

size_t get_local_id(unsigned d)
{
	return d ? 0 : e.lane;
}

size_t get_group_id(unsigned d)
{
	return d ? e.y : e.x;
}

size_t get_num_groups(unsigned d)
{
	return d ? 1 : e.nx;
}

void group_barrier(unsigned flags)
{
	(void)flags;
	meet(&e.group, e.lanes);
}

float cl_fma(float a, float b, float c)
{
	return fmaf(a, b, c);
}

float4 cl_fma_float4(float4 a, float4 b, float4 c)
{
	return (float4){fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z),
			fmaf(a.w, b.w, c.w)};
}

float cl_exp(float x)
{
	return expf(x);
}

float cl_sqrt(float x)
{
	return sqrtf(x);
}

float cl_sin(float x)
{
	return sinf(x);
}

float cl_cos(float x)
{
	return cosf(x);
}

float cl_log1p(float x)
{
	return log1pf(x);
}

int cl_isnan(float x)
{
	return x != x;
}

unsigned cl_popcount(unsigned x)
{
	return (unsigned)__builtin_popcount(x);
}

float cl_float(int v)
{
	return (float)v;
}

unsigned cl_uint(unsigned short v)
{
	return v;
}

int2 cl_int2(float2 v)
{
	return (int2){(int)v.x, (int)v.y};
}

float cl_fabs(float x)
{
	return fabsf(x);
}

float cl_fmax(float a, float b)
{
	return fmaxf(a, b);
}

float2 cl_float2(char2 v)
{
	return (float2){v.x, v.y};
}

uint2 cl_uint2(uchar2 v)
{
	return (uint2){v.x, v.y};
}

float2 cl_select_float2(float2 a, float2 b, int2 c)
{
	return (float2){c.x < 0 ? b.x : a.x, c.y < 0 ? b.y : a.y};
}

uint2 cl_select_uint2(uint2 a, uint2 b, int2 c)
{
	return (uint2){c.x < 0 ? b.x : a.x, c.y < 0 ? b.y : a.y};
}

/* ---- instructions; run.py has their declarations for kernels ---- */

float emulated_shuffle(float x, unsigned lane);
float emulated_shuffle_xor(float x, unsigned bits);
float2 emulated_halves(unsigned v);
void emulated_copy(unsigned to, unsigned long from);
void emulated_prefetch(unsigned long at);
void emulated_warp_sync(void);
void emulated_barrier(unsigned number, unsigned lanes);
unsigned emulated_max(unsigned x);
unsigned emulated_min(unsigned x);
unsigned emulated_ballot(_Bool x);
unsigned emulated_pair(float first, float second);
unsigned emulated_load(unsigned long at);
void emulated_store(unsigned at, unsigned v);
void emulated_add(unsigned long at);
void emulated_mma_bf16(float *d, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
		       unsigned b1);

float emulated_shuffle(float x, unsigned lane)
{
	float r;

	e.shown[e.lane][0] = float_bits(x);
	meet_warp();
	memcpy(&r, shown_by(lane), sizeof(r));
	meet_warp();
	return r;
}

float emulated_shuffle_xor(float x, unsigned bits)
{
	return emulated_shuffle(x, e.lane ^ bits);
}

void emulated_warp_sync(void)
{
	meet_warp();
}

void emulated_barrier(unsigned number, unsigned lanes)
{
	meet(&e.barriers[number], lanes);
}

unsigned emulated_max(unsigned x)
{
	unsigned r = 0;

	e.shown[e.lane][0] = x;
	meet_warp();
	for (unsigned i = 0; i < 32; i++)
		r = shown_by(i)[0] > r ? shown_by(i)[0] : r;
	meet_warp();
	return r;
}

unsigned emulated_min(unsigned x)
{
	return ~emulated_max(~x);
}

unsigned emulated_ballot(_Bool x)
{
	unsigned r = 0;

	e.shown[e.lane][0] = x;
	meet_warp();
	for (unsigned i = 0; i < 32; i++)
		r |= shown_by(i)[0] << i;
	meet_warp();
	return r;
}

/* No element is a NaN. */
unsigned emulated_pair(float first, float second)
{
	uint32_t low = float_bits(first), high = float_bits(second);

	return (low + 0x7fff + (low >> 16 & 1)) >> 16 |
	       ((high + 0x7fff + (high >> 16 & 1)) & 0xffff0000u);
}

/* Another lane, or another group, may be about to write the number that this one waits for. */
unsigned emulated_load(unsigned long at)
{
	next_lane();
	if (at > UINT32_MAX)
		sched_yield();
	return *(volatile unsigned *)at;
}

void emulated_store(unsigned at, unsigned v)
{
	*(volatile unsigned *)(uintptr_t)at = v;
}

void emulated_add(unsigned long at)
{
	__atomic_fetch_add((unsigned *)at, 1, __ATOMIC_SEQ_CST);
}

static float half(unsigned v)
{
	int exponent = v >> 10 & 31;
	float f =
		ldexpf((float)((v & 1023) + (exponent ? 1024 : 0)), (exponent ? exponent : 1) - 25);

	return v >> 15 & 1 ? -f : f;
}

/* None of the halves is infinite. */
float2 emulated_halves(unsigned v)
{
	return (float2){half(v & 0xffff), half(v >> 16)};
}

void emulated_copy(unsigned to, unsigned long from)
{
	memcpy((void *)(uintptr_t)to, (const void *)from, 16);
}

void emulated_prefetch(unsigned long at)
{
	const uintptr_t line = at / 128 * 128;

	for (size_t i = 0; i < n_blocks; i++)
		if (line < blocks[i].end && line + 128 > blocks[i].from)
			return;
	printf("Bail out! lane %u of group %zu, %zu asks for a line at %#lx, where no memory is\n",
	       e.lane, e.x, e.y, at);
	exit(1);
}

static void show(unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
	const uint32_t all[6] = {a0, a1, a2, a3, b0, b1};

	memcpy(e.shown[e.lane], all, sizeof(all));
	meet_warp();
}

/* The lane's number i of D is in row_of(i) and column_of(i). */
static unsigned row_of(unsigned i)
{
	return e.lane % 32 / 4 + i / 2 * 8;
}

static unsigned column_of(unsigned i)
{
	return e.lane % 4 * 2 + i % 2;
}

static float bf16(uint32_t pair, unsigned i)
{
	uint32_t bits = (i ? pair : pair << 16) & 0xffff0000u;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* The device adds 16 products in an order of its own, which this is not. */
void emulated_mma_bf16(float *d, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
		       unsigned b1)
{
	show(a0, a1, a2, a3, b0, b1);
	for (unsigned i = 0; i < 4; i++) {
		double sum = d[i];

		for (unsigned k = 0; k < 16; k++) {
			uint32_t a = shown_by(row_of(i) % 8 * 4 + k % 8 / 2)[i / 2 + k / 8 * 2];
			uint32_t b = shown_by(column_of(i) * 4 + k % 8 / 2)[4 + k / 8];

			sum += (double)bf16(a, k % 2) * (double)bf16(b, k % 2);
		}
		d[i] = (float)sum;
	}
	meet_warp();
}
