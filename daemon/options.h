/*
 * The command line of tigond, as a table (base/options.h). A test compares the table with man/tigond.8.
 */
#pragma once

#include "base/options.h"

enum worker_role { ROLE_UNIFIED, ROLE_PREFILL, ROLE_DECODE };

/* The values of --tool-call-parser: behind these the formats of TOOLS_FORMATS, in their order. */
enum { TOOL_CALLS_AUTO, TOOL_CALLS_NONE, TOOL_CALLS_FORMATS };

enum { PREFILL_PEERS_MAX = 64, SERVED_NAMES_MAX = 64 };

/* Addresses of --prefill, which may be repeated. */
struct option_peers {
	const char *v[PREFILL_PEERS_MAX];
	size_t n;
};

/* Names of --served-model-name, which may be repeated. */
struct option_names {
	const char *v[SERVED_NAMES_MAX];
	size_t n;
	bool any; /* "*" was given, which is not in v */
};

struct options {
	bool help; /* the first member, because offset 0 means "none" in option_def.given */
	bool version, list_devices;
	const char *model, *tokenizer;
	struct option_names served_model_name;
	unsigned tool_call_parser; /* see TOOL_CALLS_AUTO */
	const char *default_chat_template_kwargs;
	unsigned pooling; /* enum pooling, less 1 */
	const char *host, *allowed_host, *cors_origin, *trusted_proxy, *api_key_file, *admin_host,
		*admin_key_file, *tls_cert, *tls_key;
	uint64_t port, admin_port;
	bool admin;		  /* --admin-port is given */
	unsigned dtype;		  /* enum engine_dtype */
	unsigned kv_dtype;	  /* enum engine_kv_dtype */
	unsigned kernels;	  /* enum engine_kernels */
	unsigned copy_queue;	  /* enum engine_copy_queue */
	unsigned batch_invariant; /* enum option_switch */
	const char *tuning;
	uint64_t max_model_len, max_num_seqs, max_batched_tokens, max_prefill_ms, page_size;
	bool fixed_seqs; /* --max-num-seqs is given */
	bool clamp_max_tokens;
	uint64_t max_queued_requests, max_body, answer_memory, constraint_memory;
	uint64_t response_store_memory, response_store_seconds;
	uint64_t drain_timeout; /* seconds */
	const char *device, *program_cache, *dump_activations;
	struct option_memory device_memory, cache_memory;
	uint64_t host_cache_memory; /* bytes; 0: none */
	uint64_t cache_disk;	    /* bytes; 0: no limit */
	const char *cache_dir, *record;
	unsigned prefix_cache, cache_decoded; /* enum option_switch */
	unsigned role;			      /* enum worker_role */
	struct option_peers prefill;
	const char *registry, *transfer_listen, *transfer_announce, *transfer_key, *transfer_trace;
	uint64_t transfer_window, transfer_heartbeat, disaggregation_min_tokens;
	uint64_t synthetic_seed;
	bool synthetic;
	unsigned log_level; /* enum log_level */
};

/* Returns the table, which has *n rows. */
const struct option_def *options_table(size_t *n);

/* Fills *ret with the defaults and then from argv (argv[0] is skipped), and checks that the options fit together.
 * Strings are borrowed from argv. On failure returns -EINVAL with a sentence, and *ret is unchanged. With --help,
 * --version or --list-devices the options need not fit together, and none is required. */
int options_parse(int argc, const char *const *argv, struct options *ret, struct err *e) MUST_CHECK;

/* Returns whether there is a cache in host memory or on disk: --host-cache-memory or --cache-dir is given, and
 * --prefix-cache is on. */
bool options_want_tiers(const struct options *o);

/* Prints the text of --help. */
void options_help(FILE *out);
