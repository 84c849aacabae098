/* The identity changes with everything that decides bits and with nothing else. A file that was hashed once is not
 * read again, and a line of a memo counts only for exactly the same file. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/checkpoint/families/family.h"
#include "engine/cache_identity.h"
#include "kernels/sources.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { BIG = 150 << 20 };

/* The test's own kernel sources, in place of those in the kernels' library. */
static char shared_text[] = "shared", generic_text[] = "generic", variant_text[] = "variant",
	    other_text[] = "other";
const struct kernel_source kernel_sources[] = {
	{"kernels/step.h", shared_text},     {"generic/gemm.cl", generic_text},
	{"x86/gemm_core.clh", variant_text}, {"nvidia/gemm.cl", other_text},
	{"tuning/cpu.tsv", other_text},	     {NULL, NULL},
};

static struct engine_info info;
static char memo[512];

static struct cache_identity_source source(void)
{
	return (struct cache_identity_source){.model_dir = scratch_dir,
					      .page_tokens = 64,
					      .engine = &info};
}

static struct cache_identity compute(const struct cache_identity_source *s, const char *memo_path)
{
	struct cache_identity id = {0};
	struct err e = {0};

	if (cache_identity_compute(s, memo_path, NULL, &id, &e) < 0) {
		printf("# %s\n", e.text);
		memset(&id, 0, sizeof(id));
	}
	return id;
}

static bool same(const struct cache_identity *a, const struct cache_identity *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* Returns the number of bytes that this process has read so far. */
static unsigned long long bytes_read(void)
{
	unsigned long long n = 0;
	FILE *f = fopen("/proc/self/io", "r");

	if (!f || fscanf(f, "rchar: %llu", &n) != 1)
		abort();
	fclose(f);
	return n;
}

/* Changes one byte of a file in place, and leaves its mtime as it was. */
static void change_byte(const char *name, off_t at)
{
	int fd = open(scratch_path(name), O_RDWR);
	struct timespec times[2];
	struct stat st;
	uint8_t b;

	if (fd < 0 || fstat(fd, &st) < 0 || pread(fd, &b, 1, at) != 1)
		abort();
	b++;
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	usleep(20000); /* a file system's clock is coarse */
	if (pwrite(fd, &b, 1, at) != 1 || futimens(fd, times) < 0 || close(fd) < 0)
		abort();
}

#define differs(change, what)                                 \
	do {                                                  \
		struct cache_identity other;                  \
		struct cache_identity_source s = source();    \
		struct engine_info kept = info;               \
		change;                                       \
		other = compute(&s, memo);                    \
		ok(!same(&base, &other), "%s decides", what); \
		info = kept;                                  \
	} while (0)

static void test_fields(void)
{
	struct cache_identity_source plain = source();
	struct cache_identity base = compute(&plain, memo), again = compute(&plain, memo);

	ok(same(&base, &again), "the same again");
	differs(s.dtype = ENGINE_BFLOAT16, "dtype");
	differs(s.kv_dtype = ENGINE_KV_INT8, "type of the KV cache");
	differs(s.page_tokens = 128, "page size");
	differs(info.types = 1 << 16, "types of matrices");
	differs(s.synthetic = true, "where weights come from");
	differs(snprintf(info.kernels, sizeof(info.kernels), "x86"), "kernel variant");
	differs(snprintf(info.device_name, sizeof(info.device_name), "another"), "device");
	differs(snprintf(info.driver, sizeof(info.driver), "1.1"), "driver");
	differs(snprintf(info.other_bits, sizeof(info.other_bits), "cuts"),
		"cuts that change bits");
	differs(info.model.family = &family_qwen3_next, "the family");
	differs(info.model.rope_theta = 1e6, "rope_theta");
	differs(info.model.rms_norm_eps = 1e-5f, "rms_norm_eps");
	differs(info.model.layers[1].mixer = LAYER_DELTA, "a layer's kind");
	differs(info.model.norm_topk_prob = true, "norm_topk_prob");
	differs(info.model.norm_adds_one = true, "what norms multiply by");
	differs(info.model.attention_gate = true, "a gate");
	differs(info.model.quantised.gptq_v2 = true, "how zeros are stored");
	differs(info.model.quantised.block_rows = 64, "blocks that share a scale");
	differs(info.model.tiled_heads = true, "the order of value heads");
	differs(info.model.stores_neg_a = true, "what is stored for A_log");
	differs(info.model.qk_norm = true, "norms of queries and keys");
	differs(info.model.qkv_bias = true, "biases");
	differs(info.model.sliding_window = 512, "a window");
	differs(info.model.sliding_theta = 10000, "its rope_theta");
	differs(info.model.score_dim = 168, "the scale of scores");
	differs(info.model.out_norms = true, "norms of outputs");
	differs(info.model.scaled_embedding = true, "scaled embeddings");
	differs(info.model.gelu = true, "the activation");
	differs(info.model.rope_scaling = ROPE_LINEAR, "the scaling of RoPE");
	differs(info.model.rope_factor = 8, "its factor");
	differs(info.model.rope_low_factor = 1, "its low factor");
	differs(info.model.rope_high_factor = 4, "its high factor");
	differs(info.model.rope_original_context = 8192, "its original context");
	info.model.max_position_embeddings = 77;
	info.model.default_temperature = 0.5f;
	info.n_pages = 9;
	again = compute(&plain, memo);
	ok(same(&base, &again), "limits and defaults of sampling do not");
}

static void test_sources(void)
{
	struct cache_identity_source s = source();
	char *const texts[] = {shared_text, generic_text, variant_text, other_text};
	static const char *const names[] = {"a source that the host shares",
					    "a source of all variants", "a source of the variant",
					    "a source of another variant, or a table"};
	struct engine_info kept = info;
	struct cache_identity base, other;

	snprintf(info.kernels, sizeof(info.kernels), "x86");
	base = compute(&s, memo);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		texts[i][0]++;
		other = compute(&s, memo);
		texts[i][0]--;
		ok(same(&base, &other) == (texts[i] == other_text), "%s %s", names[i],
		   texts[i] == other_text ? "does not" : "decides");
	}
	info = kept;
}

static void test_synthetic(void)
{
	struct cache_identity_source s = source();
	struct cache_identity a, b;

	s.model_dir = "/nowhere";
	s.synthetic = true;
	a = compute(&s, NULL);
	s.synthetic_seed = 1;
	b = compute(&s, NULL);
	ok(a.bytes[0] | a.bytes[1] | a.bytes[2] && !same(&a, &b),
	   "of synthetic weights the seed decides, and no file");
}

static void test_weights(void)
{
	struct cache_identity_source s = source();
	struct cache_identity base = compute(&s, memo), other;
	unsigned long long before;
	struct err e = {0};

	before = bytes_read();
	other = compute(&s, memo);
	ok(same(&base, &other) && bytes_read() - before < 1 << 20, "a second time nothing is read");
	before = bytes_read();
	other = compute(&s, NULL);
	ok(same(&base, &other) && bytes_read() - before >= BIG, "without memo everything is");

	change_byte("a.safetensors", BIG - 1);
	other = compute(&s, memo);
	ok(!same(&base, &other),
	   "a changed byte decides, though size and mtime are what they were");
	base = other;
	change_byte("b.safetensors", 0);
	other = compute(&s, memo);
	ok(!same(&base, &other), "in every file");
	base = other;
	scratch_write("model.safetensors.index.json", "{}", 2);
	other = compute(&s, memo);
	ok(!same(&base, &other), "the index decides");
	base = other;
	scratch_write("notes.txt", "x", 1);
	other = compute(&s, memo);
	ok(same(&base, &other), "other files do not");
	s.opened_ns = clock_read_ns(CLOCK_REALTIME);
	ok(cache_identity_compute(&s, memo, NULL, &other, &e) == 0, "nothing changed since now");
	change_byte("b.safetensors", 0);
	is_int(cache_identity_compute(&s, memo, NULL, &other, &e), -ESTALE, "now it did: %s",
	       e.text);
}

static void test_memo(void)
{
	struct cache_identity_source s = source();
	struct cache_identity base = compute(&s, memo), other;
	char text[8192];
	size_t len;
	FILE *f = fopen(memo, "r");

	if (!f)
		abort();
	len = fread(text, 1, sizeof(text), f);
	fclose(f);
	ok(len > 100 && len < sizeof(text), "there is a memo");
	for (size_t i = 0; i < len; i += 3) {
		text[i] ^= 1;
		scratch_write("memo", text, len);
		other = compute(&s, memo);
		check(same(&base, &other));
		text[i] ^= 1;
	}
	ok_all("whatever bit of it is flipped, the identity stays");
	for (size_t cut = 0; cut < len; cut += 29) {
		scratch_write("memo", text, cut);
		other = compute(&s, memo);
		check(same(&base, &other));
	}
	scratch_write("memo", "\0\n\n x\n", 6);
	other = compute(&s, memo);
	check(same(&base, &other));
	ok_all("or wherever it is cut");
	other = compute(&s, "/proc/nowhere/memo");
	ok(same(&base, &other), "one that cannot be written does no harm");
}

static void test_errors(void)
{
	struct cache_identity_source s = source();
	struct cache_identity id = {{7}};
	atomic_bool cancel = true;
	struct err e = {0};

	change_byte("a.safetensors", 5);
	is_int(cache_identity_compute(&s, memo, &cancel, &id, &e), -ECANCELED,
	       "it can be cancelled");
	s.model_dir = "/proc/nowhere";
	is_int(cache_identity_compute(&s, memo, NULL, &id, &e), -ENOENT, "no directory: %s",
	       e.text);
	s.model_dir = "/proc/self/fd";
	is_int(cache_identity_compute(&s, memo, NULL, &id, &e), -ENOENT, "no weights: %s", e.text);
	is_int(id.bytes[0], 7, "nothing was written to the result");
}

int main(void)
{
	log_set_level(LOG_LEVEL_WARNING);
	snprintf(memo, sizeof(memo), "%s", scratch_path("memo"));
	info.model = (struct model_config){.family = &family_qwen3_5,
					   .n_layers = 4,
					   .hidden_size = 64,
					   .rope_theta = 1e4,
					   .rms_norm_eps = 1e-6f};
	snprintf(info.kernels, sizeof(info.kernels), "generic");
	snprintf(info.device_name, sizeof(info.device_name), "a device");
	snprintf(info.driver, sizeof(info.driver), "1.0");
	/* The files are small at first: the tests before test_weights have them read very often. */
	scratch_write("a.safetensors", "first", 5);
	scratch_write("b.safetensors", "second", 6);
	test_fields();
	test_sources();
	test_synthetic();
	test_memo();
	if (truncate(scratch_path("a.safetensors"), BIG) < 0)
		abort();
	test_weights();
	test_errors();
	return done();
}
