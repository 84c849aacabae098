#include "daemon/options.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "protocol/transfer/message.h"
#include "tests/tap.h"

/* Parses a command line given as words; argv[0] is added. */
#define PARSE(o, e, ...)                                                          \
	options_parse((int)ARRAY_SIZE(((const char *[]){"tigond", __VA_ARGS__})), \
		      (const char *[]){"tigond", __VA_ARGS__}, o, e)

TEST(defaults)
{
	struct options o;
	struct err e = {0};

	is_int(PARSE(&o, &e, "--model", "m"), 0, "--model is enough");
	is_str(o.model, "m", "model");
	is_str(o.host, "127.0.0.1", "host");
	is_int(o.port, 8080, "port");
	is_int(o.dtype, 1, "dtype is bfloat16");
	is_int(o.kv_dtype, 0, "and that of the KV cache too");
	is_int(o.kernels, 0, "kernels is auto");
	is_int(o.pooling, 0, "embeddings are of the last token");
	is_int(o.max_num_seqs, 64, "sequences");
	is_int(o.max_batched_tokens, 2048, "prefill budget");
	is_int(o.max_prefill_ms, 0, "no limit of a step's time");
	is_int(o.page_size, 64, "page");
	is_int(o.max_model_len, 0, "context: the model's");
	is_int(o.max_body, 16 << 20, "body");
	is_int(o.max_queued_requests, 1024, "queue");
	is_int(o.drain_timeout, 15, "seconds of a drain");
	is_int(o.log_level, 2, "log level is info");
	ok(!o.synthetic && !o.help && !o.version && !o.list_devices, "flags are off");
	ok(!o.tokenizer && !o.device && !o.program_cache, "texts are absent");
	ok(!o.served_model_name.n && !o.served_model_name.any, "so are names");
	ok(o.prefix_cache == OPTION_ON && o.cache_decoded == OPTION_ON, "the cache is on");
	ok(o.batch_invariant == OPTION_ON && !o.tuning, "bits stay, and there is no table");
	ok(o.cache_memory.bytes == 0 && o.cache_memory.share == 0, "cache memory is absent");
	ok(o.device_memory.bytes == 0 && o.device_memory.share == 0, "device memory is absent");
}

TEST(values)
{
	struct options o;
	struct err e = {0};

	is_int(PARSE(&o, &e, "--model=a=b", "--port=0", "--dtype", "float32", "--kernels", "nvidia",
		     "--max-body", "1M", "--synthetic-weights", "18446744073709551615", "--port",
		     "9", "--kv-dtype", "int8"),
	       0, "both spellings");
	is_str(o.model, "a=b", "only the first = separates");
	is_int(o.port, 9, "the last one counts");
	is_int(o.dtype, 0, "float32");
	is_int(o.kv_dtype, 1, "and int8");
	is_int(o.kernels, 3, "nvidia");
	is_int(o.max_body, 1 << 20, "1M");
	ok(o.synthetic && o.synthetic_seed == UINT64_MAX, "largest seed");
	is_int(PARSE(&o, &e, "--model=m", "--prefix-cache", "off", "--cache-decoded=off",
		     "--cache-memory", "25%", "--max-queued-requests", "1"),
	       0, "what is about the cache");
	ok(o.prefix_cache == OPTION_OFF && o.cache_decoded == OPTION_OFF, "off");
	ok(o.cache_memory.share > 0.249 && o.cache_memory.share < 0.251, "a share");
	is_int(PARSE(&o, &e, "--model=m", "--tuning", "t.tsv", "--batch-invariant=off"), 0,
	       "what is about tuning");
	ok(o.batch_invariant == OPTION_OFF && !strcmp(o.tuning, "t.tsv"), "as given");
	is_int(PARSE(&o, &e, "--model=m", "--cache-memory=3M", "--prefix-cache=on"), 0, "or bytes");
	ok(o.cache_memory.bytes == 3 << 20 && o.prefix_cache == OPTION_ON, "as given");
	is_int(PARSE(&o, &e, "--model=m", "--served-model-name", "a", "--served-model-name=*",
		     "--served-model-name", "b/c"),
	       0, "several names");
	ok(o.served_model_name.n == 2 && o.served_model_name.any, "'*' is not one of them");
	is_str(o.served_model_name.v[1], "b/c", "in their order");
	is_int(PARSE(&o, &e, "--help"), 0, "--help needs no model");
	ok(o.help, "--help");
	is_int(PARSE(&o, &e, "--list-devices"), 0, "--list-devices needs no model");
	is_int(PARSE(&o, &e, "--version"), 0, "--version needs no model");
}

TEST(memory)
{
	static const struct {
		const char *text;
		uint64_t bytes;
		double share;
	} good[] = {
		{"8G", 8ull << 30, 0}, {"1048576", 1 << 20, 0}, {"512MiB", 512 << 20, 0},
		{"0.6", 0, 0.6},       {"60%", 0, 0.6},		{"1.0", 0, 1},
		{"100%", 0, 1},	       {".5", 0, .5},
	};
	static const char *const bad[] = {"",
					  "0",
					  "0%",
					  "101%",
					  "1.5",
					  "x",
					  "8X",
					  "-1",
					  "8 G",
					  "1e3",
					  "0x8",
					  "nan",
					  "inf",
					  "%",
					  ".",
					  "1.2.3",
					  "0.0",
					  "8G%",
					  "99999999999999999999"};
	struct options o;
	struct err e = {0};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		check(PARSE(&o, &e, "--model", "m", "--device-memory", good[i].text) == 0);
		check(o.device_memory.bytes == good[i].bytes);
		check(o.device_memory.share > good[i].share - 1e-9 &&
		      o.device_memory.share < good[i].share + 1e-9);
	}
	ok_all("bytes and shares");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		e.text[0] = 0;
		check(PARSE(&o, &e, "--model", "m", "--device-memory", bad[i]) < 0);
		check(!strncmp(e.text, "--device-memory: ", 17));
	}
	ok_all("what is neither");
}

TEST(record)
{
	struct options o;
	struct err e = {0};

	is_int(PARSE(&o, &e, "--model=m", "--record=r", "--cache-dir=d"), -EINVAL,
	       "no record of a cache on disk");
	is_str(e.text, "--record cannot be combined with --cache-dir or --host-cache-memory",
	       "which is said");
	is_int(PARSE(&o, &e, "--model=m", "--record=r", "--host-cache-memory=1G"), -EINVAL,
	       "nor of one in the host's memory");
	is_int(PARSE(&o, &e, "--model=m", "--record=r", "--cache-dir=d", "--prefix-cache=off"), 0,
	       "unless neither is used");
}

TEST(errors)
{
	struct options o = {.port = 1234};
	struct err e = {0};

	ok(PARSE(&o, &e, "--port", "1") < 0, "no model");
	is_str(e.text, "--model DIR is required; --help lists the options", "which is said");
	ok(PARSE(&o, &e, "--model", "m", "--port", "70000") < 0, "port too large");
	is_str(e.text, "--port: 70000 is not between 0 and 65535", "range");
	check(PARSE(&o, &e, "--model=m", "--host-cache-memory", "4398046511105M") < 0);
	is_str(e.text, "--host-cache-memory: 4398046511105M is not between 0 and 4194304T",
	       "a size's range, in units");
	check(PARSE(&o, &e, "--model=m", "--max-body=1023") < 0);
	is_str(e.text, "--max-body: 1023 is not between 1K and 1G", "at both ends");
	check(PARSE(&o, &e, "--model=m", "--cache-dir", "") < 0);
	is_str(e.text, "--cache-dir: the name is empty", "a folder without a name");
	ok(PARSE(&o, &e, "--model", "m", "--port", "80x") < 0, "port is no number");
	is_str(e.text, "--port: \"80x\" is not a whole number", "number");
	ok(PARSE(&o, &e, "--model", "m", "--port", "-1") < 0, "a sign");
	ok(PARSE(&o, &e, "--model", "m", "--port", "") < 0, "empty number");
	ok(PARSE(&o, &e, "--model", "m", "--port", "18446744073709551616") < 0, "number overflows");
	ok(PARSE(&o, &e, "--model", "m", "--max-body", "99999999999T") < 0, "size overflows");
	ok(PARSE(&o, &e, "--model", "m", "--dtype", "fp8") < 0, "choice");
	is_str(e.text, "--dtype: \"fp8\" is none of float32 or bfloat16", "choices are listed");
	ok(PARSE(&o, &e, "--model", "m", "--kv-dtype", "int4") < 0, "no int4");
	is_str(e.text, "--kv-dtype: \"int4\" is none of auto or int8", "its choices");
	ok(PARSE(&o, &e, "--model", "m", "--prefix-cache", "no") < 0, "a switch");
	is_str(e.text, "--prefix-cache: \"no\" is none of on or off", "is on or off");
	ok(PARSE(&o, &e, "--model", "m", "--cache-memory", "lots") < 0, "cache memory");
	is_str(e.text, "--cache-memory: \"lots\" is neither bytes (8G) nor a share (0.6, 60%)",
	       "as others");
	ok(PARSE(&o, &e, "--model", "m", "--prot", "1") < 0, "misspelt option");
	is_str(e.text, "unknown option --prot; did you mean --port?", "suggestion");
	ok(PARSE(&o, &e, "--model", "m", "--max-model", "1") < 0, "shortened option");
	is_str(e.text, "unknown option --max-model; did you mean --max-model-len?", "suggestion");
	ok(PARSE(&o, &e, "--model", "m", "--frobnicate") < 0, "unknown option");
	is_str(e.text, "unknown option --frobnicate; --help lists them", "no suggestion");
	ok(PARSE(&o, &e, "--model", "m", "--nope") < 0, "another word of four letters");
	is_str(e.text, "unknown option --nope; --help lists them", "--port is none");
	ok(PARSE(&o, &e, "--model") < 0, "missing value");
	is_str(e.text, "--model needs a value: --model DIR", "which is said");
	ok(PARSE(&o, &e, "--model", "m", "--help=1") < 0, "flag with a value");
	ok(PARSE(&o, &e, "m") < 0, "a word that is no option");
	ok(PARSE(&o, &e, "--") < 0, "only dashes");
	ok(PARSE(&o, &e, "--model", "m", "--page-size", "100") < 0, "page not a multiple");
	is_str(e.text, "--page-size: 100 is not a multiple of 64", "which is said");
	ok(PARSE(&o, &e, "--model", "m", "--page-size", "128", "--max-batched-tokens", "64") < 0,
	   "budget below a page");
	is_str(e.text, "--max-batched-tokens: 64 is less than one page (--page-size 128)",
	       "both numbers");
	is_int(o.port, 1234, "a failure leaves the result alone");
	ok(PARSE(&o, &e,
		 "--a-name-that-is-much-longer-than-every-option-that-there-could-ever-be-here") <
		   0,
	   "a very long name");
}

TEST(drain_timeout)
{
	struct options o;
	struct err e = {0};

	is_int(PARSE(&o, &e, "--model=m", "--drain-timeout=0"), 0, "none");
	is_int((long long)o.drain_timeout, 0, "none");
	is_int(PARSE(&o, &e, "--model=m", "--drain-timeout=86400"), 0, "a day");
	is_int(PARSE(&o, &e, "--model=m", "--drain-timeout=86401"), -EINVAL, "more than a day");
}

TEST(served_names)
{
	char name[300];
	struct options o;
	struct err e = {0};

	memset(name, 'a', sizeof(name));
	name[256] = 0;
	is_int(PARSE(&o, &e, "--model=m", "--served-model-name", name), 0, "256 bytes");
	name[256] = 'a';
	name[257] = 0;
	is_int(PARSE(&o, &e, "--model=m", "--served-model-name", name), -EINVAL, "257");
	is_str(e.text, "--served-model-name: the name has 257 bytes, more than 256", "a sentence");
	is_int(PARSE(&o, &e, "--model=m", "--served-model-name", "a\nb"), -EINVAL, "two lines");
	is_str(e.text, "--served-model-name: the name has a character that cannot be printed",
	       "a sentence");
}

/* Parses the command line of a prefill worker that has a registry; the further arguments are more options. */
#define PREFILL(o, e, ...) \
	PARSE(o, e, "--model=m", "--role=prefill", "--registry=tcp://127.0.0.1:1", __VA_ARGS__)

TEST(registry)
{
	struct options o;
	struct err e = {0};
	char longest[WIRE_ENDPOINT + 64] = "--transfer-announce=tcp://";

	is_int(PARSE(&o, &e, "--model=m", "--role=decode", "--registry=tcp://127.0.0.1:1"), 0,
	       "a registry is enough to decode");
	is_int(PREFILL(&o, &e, "--transfer-listen=tcp://127.0.0.1:0"), 0, "or to prefill");
	ok(!o.transfer_announce, "what is announced is where it listens");
	is_int(PREFILL(&o, &e, "--transfer-key=k", "--transfer-listen=tcp://*:0"), -EINVAL,
	       "unless that is anywhere");
	is_str(e.text,
	       "--registry: no worker can connect to tcp://*:0; --transfer-announce tcp://HOST:PORT says "
	       "where this worker is reached",
	       "which is said");
	is_int(PREFILL(&o, &e, "--transfer-key=k", "--transfer-listen=tcp://*:1",
		       "--transfer-announce=tcp://pod-1:1"),
	       0, "then it is given");
	is_str(o.transfer_announce, "tcp://pod-1:1", "as it was");
	is_int(PREFILL(&o, &e, "--transfer-key=k", "--transfer-listen=tcp://*:1",
		       "--transfer-announce=tcp://0.0.0.0:1"),
	       -EINVAL, "%s", e.text);
	is_str(e.text, "--transfer-announce: no worker can connect to tcp://0.0.0.0:1",
	       "a place that is none");
	is_int(PREFILL(&o, &e, "--transfer-listen=tcp://127.0.0.1:1",
		       "--transfer-announce=tcp://10.0.0.1:1"),
	       -EINVAL, "beyond loopback without keys");
	is_int(PREFILL(&o, &e, "--transfer-listen=tcp://127.0.0.1:1",
		       "--transfer-announce=tcp://127.0.0.1:0"),
	       -EINVAL, "a port that is none");
	is_int(PREFILL(&o, &e, "--transfer-key=k", "--transfer-listen=tcp://*:0",
		       "--transfer-announce=tcp://pod-1:1"),
	       -EINVAL, "%s", e.text);
	ok(strstr(e.text, "takes any free port") != NULL, "a port that it cannot know");
	is_int(PARSE(&o, &e, "--model=m", "--role=prefill", "--registry=tcp://10.0.0.1:1",
		     "--transfer-key=k", "--transfer-listen=tcp://127.0.0.1:1"),
	       -EINVAL, "%s", e.text);
	ok(strstr(e.text, "only this machine reaches tcp://127.0.0.1:1") != NULL,
	   "loopback is nothing to a registry that is elsewhere");
	is_int(PARSE(&o, &e, "--model=m", "--role=prefill", "--registry=tcp://10.0.0.1:1",
		     "--transfer-key=k", "--transfer-listen=tcp://127.0.0.1:1",
		     "--transfer-announce=tcp://10.0.0.2:1"),
	       0, "unless another place is announced");
	memset(longest + strlen(longest), 'a', WIRE_ENDPOINT);
	memcpy(longest + strlen(longest), ":1", 3);
	is_int(PREFILL(&o, &e, "--transfer-key=k", "--transfer-listen=tcp://*:1", longest), -EINVAL,
	       "one that is too long");
	is_str(e.text, "--transfer-announce: it has more than 191 bytes", "is told");
	is_int(PARSE(&o, &e, "--model=m", "--role=prefill", "--transfer-listen=tcp://127.0.0.1:1",
		     "--transfer-announce=tcp://127.0.0.1:1"),
	       -EINVAL, "without a registry nobody is told");
	is_str(e.text, "--transfer-announce is for --role prefill with --registry",
	       "which is said");
}

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = NULL;
	size_t len = 0;

	if (!f)
		return NULL;
	if (getdelim(&text, &len, 0, f) < 0) {
		free(text);
		text = NULL;
	}
	fclose(f);
	return text;
}

/* The manual has every option of the table, and no other: ".It Fl Fl name Ar argument". */
static void test_manual(const char *path)
{
	char *text = read_file(path);
	const struct option_def *table;
	size_t n, found = 0;

	if (!ok(text != NULL, "%s can be read", path))
		return;
	table = options_table(&n);
	for (size_t i = 0; i < n; i++) {
		char item[128], with[128];

		snprintf(item, sizeof(item), ".It Fl Fl %s\n", table[i].name);
		snprintf(with, sizeof(with), ".It Fl Fl %s Ar %s\n", table[i].name,
			 table[i].argument ? table[i].argument : "");
		ok(strstr(text, table[i].argument ? with : item) != NULL, "the manual has --%s",
		   table[i].name);
	}
	for (const char *p = text; (p = strstr(p, ".It Fl Fl ")); p++)
		found++;
	is_int(found, n, "and nothing else");
	free(text);
}

TEST(help)
{
	const struct option_def *table;
	char *text = NULL;
	size_t len = 0, n;
	FILE *f = open_memstream(&text, &len);

	options_help(f);
	fclose(f);
	table = options_table(&n);
	for (size_t i = 0; i < n; i++) {
		char item[64];

		snprintf(item, sizeof(item), "  --%s ", table[i].name);
		check(strstr(text, item) != NULL);
	}
	ok_all("--help has every option");
	ok(strstr(text, "(0 to 65535; default 8080)") != NULL, "with range and default");
	free(text);
}

int main(int argc, char **argv)
{
	run_tests();
	test_manual(argc > 1 ? argv[1] : "man/tigond.8");
	return done();
}
