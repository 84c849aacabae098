/* Opening an engine with directories, files and options that are wrong in every way. Each gets one sentence and
 * leaves nothing behind; afterwards the engine opens and answers as before. And plans outside the engine's limits are
 * refused. A decode step that the device gives up is launched in parts from then on if it is the engine's first, and
 * else the device is lost. (Functions of OpenCL are replaced, --wrap.)
 *
 *     test_engine TINY      a directory of tiny checkpoints */
#include <CL/cl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "kernels/step.h"
#include "tests/golden.h"
#include "tests/random.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { FILE_MAX = 64 << 20 };

static char good[4096];		   /* the directory of a good checkpoint */
static struct buf config, weights; /* the directory's content */
static int descriptors_before;

static struct engine_options options(const char *dir)
{
	struct engine_options o = run_options(dir, "float32", 4, 128);

	/* The host's code is tested here, so these are the programs of test_tiny.c, which are compiled once. */
	o.unoptimised = o.separate_launches = true;
	return o;
}

/* Returns a number that grows with each open descriptor of this process. */
static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Whether the text has more than 10 bytes, and no line break or other control character. */
static bool one_sentence(const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || (unsigned char)*c == 0x7f)
			return false;
	return strlen(text) > 10;
}

/* Whether engine_open fails with `code` (0: any), says one sentence with `part` in it (NULL: any), and leaves no engine
 * and no descriptor. */
static bool refused(const struct engine_options *o, int code, const char *part)
{
	struct engine *untouched = (struct engine *)&config, *g = untouched;
	int before = descriptors();
	struct err e = {0};
	int r = engine_open(o, &g, &e);
	bool right = r < 0 && g == untouched && e.code == -r && (!code || r == code) &&
		     one_sentence(e.text) && (!part || strstr(e.text, part)) &&
		     descriptors() == before;

	if (!right)
		printf("# %s: %d (%s), %d descriptors before and %d now\n", o->model_dir, r, e.text,
		       before, descriptors());
	if (r == 0)
		engine_close(g);
	return right;
}

static void write_text(const char *name, const char *text)
{
	scratch_write(name, text, strlen(text));
}

static void make_dir(const char *name)
{
	mkdir(scratch_path(name), 0700);
}

/* Makes a directory with this configuration and the first `len` bytes of the good weights. */
static void make_checkpoint(const char *name, const char *config_text, size_t len)
{
	char path[256];

	make_dir(name);
	snprintf(path, sizeof(path), "%s/config.json", name);
	write_text(path, config_text);
	snprintf(path, sizeof(path), "%s/model.safetensors", name);
	scratch_write(path, weights.data, len);
}

/* Returns the good configuration with `from` replaced by `to`, valid until the next call. */
static const char *changed(const char *from, const char *to)
{
	static char text[8192];
	const char *at = strstr(buf_str(&config), from);

	if (!at) {
		printf("# no %s in the configuration\n", from);
		abort();
	}
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - buf_str(&config)), buf_str(&config), to,
		 at + strlen(from));
	return text;
}

/* ---- directories ---- */

static void refuses_dir(const char *name, int code, const char *part, const char *what)
{
	struct engine_options o = options(scratch_path(name));

	ok(refused(&o, code, part), "%s", what);
}

TEST(directories)
{
	refuses_dir("missing", -ENOENT, "missing", "no directory");
	write_text("file", "x");
	refuses_dir("file", 0, "file", "a file instead of a directory");
	make_dir("empty");
	refuses_dir("empty", -ENOENT, "config.json", "an empty directory");
	make_dir("deep");
	make_dir("deep/config.json");
	refuses_dir("deep", 0, "config.json", "a directory as config.json");
	make_dir("pipe");
	check(mkfifo(scratch_path("pipe/config.json"), 0600) == 0);
	refuses_dir("pipe", -EINVAL, "config.json",
		    "a pipe as config.json, which is not waited for");
	make_dir("bare");
	write_text("bare/config.json", buf_str(&config));
	refuses_dir("bare", -ENOENT, "bare", "a configuration without weights");
	check(symlink("nowhere", scratch_path("bare/model.safetensors")) == 0);
	refuses_dir("bare", -ENOENT, "model.safetensors", "weights that are a link to nothing");
}

TEST(configs)
{
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"null",
		"{}",
		"{\"model_type\": \"llama\"}",
		"{\"model_type\": 7}",
		"\xff\xfe{}",
		"{\"model_type\": \"qwen3_5_moe_text\"}",
	};
	static const struct {
		const char *from, *to;
	} changes[] = {
		{"\"hidden_size\": 64", "\"hidden_size\": 0"},
		{"\"hidden_size\": 64", "\"hidden_size\": -64"},
		{"\"hidden_size\": 64", "\"hidden_size\": 4294967360"},
		{"\"hidden_size\": 64", "\"hidden_size\": 1e300"},
		{"\"hidden_size\": 64", "\"hidden_size\": \"64\""},
		{"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 100000"},
		{"\"vocab_size\": 320", "\"vocab_size\": 4294967295"},
		{"\"num_experts\": 8", "\"num_experts\": 1000000000"},
		{"\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9"},
		{"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"},
		{"\"head_dim\": 64", "\"head_dim\": 1000000"},
		{"\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 1000000"},
	};
	struct engine_options o;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		make_checkpoint("config", texts[i], weights.len);
		o = options(scratch_path("config"));
		check(refused(&o, 0, "config.json"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		make_checkpoint("config", changed(changes[i].from, changes[i].to), weights.len);
		o = options(scratch_path("config"));
		check(refused(&o, 0, "config.json"));
		o.synthetic = true;
		check(refused(&o, 0, "config.json"));
	}
	ok_all("%zu configurations that are none", ARRAY_SIZE(texts) + ARRAY_SIZE(changes));
}

/* ---- weights ---- */

TEST(shapes)
{
	static const struct {
		const char *from, *to;
	} changes[] = {
		{"\"hidden_size\": 64", "\"hidden_size\": 80"},
		{"\"hidden_size\": 64", "\"hidden_size\": 65536"},
		{"\"vocab_size\": 320", "\"vocab_size\": 321"},
		{"\"vocab_size\": 320", "\"vocab_size\": 16000000"},
		{"\"num_experts\": 8", "\"num_experts\": 9"},
		{"\"moe_intermediate_size\": 24", "\"moe_intermediate_size\": 23"},
		{"\"shared_expert_intermediate_size\": 24",
		 "\"shared_expert_intermediate_size\": 240"},
		{"\"head_dim\": 64", "\"head_dim\": 128"},
		{"\"linear_num_value_heads\": 2", "\"linear_num_value_heads\": 4"},
		{"\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		struct engine_options o;

		make_checkpoint("shape", changed(changes[i].from, changes[i].to), weights.len);
		o = options(scratch_path("shape"));
		check(refused(&o, -EINVAL, "model.safetensors") || refused(&o, -EINVAL, "tensor"));
	}
	ok_all("%zu configurations whose shapes the weights do not have", ARRAY_SIZE(changes));
}

static uint64_t header_bytes(void)
{
	uint64_t n = 0;

	for (int i = 7; i >= 0; i--)
		n = n << 8 | (unsigned char)weights.data[i];
	return n;
}

TEST(truncated)
{
	uint64_t header = header_bytes();
	const size_t lengths[] = {0,
				  1,
				  7,
				  8,
				  9,
				  header / 2,
				  header + 7,
				  header + 8,
				  header + 9,
				  weights.len / 2,
				  weights.len - 1};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct engine_options o;

		make_checkpoint("short", buf_str(&config), lengths[i]);
		o = options(scratch_path("short"));
		check(refused(&o, -EINVAL, "model.safetensors"));
	}
	ok_all("weights cut at %zu places", ARRAY_SIZE(lengths));
}

/* One byte of the header is changed: the engine opens, or says one sentence. */
TEST(damaged)
{
	uint64_t header = header_bytes();

	for (int i = 0; i < 300; i++) {
		struct engine_options o;
		struct engine *g = NULL;
		struct err e = {0};
		size_t at = random_below(header + 8);
		char old = weights.data[at];

		if (old >= '0' && old <= '9')
			weights.data[at] =
				(char)('0' + ((uint64_t)(old - '0') + 1 + random_below(9)) % 10);
		else
			weights.data[at] = (char)(old ^ (char)(1u << random_below(8)));
		make_checkpoint("damaged", buf_str(&config), weights.len);
		weights.data[at] = old;
		o = options(scratch_path("damaged"));
		check(engine_open(&o, &g, &e) == 0 || one_sentence(e.text));
		engine_close(g); /* NULL, unless the change does not matter */
	}
	ok_all("300 damaged headers");
}

/* For each tensor: a model in which one of its weights is NaN or infinite is refused, and the tensor is named. Layers 0
 * to 2 have the same tensors, so one of these layers is enough. */
TEST(not_finite)
{
	uint64_t data = 8 + header_bytes();
	json_t *header = json_loadb(weights.data + 8, data - 8, 0, NULL), *tensor;
	const char *name;
	int n = 0;

	json_object_foreach(header, name, tensor)
	{
		const char *type = json_string_value(json_object_get(tensor, "dtype"));
		const json_t *span = json_object_get(tensor, "data_offsets");
		size_t begin = data + (size_t)json_integer_value(json_array_get(span, 0));
		size_t end = data + (size_t)json_integer_value(json_array_get(span, 1));
		size_t size = type && !strcmp(type, "BF16") ? 2 : 4, at;
		struct engine_options o;
		char old[4], part[200];
		unsigned layer;

		if (!type)
			continue;
		if (sscanf(name, "model.layers.%u.", &layer) == 1 && (layer == 0 || layer == 2))
			continue;
		at = begin + random_below((end - begin) / size) * size;
		memcpy(old, weights.data + at, size);
		weights.data[at + size - 1] = n % 3 ? 0x7f : (char)0xff;
		weights.data[at + size - 2] = (char)(n % 2 ? 0x80 : 0xc0);
		make_checkpoint("not_finite", buf_str(&config), weights.len);
		memcpy(weights.data + at, old, size);
		snprintf(part, sizeof(part), "tensor %s has a weight that is NaN or infinite",
			 name);
		o = options(scratch_path("not_finite"));
		o.dtype = n % 4 ? ENGINE_FLOAT32 : ENGINE_BFLOAT16;
		check(refused(&o, -EINVAL, part));
		n++;
	}
	ok_all("%d tensors with a weight that is not finite", n);
	json_decref(header);
}

/* The weight A_log is a logarithm. exp(100) is larger than any float. */
TEST(too_large)
{
	static const char name[] = "model.layers.0.linear_attn.A_log";
	uint64_t data = 8 + header_bytes();
	json_t *header = json_loadb(weights.data + 8, data - 8, 0, NULL);
	const json_t *tensor = json_object_get(header, name);
	bool narrow = !strcmp(json_string_value(json_object_get(tensor, "dtype")), "BF16");
	size_t at = data + (size_t)json_integer_value(
				   json_array_get(json_object_get(tensor, "data_offsets"), 0));
	const float large = 100;
	struct engine_options o;
	char old[4];

	memcpy(old, weights.data + at, 4);
	memcpy(weights.data + at, (const char *)&large + (narrow ? 2 : 0), narrow ? 2 : 4);
	make_checkpoint("too_large", buf_str(&config), weights.len);
	memcpy(weights.data + at, old, 4);
	o = options(scratch_path("too_large"));
	ok(refused(&o, -EINVAL, "A_log has a weight that is NaN or infinite"),
	   "a function of a weight is infinite");
	json_decref(header);
}

TEST(index)
{
	static const struct {
		const char *text, *part;
	} indices[] = {
		{"{\"weight_map\": {\"model.norm.weight\": \"gone.safetensors\"}}",
		 "gone.safetensors"},
		{"{\"weight_map\": {\"model.norm.weight\": \"../file\"}}", "index"},
		{"{\"weight_map\": {\"model.norm.weight\": \"/etc/passwd\"}}", "index"},
		{"{\"weight_map\": 7}", "index"},
		{"{", "index"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(indices); i++) {
		struct engine_options o;

		make_checkpoint("index", buf_str(&config), weights.len);
		write_text("index/model.safetensors.index.json", indices[i].text);
		o = options(scratch_path("index"));
		check(refused(&o, 0, indices[i].part));
	}
	ok_all("%zu indices that name the wrong files", ARRAY_SIZE(indices));
}

/* ---- options ---- */

TEST(options)
{
	struct engine_options o;
	char open_cache[256];

#define REFUSES(field, value, code, part, what)    \
	do {                                       \
		o = options(good);                 \
		o.field = (value);                 \
		ok(refused(&o, code, part), what); \
	} while (0)
	REFUSES(device_memory, 1, -ENOMEM, "--device-memory", "one byte of device memory");
	REFUSES(device_memory, 1 << 20, -ENOMEM, "--device-memory", "a MiB of device memory");
	REFUSES(device_memory, UINT64_MAX, -EINVAL, "--device-memory",
		"more device memory than there is");
	REFUSES(device_memory_share, 1e-12, -ENOMEM, "--device-memory",
		"next to no share of the device's memory");
	REFUSES(max_model_len, 1 << 30, -ENOMEM, NULL, "a context that no memory holds");
	REFUSES(device, "no such device", -ENODEV, "no such device", "no such device");
	REFUSES(device, "999", -ENODEV, "999", "no device of that number");
	REFUSES(device, "", -ENODEV, "\"\"", "a device without a name");
	REFUSES(cache_memory, 1, -ENOMEM, "--cache-memory", "one byte of cache");
	REFUSES(cache_memory, UINT64_MAX / 2, -EINVAL, "--cache-memory",
		"more cache than there is memory");
	REFUSES(cache_memory_share, 1e-9, -ENOMEM, "--cache-memory",
		"next to no share for the cache");
	REFUSES(program_cache, "/nonexistent/cache", -ENOENT, "/nonexistent/cache",
		"a program cache that cannot be made");
	REFUSES(program_cache, "/dev/null", -ENOTDIR, "/dev/null",
		"a program cache that is no directory");
	snprintf(open_cache, sizeof(open_cache), "%s", scratch_path("open"));
	check(mkdir(open_cache, 0700) == 0 && chmod(open_cache, 0777) == 0);
	REFUSES(program_cache, open_cache, -EPERM, "others may write to it (mode 777)",
		"a program cache that others may write to");
	REFUSES(dump_activations, "/nonexistent/dump", -ENOENT, "/nonexistent/dump",
		"activations that cannot be written");
#undef REFUSES
	/* A model of this configuration needs more than the GiB that the engine may use. */
	make_checkpoint("huge",
			changed("\"hidden_size\": 64",
				"\"hidden_size\": 65536, \"intermediate_size\": 65536"),
			weights.len);
	o = options(scratch_path("huge"));
	o.synthetic = true;
	o.device_memory = (uint64_t)1 << 30;
	ok(refused(&o, -ENOMEM, "GiB"), "a model that does not fit");
}

/* Of the bytes that the option names, less than a page and a slot are left over. Even the least that is allowed is
 * enough to run: engine_open runs a step. */
TEST(cache_memory)
{
	struct engine_options o = options(good);
	struct engine *g;
	struct err e = {0};
	uint64_t page, slot;

	o.max_model_len = 256;
	if (!ok(engine_open(&o, &g, &e) == 0, "opens %s", e.text))
		return;
	page = engine_info(g)->page_bytes;
	slot = engine_info(g)->slot_bytes;
	check(page && slot && engine_info(g)->n_slots > o.max_seqs + 1 &&
	      engine_info(g)->n_pages >= 16);
	engine_close(g);
	o.cache_memory = 40 * page + 40 * slot;
	if (ok(engine_open(&o, &g, &e) == 0, "opens with so much cache %s", e.text)) {
		const struct engine_info *i = engine_info(g);
		uint64_t used = i->n_pages * page + i->n_slots * slot;

		check(used <= o.cache_memory && used + page + slot > o.cache_memory);
		check(i->kv_bytes >= i->n_pages * page && i->state_bytes >= i->n_slots * slot);
		engine_close(g);
	}
	o.cache_memory = 4 * page +
			 5 * slot; /* one sequence, and a slot for each of max_seqs and one more */
	if (ok(engine_open(&o, &g, &e) == 0, "opens with the least %s", e.text)) {
		check(engine_info(g)->n_pages == 4 && engine_info(g)->n_slots == 5);
		engine_close(g);
	}
	o.cache_memory--;
	check(refused(&o, -ENOMEM, "--cache-memory"));
	ok_all("pages and slots are as many as the bytes asked for");
}

/* engine_measure says what engine_open then takes. Work space counts what rounding may add to the cache's buffers. */
TEST(measure)
{
	struct engine_options o = options(good);
	struct engine_needs n = {0};
	struct engine *g;
	struct err e = {0};

	o.max_model_len = 256;
	if (!ok(engine_measure(&o, &n, &e) == 0 && engine_open(&o, &g, &e) == 0, "opens %s",
		e.text))
		return;
	check(n.weight_bytes == engine_info(g)->weight_bytes && n.may_save == 0);
	check(n.page_bytes == engine_info(g)->page_bytes);
	check(n.slot_bytes == engine_info(g)->slot_bytes);
	check(n.scratch_bytes >= engine_info(g)->scratch_bytes);
	check(n.scratch_bytes <= engine_info(g)->scratch_bytes + (1 << 20));
	check(!strcmp(n.device_name, engine_info(g)->device_name));
	check(!strcmp(n.kernels, engine_info(g)->kernels));
	engine_close(g);
	o.device_memory = UINT64_C(1) << 50;
	check(engine_measure(&o, &n, &e) == 0 && n.budget_bytes == o.device_memory);
	o.model_dir = "/no/such/model";
	check(engine_measure(&o, &n, &e) == -ENOENT && one_sentence(e.text));
	o.model_dir = good;
	o.device = "no such device";
	check(engine_measure(&o, &n, &e) == -ENODEV && one_sentence(e.text));
	ok_all("what a model takes is known before it is opened");
}

/* Sends the log into a scratch file. Returns a descriptor of the place where it went before. */
static int log_into(const char *name)
{
	int before = dup(STDERR_FILENO), fd;

	scratch_write(name, "", 0);
	fd = open(scratch_path(name), O_WRONLY | O_APPEND);
	if (before < 0 || fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		abort();
	close(fd);
	return before;
}

/* Sends the log where it went before. Returns whether the scratch file has the text `part`. */
static bool log_had(int before, const char *name, const char *part)
{
	struct buf text;
	struct err e;
	bool has;

	dup2(before, STDERR_FILENO);
	close(before);
	buf_init(&text, 1 << 20);
	has = file_read(AT_FDCWD, scratch_path(name), name, &text, &e) == 0 &&
	      strstr(buf_str(&text), part);
	buf_release(&text);
	return has;
}

/* A damaged program cache costs time, and nothing else. */
TEST(damaged_cache)
{
	struct engine_options o = options(good);
	struct engine *g;
	struct err e = {0};
	size_t damaged = 0;
	struct dirent *d;
	char cache[256];
	DIR *dir;

	snprintf(cache, sizeof(cache), "%s", scratch_path("cache"));
	o.program_cache = cache;
	for (int round = 0; round < 2; round++) {
		int log = log_into("log"), r = engine_open(&o, &g, &e);

		ok(log_had(log, "log", " programs, once: the program cache keeps them\n"),
		   "the log counts the programs, and says that it is for once");
		if (!ok(r == 0, "opens with a %s program cache %s", round ? "damaged" : "new",
			e.text))
			return;
		engine_close(g);
		dir = opendir(cache);
		while (!round && dir && (d = readdir(dir))) {
			char path[600];

			if (!strstr(d->d_name, ".clbin"))
				continue;
			snprintf(path, sizeof(path), "cache/%s", d->d_name);
			scratch_write(path, "TIGONCL1 and then nothing that is a program",
				      20 + damaged % 20);
			damaged++;
		}
		closedir(dir);
	}
	ok(damaged >= 8, "%zu programs were damaged", damaged);
}

/* ---- plans ---- */

TEST(plans)
{
	struct engine_options o = options(good);
	struct sampling greedy = run_greedy();
	int32_t tokens[256] = {0};
	uint32_t pages[4] = {0, 1, 2, 3};
	struct draw_result results[8 + 64];
	struct engine *g;
	struct err e = {0};

	if (!ok(engine_open(&o, &g, &e) == 0, "opens %s", e.text))
		return;
	for (int i = 0; i < 21; i++) {
		int32_t wrong[2] = {0, -1};
		struct plan_row rows[8];
		struct plan_draw draws[8];
		struct plan_score scores[2] = {{.next = tokens, .n_tokens = 63, .n_top = 5},
					       {.next = tokens, .row = 1}};
		struct plan_pooling poolings[2] = {{.first = 3, .begins = true, .ends = true},
						   {.row = 1}};
		struct plan p = {.step = 1,
				 .poolings = poolings,
				 .n_poolings = 1,
				 .rows = rows,
				 .draws = draws,
				 .scores = scores,
				 .n_scores = 1,
				 .n_scored_tokens = 63,
				 .n_rows = 1,
				 .n_prefill_rows = 1,
				 .n_prefill_tokens = 64,
				 .n_draws = 1};

		for (uint32_t k = 0; k < 8; k++) {
			rows[k] = (struct plan_row){.tokens = tokens,
						    .pages = pages,
						    .n_tokens = 64,
						    .n_pages = 1,
						    .state_src = STATE_ZERO,
						    .state_dst = k % 4};
			draws[k] = (struct plan_draw){.sampling = &greedy};
		}
		switch (i) {
		case 1: rows[0].n_tokens = 0; break;
		case 2: rows[0].n_tokens = 65; break; /* past its pages */
		case 3: rows[0].start = UINT32_MAX - 10; break;
		case 4: p.n_rows = p.n_prefill_rows = 5; break; /* more than max_seqs */
		case 5: p.n_draws = 5; break;
		case 6: draws[0].row = 1; break;
		case 7: draws[0].seat = 4; break;
		case 8: p.n_prefill_rows = 2; break;
		case 9: p.n_scores = 2; break;
		case 10: p.n_scored_tokens = 64; break;
		case 11: scores[0].n_tokens = p.n_scored_tokens = 65; break;
		case 12: scores[0].n_top = TOP_LOGPROBS_MAX + 1; break;
		case 13: scores[0].row = 1; break;
		case 14: p.n_prefill_rows = 0; break;
		case 15:
			scores[0].next = wrong;
			scores[0].n_tokens = p.n_scored_tokens = 2;
			break;
		case 16: scores[0].first = 2; break;
		case 17: p.n_poolings = 2; break;
		case 18: poolings[0].row = 1; break;
		case 19: poolings[0].first = 64; break;
		case 20: poolings[0].seat = 4; break;
		}
		/* Plan 0 is good. */
		is_int(engine_step(g, &p, results, &e), i ? -EINVAL : 0, "a plan %s",
		       i ? "outside the limits is refused" : "within them runs");
	}
	engine_close(g);
}

/* ---- steps that are given up ---- */

cl_int __real_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				  size_t offset, size_t size, void *to, cl_uint n,
				  const cl_event *wait, cl_event *event);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				  size_t offset, size_t size, void *to, cl_uint n,
				  const cl_event *wait, cl_event *event);

/* Results that are read before one that says that its step was given up; -1: none says so. */
static int good_results = -1;

cl_int __wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
				  size_t offset, size_t size, void *to, cl_uint n,
				  const cl_event *wait, cl_event *event)
{
	cl_int code = __real_clEnqueueReadBuffer(queue, buffer, blocking, offset, size, to, n, wait,
						 event);

	if (!blocking && good_results >= 0 && !good_results--) {
		clFinish(queue);
		((int32_t *)to)[RESULT_GIVEN_UP] = GIVEN_UP(1, 3);
	}
	return code;
}

/* Generates one token. *ret_launches: the kernels that were launched for it. */
static int generate(struct engine *g, int32_t *ret_token, uint64_t *ret_launches, struct err *e)
{
	const struct sampling greedy = run_greedy();
	const int32_t token = 5;
	const uint32_t page = 0;
	const struct plan_row row = {.tokens = &token,
				     .pages = &page,
				     .n_tokens = 1,
				     .n_pages = 1,
				     .state_src = STATE_ZERO,
				     .decode = true};
	const struct plan_draw draw = {.sampling = &greedy};
	const struct plan plan = {
		.step = 1, .rows = &row, .draws = &draw, .n_rows = 1, .n_draws = 1};
	struct engine_counters before, after;
	struct draw_result result = {0};
	int r;

	engine_counters(g, &before);
	r = engine_step(g, &plan, &result, e);
	engine_counters(g, &after);
	*ret_token = result.token;
	*ret_launches = after.launches - before.launches;
	return r;
}

TEST(given_up)
{
	struct engine_options o = options(good);
	int32_t right = -1, token = -1;
	uint64_t together, apart;
	struct engine *g;
	struct err e = {0};

	if (!ok(engine_open(&o, &g, &e) == 0, "opens %s", e.text))
		return;
	is_int(generate(g, &right, &together, &e), 0, "a token is generated");
	good_results = 0;
	is_int(generate(g, &token, &apart, &e), -EIO, "a step that is given up loses the device");
	ok(strstr(e.text, "given up, because 3 of its groups did not come to the end of phase 1 "),
	   "and says where: %s", e.text);
	is_int(generate(g, &token, &apart, &e), -EIO, "it stays lost");
	engine_close(g);
	if (together != 3)
		return;	  /* this device launches all kernels one by one */
	good_results = 1; /* the first step is a prompt */
	if (!ok(engine_open(&o, &g, &e) == 0, "it opens if its first such step is given up"))
		return;
	is_int(generate(g, &token, &apart, &e), 0, "and generates a token");
	ok(token == right && apart > together, "the same one, in %u launches, not %u",
	   (unsigned)apart, (unsigned)together);
	engine_close(g);
}

/* ---- models without attention ---- */

cl_int __real_clSetKernelArg(cl_kernel kernel, cl_uint i, size_t size, const void *value);
cl_int __wrap_clSetKernelArg(cl_kernel kernel, cl_uint i, size_t size, const void *value);

/* Bytes of the buffer that embed (generic/embed.cl) writes rotary angles to. */
static size_t angle_bytes;

cl_int __wrap_clSetKernelArg(cl_kernel kernel, cl_uint i, size_t size, const void *value)
{
	enum { ROPE = 7 };
	char name[64] = "";

	clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name) - 1, name, NULL);
	if (!strcmp(name, "embed") && i == ROPE)
		clGetMemObjectInfo(*(const cl_mem *)value, CL_MEM_SIZE, sizeof(angle_bytes),
				   &angle_bytes, NULL);
	return __real_clSetKernelArg(kernel, i, size, value);
}

/* Without attention a token still has one pair of rotary angles. */
TEST(states_alone)
{
	struct engine_options o;
	struct engine *g;
	struct err e = {0};
	uint64_t launches;
	int32_t token = -1;

	make_checkpoint("states", changed("\"full_attention\"", "\"linear_attention\""),
			weights.len);
	o = options(scratch_path("states"));
	o.synthetic = true;
	if (!ok(engine_open(&o, &g, &e) == 0, "a model of Gated DeltaNet alone opens")) {
		printf("# %s\n", e.text);
		return;
	}
	is_int(generate(g, &token, &launches, &e), 0, "and generates a token");
	ok(angle_bytes >= (o.max_prefill_tokens + o.max_seqs) * 2 * sizeof(float),
	   "%zu bytes have room for the angles of all tokens", angle_bytes);
	engine_close(g);
}

/* ---- leftovers ---- */

TEST(still_good)
{
	struct engine_options o = options(good);
	struct run_setup setup = run_setup_of(&o);
	struct golden golden = {0};
	struct run *runs;
	struct engine *g;
	struct err e = {0};
	float worst = 0;

	if (!ok(golden_open(good, &golden) && engine_open(&o, &g, &e) == 0,
		"opens after all this %s", e.text))
		return;
	runs = golden_runs(&golden);
	for (size_t i = 0; i < golden.n; i++) {
		check(run_all(g, &setup, &runs[i], 1));
		check(golden_matches(&golden.cases[i], &runs[i], &worst));
	}
	engine_close(g);
	ok_all("and answers as it should");
	is_int(descriptors(), descriptors_before, "no descriptor is left open");
}

static bool read_good(void)
{
	char path[8192];
	struct err e = {0};
	bool is_read;

	buf_init(&config, FILE_MAX);
	buf_init(&weights, FILE_MAX);
	snprintf(path, sizeof(path), "%s/config.json", good);
	is_read = file_read(AT_FDCWD, path, path, &config, &e) == 0;
	snprintf(path, sizeof(path), "%s/model.safetensors", good);
	is_read = is_read && file_read(AT_FDCWD, path, path, &weights, &e) == 0;
	if (!is_read)
		printf("# %s\n", e.text);
	return is_read;
}

int main(int argc, char **argv)
{
	struct engine_options o;
	struct engine *g;
	struct err e = {0};

	if (argc < 2)
		return 2;
	snprintf(good, sizeof(good), "%s/01-moe", argv[1]);
	if (!read_good())
		return 2;
	/* OpenCL opens some descriptors once and keeps them; they are open before descriptors are counted. */
	o = options(good);
	if (engine_open(&o, &g, &e) < 0) {
		printf("# %s\n", e.text);
		return 2;
	}
	engine_close(g);
	descriptors_before = descriptors();
	run_tests();
	buf_release(&config);
	buf_release(&weights);
	return done();
}
