#include "daemon/options.h"

#include <errno.h>
#include <string.h>

#include "daemon/engine_options.h"
#include "daemon/transfer/endpoint.h"
#include "protocol/output/tools.h"
#include "protocol/transfer/message.h"
#include "scheduler/plan.h"

static const char *const levels[] = {"error", "warning", "info", "debug", NULL};

static const char *const poolings[] = {"last", "mean", NULL};

static const char *const roles[] = {
	[ROLE_UNIFIED] = "unified", [ROLE_PREFILL] = "prefill", [ROLE_DECODE] = "decode", NULL};

#define NAME(name) #name,
static const char *const tool_calls[] = {
	[TOOL_CALLS_AUTO] = "auto", [TOOL_CALLS_NONE] = "none", TOOLS_FORMATS(NAME) NULL};

static int take_peer(const struct option_def *d, const char *value, void *member, struct err *e)
{
	struct option_peers *p = member;
	int r = transfer_endpoint_check(value, false, e);

	if (r < 0) {
		err_prefix(e, "--prefill");
		return r;
	}
	if (p->n == PREFILL_PEERS_MAX)
		return err_set(e, EINVAL, "--prefill: there are more than %d", PREFILL_PEERS_MAX);
	for (size_t i = 0; i < p->n; i++)
		if (!strcmp(p->v[i], value))
			return err_set(e, EINVAL, "--prefill: %s is there twice", value);
	p->v[p->n++] = value;
	return 0;
}

static int take_name(const struct option_def *d, const char *value, void *member, struct err *e)
{
	struct option_names *names = member;

	if (!value[0])
		return err_set(e, EINVAL, "--served-model-name: the name is empty");
	if (!strcmp(value, "*")) {
		names->any = true;
		return 0;
	}
	if (names->n == SERVED_NAMES_MAX)
		return err_set(e, EINVAL, "--served-model-name: there are more than %d",
			       SERVED_NAMES_MAX);
	names->v[names->n++] = value;
	return 0;
}

#define AT(member) offsetof(struct options, member)

static const struct option_def table[] = {
	{"model", "DIR", OPTION_TEXT, AT(model),
	 .text = "a directory with config.json, tokenizer.json and *.safetensors; or a GGUF file"},
	{"tokenizer", "DIR", OPTION_TEXT, AT(tokenizer), .initial_text = "the model's",
	 .text = "where tokenizer.json and the chat template are; or a GGUF file"},
	{"served-model-name", "NAME", OPTION_OWN, AT(served_model_name),
	 .initial_text = "the base name of --model",
	 .text = "a name that clients use; may be repeated; '*' takes any name", .take = take_name},
	{"tool-call-parser", "FORMAT", OPTION_CHOICE, AT(tool_call_parser), .choices = tool_calls,
	 .text = "how the model writes tool calls; auto: as its chat template shows"},
	{"default-chat-template-kwargs", "JSON", OPTION_TEXT, AT(default_chat_template_kwargs),
	 .initial_text = "none",
	 .text = "chat_template_kwargs for requests that do not say otherwise"},
	{"pooling", "HOW", OPTION_CHOICE, AT(pooling), .choices = poolings,
	 .text = "embeddings: of the last token, or the mean of all, unless the request says"},
	{"host", "ADDRESS", OPTION_TEXT, AT(host), .initial_text = "127.0.0.1",
	 .text = "address or name to listen on"},
	{"port", "N", OPTION_NUMBER, AT(port), .max = 65535, .initial = 8080,
	 .text = "TCP port to listen on; 0 takes a free one and logs it"},
	{"allowed-host", "NAMES", OPTION_TEXT, AT(allowed_host), .initial_text = "none",
	 .text = "names that requests to a loopback address may have as Host; commas between, * for all"},
	{"cors-origin", "ORIGINS", OPTION_TEXT, AT(cors_origin), .initial_text = "*",
	 .text = "web pages that may read answers: https://HOST, commas between; * for all; none"},
	{"tls-cert", "FILE", OPTION_TEXT, AT(tls_cert), .initial_text = "none; HTTP without TLS",
	 .text = "HTTPS with this certificate in PEM, and those of its issuers behind it"},
	{"tls-key", "FILE", OPTION_TEXT, AT(tls_key), .initial_text = "none",
	 .text = "the key of --tls-cert, in PEM without a password"},
	{"api-key-file", "FILE", OPTION_TEXT, AT(api_key_file), .initial_text = "none",
	 .text = "keys, one a line; a client has to send one of them"},
	{"admin-port", "N", OPTION_NUMBER, AT(admin_port), .given = AT(admin), .max = 65535,
	 .initial_text = "none; without it the main port has all paths if it is loopback",
	 .text = "TCP port for /cache, /metrics and /abort, which the main port then has no more"},
	{"admin-host", "ADDRESS", OPTION_TEXT, AT(admin_host), .initial_text = "127.0.0.1",
	 .text = "address or name of --admin-port"},
	{"admin-key-file", "FILE", OPTION_TEXT, AT(admin_key_file),
	 .initial_text = "none; required beyond loopback",
	 .text = "keys, one a line; a request to --admin-port has to send one of them"},
	{"dtype", "TYPE", OPTION_CHOICE, AT(dtype), .choices = engine_dtype_names, .initial = 1,
	 .text = "number format of weights, KV cache and GEMM inputs"},
	{"kv-dtype", "TYPE", OPTION_CHOICE, AT(kv_dtype), .choices = engine_kv_dtype_names,
	 .text = "number format of the KV cache: that of --dtype (auto), or int8"},
	{"max-model-len", "TOKENS", OPTION_NUMBER, AT(max_model_len), .min = 2, .max = 1u << 24,
	 .initial_text = "the model's", .text = "longest sequence, prompt and answer together"},
	{"clamp-max-tokens", NULL, OPTION_FLAG, AT(clamp_max_tokens),
	 .text = "generate as much as fits when max_tokens is larger, instead of status 400"},
	{"max-num-seqs", "N", OPTION_NUMBER, AT(max_num_seqs), .given = AT(fixed_seqs), .min = 1,
	 .max = 4096, .initial = 64,
	 .text = "sequences that run at the same time; by default fewer if their states do not fit"},
	{"max-batched-tokens", "TOKENS", OPTION_NUMBER, AT(max_batched_tokens), .min = CHUNK_TOKENS,
	 .max = 1u << 20, .initial = 2048,
	 .text = "prompt tokens computed in one step; at least one page"},
	{"max-prefill-ms", "MS", OPTION_NUMBER, AT(max_prefill_ms), .max = 60000,
	 .initial_text = "no limit",
	 .text = "time that a step computes prompts for, while answers run; at least one page"},
	{"page-size", "TOKENS", OPTION_NUMBER, AT(page_size), .min = CHUNK_TOKENS, .max = 4096,
	 .initial = 64, .multiple = CHUNK_TOKENS,
	 .text = "tokens in a page of the KV cache, a multiple of 64"},
	{"device", "WHICH", OPTION_TEXT, AT(device),
	 .initial_text = "the first GPU, else the first device",
	 .text = "OpenCL device: its number or a part of its name"},
	{"kernels", "VARIANT", OPTION_CHOICE, AT(kernels), .choices = engine_kernels_names,
	 .text = "kernel variant; auto takes what the device can do"},
	{"copy-queue", "WHICH", OPTION_CHOICE, AT(copy_queue), .choices = engine_copy_queue_names,
	 .text = "copies of pages and states: shared with steps, or own; auto is own on a GPU"},
	{"tuning", "FILE", OPTION_TEXT, AT(tuning), .initial_text = "the built-in table",
	 .text = "a table made by tigon tune: how kernels are cut on this device"},
	{"batch-invariant", "SWITCH", OPTION_CHOICE, AT(batch_invariant),
	 .choices = option_switch_names,
	 .text = "the same bits in every batch; off allows rows of --tuning that change bits"},
	{"program-cache", "DIR", OPTION_TEXT, AT(program_cache),
	 .initial_text = "tigon below the user's cache directory",
	 .text = "where compiled programs are kept; an empty DIR keeps none"},
	{"device-memory", "BYTES|SHARE", OPTION_MEMORY, AT(device_memory), .initial_text = "90%",
	 .text = "memory to use on the device: 8G, or a share such as 0.6 or 60%"},
	{"prefix-cache", "SWITCH", OPTION_CHOICE, AT(prefix_cache), .choices = option_switch_names,
	 .text = "keep pages and states, for prompts that begin alike"},
	{"cache-memory", "BYTES|SHARE", OPTION_MEMORY, AT(cache_memory),
	 .initial_text = "on a GPU what the model leaves, on a CPU a part of it",
	 .text = "memory for KV pages and states: 4G, or a share of what the model leaves"},
	{"host-cache-memory", "BYTES", OPTION_SIZE, AT(host_cache_memory), .max = UINT64_C(1) << 62,
	 .initial_text = "none",
	 .text = "host memory for pages and states that the device evicts: 8G"},
	{"cache-dir", "DIR", OPTION_TEXT, AT(cache_dir), .initial_text = "none",
	 .text = "keep the prefix cache on disk as well, across restarts"},
	{"cache-disk", "BYTES", OPTION_SIZE, AT(cache_disk), .max = UINT64_C(1) << 62,
	 .initial_text = "no limit", .text = "largest size of all files in --cache-dir: 100G"},
	{"record", "FILE", OPTION_TEXT, AT(record), .initial_text = "none",
	 .text = "write every call of the scheduler, prompts included, for tigon simulate --replay"},
	{"cache-decoded", "SWITCH", OPTION_CHOICE, AT(cache_decoded),
	 .choices = option_switch_names,
	 .text = "keep generated tokens as well; off: only prompts"},
	{"max-queued-requests", "N", OPTION_NUMBER, AT(max_queued_requests), .min = 1,
	 .max = 1u << 20, .initial = 1024,
	 .text = "requests that wait for their first token; further ones get status 429"},
	{"max-body", "BYTES", OPTION_SIZE, AT(max_body), .min = 1024, .max = 1ull << 30,
	 .initial = 16u << 20, .text = "largest request body; a larger one gets status 413"},
	{"answer-memory", "BYTES", OPTION_SIZE, AT(answer_memory), .min = 1u << 20,
	 .max = UINT64_C(1) << 62, .initial = 256u << 20,
	 .text = "memory for answers that clients have not read yet; beyond it the slowest client's is ended"},
	{"constraint-memory", "BYTES", OPTION_SIZE, AT(constraint_memory), .min = 4u << 20,
	 .max = UINT64_C(1) << 62, .initial = 512u << 20,
	 .text = "memory for constraints of answers; beyond it further requests with one get status 429"},
	{"response-store-memory", "BYTES", OPTION_SIZE, AT(response_store_memory),
	 .max = UINT64_C(1) << 62, .initial = 64u << 20,
	 .text = "memory for responses that clients may ask for again; 0: none are kept"},
	{"response-store-seconds", "SECONDS", OPTION_NUMBER, AT(response_store_seconds), .min = 1,
	 .max = 366 * 86400, .initial = 86400, .text = "time for which a response is kept"},
	{"drain-timeout", "SECONDS", OPTION_NUMBER, AT(drain_timeout), .max = 86400, .initial = 15,
	 .text = "time that SIGTERM gives running requests; those that take longer get an error"},
	{"trusted-proxy", "ADDRESSES", OPTION_TEXT, AT(trusted_proxy),
	 .initial_text = "127.0.0.0/8,::1",
	 .text = "addresses, or ADDRESS/BITS, that may have any number of connections; commas between"},
	{"role", "ROLE", OPTION_CHOICE, AT(role), .choices = roles,
	 .text = "prefill computes prompts for decode workers; decode hands long prompts to prefill workers"},
	{"prefill", "ADDRESS", OPTION_OWN, AT(prefill), .initial_text = "none",
	 .text = "for a decode worker: the address of a prefill worker, tcp://HOST:PORT; may be repeated",
	 .take = take_peer},
	{"registry", "ADDRESS", OPTION_TEXT, AT(registry), .initial_text = "none",
	 .text = "a tigon registry, which tells decode workers the prefill workers"},
	{"transfer-listen", "ADDRESS", OPTION_TEXT, AT(transfer_listen), .initial_text = "none",
	 .text = "for a prefill worker: the address to listen at, tcp://HOST:PORT"},
	{"transfer-announce", "ADDRESS", OPTION_TEXT, AT(transfer_announce),
	 .initial_text = "where it listens",
	 .text = "for a prefill worker: the address that the registry tells decode workers, tcp://HOST:PORT"},
	{"transfer-key", "FILE", OPTION_TEXT, AT(transfer_key),
	 .initial_text = "none; required beyond loopback",
	 .text = "this worker's keys and those of its peers (tigon transfer-key)"},
	{"transfer-window", "LAYERS", OPTION_NUMBER, AT(transfer_window), .min = 1, .max = 1024,
	 .initial = 4, .text = "layers that a prefill worker sends at a time"},
	{"transfer-heartbeat", "MS", OPTION_NUMBER, AT(transfer_heartbeat), .min = 50,
	 .max = 600000, .initial = 5000,
	 .text = "time between two heartbeats; a peer that misses two is taken for dead"},
	{"transfer-trace", "FILE", OPTION_TEXT, AT(transfer_trace), .initial_text = "none",
	 .text = "write the times of prompts and of the WINDOW messages with their data"},
	{"disaggregation-min-tokens", "N", OPTION_NUMBER, AT(disaggregation_min_tokens), .min = 1,
	 .max = UINT32_MAX, .initial = 256,
	 .text = "a decode worker itself computes a prompt with fewer uncached tokens"},
	{"synthetic-weights", "SEED", OPTION_NUMBER, AT(synthetic_seed), .given = AT(synthetic),
	 .max = UINT64_MAX, .initial_text = "off",
	 .text = "random weights from SEED in place of the model's files"},
	{"dump-activations", "FILE", OPTION_TEXT, AT(dump_activations), .initial_text = "off",
	 .text = "write every layer's output of each step to FILE (safetensors)"},
	{"log-level", "LEVEL", OPTION_CHOICE, AT(log_level), .choices = levels, .initial = 2,
	 .text = "the least important lines that are logged"},
	{"list-devices", NULL, OPTION_FLAG, AT(list_devices),
	 .text = "print the OpenCL devices and exit"},
	{"version", NULL, OPTION_FLAG, AT(version), .text = "print the version and exit"},
	{"help", NULL, OPTION_FLAG, AT(help), .text = "print this and exit"},
};

const struct option_def *options_table(size_t *n)
{
	*n = ARRAY_SIZE(table);
	return table;
}

/* For a prefill worker with --registry: refuses an announced address that decode workers cannot use. Either it is
 * loopback, but the registry is elsewhere; or --transfer-announce names a port, but this worker listens at any free
 * one. */
static int check_announced(const struct options *o, struct err *e)
{
	const char *where = o->transfer_announce ? o->transfer_announce : o->transfer_listen;

	if (transfer_endpoint_is_local(where) && !transfer_endpoint_is_local(o->registry))
		return err_set(
			e, EINVAL,
			"--registry: %s is not loopback, but only this machine reaches %s; "
			"--transfer-announce tcp://HOST:PORT says where this worker is reached",
			o->registry, where);
	if (o->transfer_announce && transfer_endpoint_takes_any_port(o->transfer_listen))
		return err_set(e, EINVAL,
			       "--transfer-announce: no worker may listen at %s, because "
			       "--transfer-listen %s takes any free port",
			       o->transfer_announce, o->transfer_listen);
	return 0;
}

static int check_announce(const struct options *o, struct err *e)
{
	if (!o->transfer_announce)
		return o->registry && o->role == ROLE_PREFILL &&
				       transfer_endpoint_is_any(o->transfer_listen)
			       ? err_set(e, EINVAL,
					 "--registry: no worker can connect to %s; --transfer-announce "
					 "tcp://HOST:PORT says where this worker is reached",
					 o->transfer_listen)
			       : 0;
	if (o->role != ROLE_PREFILL || !o->registry)
		return err_set(e, EINVAL,
			       "--transfer-announce is for --role prefill with --registry");
	if (transfer_endpoint_is_any(o->transfer_announce))
		return err_set(e, EINVAL, "--transfer-announce: no worker can connect to %s",
			       o->transfer_announce);
	if (strlen(o->transfer_announce) >= WIRE_ENDPOINT)
		return err_set(e, EINVAL, "--transfer-announce: it has more than %d bytes",
			       WIRE_ENDPOINT - 1);
	return transfer_endpoint_option("--transfer-announce", o->transfer_announce, false,
					o->transfer_key, e);
}

static int check_roles(const struct options *o, struct err *e)
{
	bool peers = o->prefill.n || o->registry;
	const char *keys = o->transfer_key;
	int r = 0;

	if (o->role == ROLE_PREFILL && !o->transfer_listen)
		return err_set(e, EINVAL, "--role prefill needs --transfer-listen tcp://HOST:PORT");
	if (o->role == ROLE_DECODE && !peers)
		return err_set(e, EINVAL,
			       "--role decode needs --prefill tcp://HOST:PORT or --registry");
	if (o->role != ROLE_PREFILL && o->transfer_listen)
		return err_set(e, EINVAL, "--transfer-listen is for --role prefill");
	if (o->role != ROLE_DECODE && o->prefill.n)
		return err_set(e, EINVAL, "--prefill is for --role decode");
	if (o->role == ROLE_UNIFIED && (o->registry || o->transfer_key))
		return err_set(e, EINVAL, "--%s is for --role prefill and --role decode",
			       o->registry ? "registry" : "transfer-key");
	if (o->transfer_listen)
		r = transfer_endpoint_option("--transfer-listen", o->transfer_listen, true, keys,
					     e);
	for (size_t i = 0; r == 0 && i < o->prefill.n; i++)
		r = transfer_endpoint_option("--prefill", o->prefill.v[i], false, keys, e);
	if (r == 0 && o->registry)
		r = transfer_endpoint_option("--registry", o->registry, false, keys, e);
	if (r == 0)
		r = check_announce(o, e);
	if (r == 0 && o->role == ROLE_PREFILL && o->registry)
		r = check_announced(o, e);
	return r;
}

enum { SERVED_NAME_MAX = 256 }; /* the most bytes of a name */

/* A name stands in answers, in the log and in every line of /metrics. */
static int check_served_names(const struct options *o, struct err *e)
{
	for (size_t i = 0; i < o->served_model_name.n; i++) {
		const char *name = o->served_model_name.v[i];

		if (strlen(name) > SERVED_NAME_MAX)
			return err_set(e, EINVAL,
				       "--served-model-name: the name has %zu bytes, more than %d",
				       strlen(name), SERVED_NAME_MAX);
		for (const char *p = name; *p; p++)
			if ((unsigned char)*p < ' ' || *p == 0x7f)
				return err_set(e, EINVAL,
					       "--served-model-name: the name has a character that "
					       "cannot be printed");
	}
	return 0;
}

static int check_together(const struct options *o, struct err *e)
{
	if (o->help || o->version || o->list_devices)
		return 0;
	if (check_served_names(o, e) < 0)
		return -e->code;
	if (!o->model || !o->model[0])
		return err_set(e, EINVAL, "--model DIR is required; --help lists the options");
	if (!o->admin && (o->admin_host || o->admin_key_file))
		return err_set(e, EINVAL, "--admin-%s needs --admin-port N",
			       o->admin_host ? "host" : "key-file");
	if (!o->tls_cert != !o->tls_key)
		return err_set(e, EINVAL,
			       o->tls_cert ? "--tls-cert needs --tls-key FILE"
					   : "--tls-key needs --tls-cert FILE");
	if (o->cache_dir && !o->cache_dir[0])
		return err_set(e, EINVAL, "--cache-dir: the name is empty");
	if (o->record && options_want_tiers(o))
		return err_set(
			e, EINVAL,
			"--record cannot be combined with --cache-dir or --host-cache-memory");
	if (o->max_batched_tokens < o->page_size)
		return err_set(
			e, EINVAL,
			"--max-batched-tokens: %llu is less than one page (--page-size %llu)",
			(unsigned long long)o->max_batched_tokens,
			(unsigned long long)o->page_size);
	return check_roles(o, e);
}

int options_parse(int argc, const char *const *argv, struct options *ret, struct err *e)
{
	struct options o = {.host = "127.0.0.1", .trusted_proxy = "127.0.0.0/8,::1"};
	int r = option_table_parse(table, ARRAY_SIZE(table), argc, argv, &o, e);

	if (r == 0)
		r = check_together(&o, e);
	if (r < 0)
		return r;
	*ret = o;
	return 0;
}

bool options_want_tiers(const struct options *o)
{
	return o->prefix_cache != OPTION_OFF && (o->cache_dir || o->host_cache_memory);
}

void options_help(FILE *out)
{
	fprintf(out, "usage: tigond --model DIR [--name value ...]\n\n");
	option_table_help(table, ARRAY_SIZE(table), out);
}
