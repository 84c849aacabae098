/* kernels/set.c: what a set of kernels can do follows from its shape, its tuning and the device, which are numbers: no
 * device is needed to ask. */
#include <stddef.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/kernels_internal.h"
#include "kernels/step.h"
#include "tests/tap.h"

/* Tunings with the numbers that set.c asks for. */
static const struct tuning nvidia = {.lanes = 64, .vec = 1, .decode_blocks = 1, .tensor = true};
static const struct tuning generic_gpu = {.lanes = 64, .vec = 1};
static const struct tuning cpu = {.lanes = 1, .vec = 16, .decode_blocks = 4};

enum {
	STEP = 1,   /* kernels_has_decode_step */
	FLASH = 2,  /* kernels_has_flash */
	DELTA = 4,  /* kernels_has_tensor_delta */
	TOPK = 8,   /* kernels_has_warp_topk of the first MLP */
	SPLITS = 16 /* kernels_split_slots */
};

static unsigned abilities(const struct kernels *k)
{
	return (kernels_has_decode_step(k) ? STEP : 0) | (kernels_has_flash(k) ? FLASH : 0) |
	       (kernels_has_tensor_delta(k) ? DELTA : 0) |
	       (kernels_has_warp_topk(k, &k->shape.mlps[0]) ? TOPK : 0) |
	       (kernels_split_slots(k) ? SPLITS : 0);
}

/* Qwen3.5-35B-A3B on an H200. */
static struct kernels set(const struct tuning *tuning)
{
	return (struct kernels){
		.tuning = tuning,
		.compute_units = 132,
		.local_memory = 48 << 10,
		.shape = {.hidden = 2048,
			  .vocab = 248320,
			  .heads = 16,
			  .kv_heads = 2,
			  .head_dim = 256,
			  .rotary_dim = 64,
			  .page_tokens = 64,
			  .max_context = 262144,
			  .attention_gate = true,
			  .qk_norm = true,
			  .key_heads = 16,
			  .value_heads = 32,
			  .key_dim = 128,
			  .value_dim = 128,
			  .conv = 4,
			  .mlps = {{.experts = 256,
				    .topk = 8,
				    .expert_size = 512,
				    .shared_size = 512,
				    .shared_gate = true}},
			  .n_mlps = 1,
			  .bf16 = true},
	};
}

/* A number of a set that is another one than in set(&nvidia), and the abilities with it. */
struct change {
	const char *name;
	size_t at, size;
	uint32_t value;
	unsigned expected;
};
#define CHANGE(member, value, expected)                                        \
	{                                                                      \
#member " = " #value, offsetof(struct kernels, member),        \
			sizeof(((struct kernels *)0)->member), value, expected \
	}

enum { ALL = STEP | FLASH | DELTA | TOPK | SPLITS };
static const struct change changes[] = {
	CHANGE(shape.bf16, false, TOPK | SPLITS),
	CHANGE(shape.dump, true, ALL & ~STEP),
	CHANGE(shape.separate_launches, true, ALL & ~STEP),
	CHANGE(shape.n_mlps, 2, ALL & ~STEP),
	CHANGE(shape.window, 1024, ALL & ~STEP),
	CHANGE(shape.out_norms, true, ALL & ~STEP),
	/* a chain has 2,048 terms, the sums of a mixer's projection two chains */
	CHANGE(shape.hidden, 2049, ALL & ~STEP),
	CHANGE(shape.hidden, 2033, ALL),
	CHANGE(shape.value_heads, 33, ALL & ~STEP),
	CHANGE(shape.mlps[0].expert_size, 2048, ALL),
	CHANGE(shape.mlps[0].expert_size, 2049, ALL & ~STEP),
	CHANGE(shape.mlps[0].shared_size, 2049, ALL & ~STEP),
	/* heads */
	CHANGE(shape.heads, 18, ALL & ~STEP),
	CHANGE(shape.kv_heads, 1, FLASH | DELTA | TOPK | SPLITS),
	CHANGE(shape.head_dim, 128, ALL),
	CHANGE(shape.head_dim, 72, ALL & ~FLASH),
	CHANGE(shape.head_dim, 66, ALL & ~FLASH & ~STEP),
	CHANGE(shape.head_dim, 272, ALL & ~FLASH & ~STEP),
	CHANGE(shape.heads, 0, STEP | DELTA | TOPK),
	CHANGE(shape.page_tokens, 48, ALL & ~FLASH),
	CHANGE(shape.page_tokens, 128, ALL),
	/* Gated DeltaNet */
	CHANGE(shape.key_heads, 0, ALL & ~DELTA),
	CHANGE(shape.key_dim, 64, ALL),
	CHANGE(shape.key_dim, 96, ALL & ~DELTA),
	CHANGE(shape.key_dim, 192, ALL & ~DELTA & ~STEP),
	CHANGE(shape.value_dim, 64, ALL),
	CHANGE(shape.value_dim, 72, ALL & ~DELTA),
	CHANGE(shape.value_dim, 66, ALL & ~DELTA & ~STEP),
	CHANGE(shape.value_dim, 144, ALL & ~DELTA & ~STEP),
	/* experts */
	CHANGE(shape.mlps[0].topk, 15, ALL),
	CHANGE(shape.mlps[0].topk, 16, ALL & ~STEP),
	CHANGE(shape.mlps[0].topk, 33, ALL & ~STEP & ~TOPK),
	CHANGE(shape.mlps[0].experts, 512, ALL),
	CHANGE(shape.mlps[0].experts, 513, ALL & ~STEP & ~TOPK),
	CHANGE(shape.mlps[0].experts, 7, ALL & ~STEP),
	/* 257 columns of the router, with padding 272, are 34 times 8 */
	CHANGE(compute_units, 34, ALL),
	CHANGE(compute_units, 33, ALL & ~STEP),
	/* a split of 8 heads of 256 has 29 KiB */
	CHANGE(local_memory, 29 << 10, ALL),
	CHANGE(local_memory, 28 << 10, ALL & ~SPLITS & ~STEP),
};

TEST(abilities)
{
	struct kernels all = set(&nvidia), other;

	ok(abilities(&all) == ALL, "the shape of Qwen3.5-35B-A3B has all abilities");
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		struct kernels k = all;
		char *at = (char *)&k + changes[i].at;
		const bool flag = changes[i].value;

		if (changes[i].size == sizeof(flag))
			memcpy(at, &flag, sizeof(flag));
		else if (changes[i].size == sizeof(uint64_t))
			memcpy(at, &(uint64_t){changes[i].value}, sizeof(uint64_t));
		else
			memcpy(at, &changes[i].value, sizeof(changes[i].value));
		if (!ok(abilities(&k) == changes[i].expected, "%s", changes[i].name))
			printf("# %u, not %u\n", abilities(&k), changes[i].expected);
	}
	other = set(&generic_gpu);
	ok(abilities(&other) == SPLITS, "generic kernels on a GPU cut attention, and no more");
	other = set(&cpu);
	check(abilities(&other) == STEP);
	other.shape.bf16 = false;
	other.shape.window = 1024;
	other.shape.hidden = 8192;
	check(abilities(&other) == STEP);
	other.shape.n_mlps = 2;
	check(abilities(&other) == 0);
	ok_all("on a CPU a step of any size is one launch, but not with two kinds of MLPs");
	other = all;
	other.shape.mlps[0] = (struct kernel_mlp){.shared_size = 2048};
	ok(abilities(&other) == (ALL & ~TOPK), "a dense MLP chooses no experts");
}

TEST(sizes)
{
	struct kernels gpu = set(&nvidia), host = set(&cpu), k = gpu;

	check(kernels_decode_rows(&gpu) == STEP_ROWS && kernels_decode_rows(&host) == UINT32_MAX);
	check(kernels_delta_input_bytes(&gpu) == 2 && kernels_delta_input_bytes(&host) == 4);
	k.tuning = &generic_gpu;
	check(kernels_delta_input_bytes(&k) == 4);
	ok_all("rows of a step in one launch, and numbers before a scan");
	/* 8 rows of 1,000 tokens have 8 * 16 chunks; the bound adds a chunk a row to the whole ones. */
	check(kernels_delta_chunks(8000, 8) == 125 + 8);
	check(kernels_delta_scratch(&k, 8000, 8) == 133 * 32 * DELTA_CHUNK_FLOATS);
	check(kernels_delta_scratch(&host, 8000, 8) ==
	      132 * (uint64_t)kernels_delta_group_floats(&host.shape));
	/* of a chunk, in floats: keys of 16 heads; W, K', P, factors, U and states of 32 */
	check(kernels_delta_scratch(&gpu, 8000, 8) ==
	      133 * (16 * 4096 + 32 * (UINT64_C(4096) * 2 + 2048 + 96 + 4096 + 8192)));
	k.shape.key_heads = 0;
	check(kernels_delta_scratch(&k, 8000, 8) == 0);
	ok_all("work space of Gated DeltaNet");
}

TEST(splits)
{
	struct kernels k = set(&nvidia);

	check(kernels_split_slots(&k) == SPLIT_SLOTS_MIN);
	k.shape.max_context = 1 << 20;
	check(kernels_split_slots(&k) == (1 << 20) / SPLIT_TOKENS);
	k.shape.max_context++;
	check(kernels_split_slots(&k) == (1 << 20) / SPLIT_TOKENS + 1);
	ok_all("a call has slots for the longest sequence");
	k.shape.heads = 31;
	k.shape.kv_heads = 1;
	k.shape.head_dim = 128;
	check(kernels_split_slots(&k));
	k.shape.heads = 32;
	check(!kernels_split_slots(&k));
	k.local_memory = 64 << 10;
	check(kernels_split_slots(&k));
	k.local_memory = 48 << 10;
	k.shape.head_dim = 64;
	check(kernels_split_slots(&k));
	ok_all("32 heads of 128 for one KV head do not fit into 48 KiB: attention is not cut");
}

TEST(most_tokens)
{
	struct kernels k = set(&nvidia);

	/* nine slots of 512, more than the hidden size and the mixers' outputs of 4,096 */
	check(kernels_most_tokens(&k) == UINT32_MAX / 4608);
	k.shape.mlps[0] = (struct kernel_mlp){.shared_size = 14336};
	check(kernels_most_tokens(&k) == 299593);
	check(UINT64_C(299593) * 14336 <= UINT64_C(1) << 32 &&
	      UINT64_C(300000) * 14336 > UINT64_C(1) << 32);
	k.shape.mlps[0].shared_size = 14337; /* rows are padded to 14,352 */
	check(kernels_most_tokens(&k) == UINT32_MAX / 14352);
	k.shape.int8 = true; /* 112 bytes for 32 numbers, whole lines of 64 */
	check(kernels_most_tokens(&k) == UINT32_MAX / 25152);
	k.shape.int8 = false;
	k.shape.heads = 128;
	check(kernels_most_tokens(&k) == UINT32_MAX / 32768);
	k.shape.heads = 0;
	k.shape.value_heads = 256;
	check(kernels_most_tokens(&k) == UINT32_MAX / 32768);
	k.shape.hidden = 65536;
	check(kernels_most_tokens(&k) == 65535);
	ok_all("no row of a product's input begins behind 2^32 elements");
	k.shape.bf16 = false;
	check(kernels_most_tokens(&k) == UINT32_MAX);
	k.shape.bf16 = true;
	k.tuning = &generic_gpu;
	check(kernels_most_tokens(&k) == UINT32_MAX);
	ok_all("other kernels have 64 bits");
}

TEST_MAIN()
