/* `tigon simulate`: runs the scheduler and the prefix cache of tigond, the same object code, on a workload. A cost
 * model takes the device's place, and time is simulated, so a run takes little longer than the host needs for
 * planning. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "daemon/cli/command.h"
#include "daemon/cli/plot.h"
#include "daemon/cli/simulate/fleet_report.h"
#include "daemon/cli/simulate/plot.h"
#include "daemon/cli/simulate/replay.h"
#include "daemon/cli/simulate/runner.h"
#include "engine/checkpoint/model_config.h"
#include "engine/layers/part.h"
#include "protocol/transfer/peers.h"

struct simulate_options {
	const char *trace, *replay, *model, *svg;
	bool compare;
	double cache_memory, page_bytes, slot_bytes;
	double page_size, max_seqs, max_batched_tokens, max_prefill_ms, plans_out;
	struct cost_line step;
	double prefill_us, prefill_kv_us, row_us, kv_us;
	double sessions, users, system, first, turn, output, min_turns, max_turns, think, seed;
	double prefill_workers, decode_workers, link, fabric, message_us, windows, min_tokens,
		heartbeat;
};

#define AT(member) offsetof(struct simulate_options, member)
#define N(name_, field, least_, most_, usual_, text_)                                     \
	{                                                                                 \
		.name = name_, .argument = "N", .type = OPTION_REAL, .offset = AT(field), \
		.least = least_, .most = most_, .usual = usual_, .text = text_,           \
	}

static const struct option_def table[] = {
	{"trace", "FILE", OPTION_TEXT, AT(trace), .initial_text = "the agentic workload",
	 .text = "requests to run, JSON lines"},
	{"replay", "FILE", OPTION_TEXT, AT(replay),
	 .text = "a file of tigond --record: make its calls again and compare the plans"},
	{"model", "DIR", OPTION_TEXT, AT(model),
	 .text = "a config.json to take the sizes of pages and states from"},
	{"compare", NULL, OPTION_FLAG, AT(compare),
	 .text = "run once more with unlimited memory, and compare the hits; needs --cache-memory"},
	{"svg", "FILE", OPTION_TEXT, AT(svg),
	 .text = "draw the planning time by the size of the tree"},
	N("cache-memory", cache_memory, 0, 1e18, 0,
	  "bytes for pages and states together, 2G or 200e9; 0: unlimited"),
	N("page-bytes", page_bytes, 1, 1e12, 1310720, "bytes of a KV page (or from --model)"),
	N("slot-bytes", slot_bytes, 0, 1e12, 64e6,
	  "bytes of a state (or from --model); 0: the model has none"),
	N("page-size", page_size, 1, 65536, 64, "tokens a page"),
	N("max-num-seqs", max_seqs, 1, 65536, 256, "sequences at the same time"),
	N("max-batched-tokens", max_batched_tokens, 1, 1e6, 8192, "prompt tokens a step"),
	N("max-prefill-ms", max_prefill_ms, 0, 60000, 0,
	  "milliseconds that a step computes prompts for, while answers run; 0: no limit"),
	N("plans-out", plans_out, 1, 2, 2,
	  "steps planned before their predecessor has ended: 1 or 2"),
	{"step-us", "T", OPTION_OWN, AT(step), .take = cost_line_take, .initial_text = "3000",
	 .read_initial = true,
	 .text = "cost: a step; or points TOKENS:T,... by the tokens that it computes"},
	N("prefill-us", prefill_us, 0, 1e6, 20, "cost: a prompt token"),
	N("prefill-kv-us", prefill_kv_us, 0, 1e6, 0,
	  "cost: an earlier token that a prompt token looks back at"),
	N("row-us", row_us, 0, 1e6, 20, "cost: a decoding sequence"),
	N("kv-us", kv_us, 0, 1e6, 0.0005, "cost: a token that a decoding sequence looks back at"),
	N("sessions", sessions, 1, 1e7, 1000, "agentic: sessions in all"),
	N("users", users, 1, 1e6, 100, "agentic: sessions at the same time"),
	N("system-tokens", system, 0, 1e7, 4000, "agentic: system prompt that all share"),
	N("first-tokens", first, 1, 1e7, 50000, "agentic: tokens of the first turn"),
	N("turn-tokens", turn, 1, 1e6, 800, "agentic: tokens that a turn appends"),
	N("output-tokens", output, 1, 1e6, 200, "agentic: tokens of an answer"),
	N("min-turns", min_turns, 1, 1e4, 10, "agentic: fewest turns of a session"),
	N("max-turns", max_turns, 1, 1e4, 15, "agentic: most turns of a session"),
	N("think", think, 0, 1e6, 5, "agentic: mean seconds between an answer and the next turn"),
	N("seed", seed, 0, 1e9, 1, "agentic: seed of all random draws"),
	N("prefill-workers", prefill_workers, 1, PEERS_MAX, 1,
	  "apart: workers that compute prompts, for --decode-workers"),
	N("decode-workers", decode_workers, 0, 4096, 0,
	  "apart: workers that answer, needs --cache-memory; 0: one worker does both"),
	N("link", link, 1, 1e15, 12.5e9, "apart: bytes a second of a worker's link, each way"),
	N("fabric", fabric, 0, 1e15, 0, "apart: bytes a second of all links together; 0: no limit"),
	N("message-us", message_us, 0, 1e9, 100,
	  "apart: microseconds that a message takes at least"),
	N("windows", windows, 1, 1024, 10,
	  "apart: groups of layers in which a step's data is sent"),
	N("transfer-heartbeat", heartbeat, 1, 1e9, 5000,
	  "apart: milliseconds between a prefill worker's reports of its load"),
	N("disaggregation-min-tokens", min_tokens, 1, UINT32_MAX, 256,
	  "apart: the answering worker itself computes fewer uncached tokens than these"),
};
#undef N
#undef AT

static int parse_options(int argc, char **argv, struct simulate_options *o, struct err *e)
{
	int r = option_table_command(table, ARRAY_SIZE(table), "simulate [--name value ...]", argc,
				     argv, o, e);

	if (r == 0 && o->decode_workers > 0 && (o->replay || o->svg || o->compare))
		return err_set(e, EINVAL,
			       "--decode-workers goes with neither --replay, --svg nor --compare");
	if (r == 0 && o->decode_workers > 0 && o->cache_memory <= 0)
		return err_set(e, EINVAL,
			       "--decode-workers needs --cache-memory, that of each worker");
	if (r == 0 && o->compare && o->cache_memory <= 0)
		return err_set(e, EINVAL,
			       "--compare needs --cache-memory, to compare with unlimited memory");
	if (r == 0 && o->max_turns < o->min_turns)
		return err_set(e, EINVAL, "--max-turns %.0f is less than --min-turns %.0f",
			       o->max_turns, o->min_turns);
	return r;
}

/* Sets the bytes of a bfloat16 KV page and of a state, as the engine lays them out, from a model's config.json. */
static int sizes_of_model(struct simulate_options *o, struct err *e)
{
	struct model_config c;
	int r = model_config_open(o->model, &c, e);

	if (r < 0)
		return r;
	o->page_bytes = (double)layer_part_bytes(&c, 2, (uint32_t)o->page_size, TIER_PAGE);
	o->slot_bytes = (double)layer_part_bytes(&c, 2, (uint32_t)o->page_size, TIER_STATE);
	o->page_bytes = MAX(o->page_bytes, 1.0);
	return 0;
}

static struct scheduler_config scheduler_config(const struct simulate_options *o, uint32_t longest,
						double memory)
{
	struct scheduler_config c = {
		.page_tokens = (uint32_t)o->page_size,
		.page_bytes = (uint64_t)o->page_bytes,
		.slot_bytes = (uint64_t)o->slot_bytes,
		.max_plans_out = (uint32_t)o->plans_out,
		.max_seqs = (uint32_t)o->max_seqs,
		.max_prefill_tokens = (uint32_t)o->max_batched_tokens,
		.max_model_len = longest + 1,
		.vocab_size = SIM_VOCAB,
	};
	double pages = 1 << 25, slots = 1 << 23;

	if (memory > 0) {
		c.cache_bytes = (uint64_t)memory;
		pages = MIN(pages, memory / o->page_bytes);
		slots = o->slot_bytes > 0 ? MIN(slots, memory / o->slot_bytes) : 0;
	}
	c.n_pages = (uint32_t)pages;
	if (o->slot_bytes > 0) {
		c.n_slots = (uint32_t)slots;
		c.state_tokens = c.page_tokens;
	}
	return c;
}

static int open_workload(const struct simulate_options *o, struct workload **ret, struct err *e)
{
	const struct agentic_options a = {
		.sessions = (uint32_t)o->sessions,
		.users = (uint32_t)MIN(o->users, o->sessions),
		.system_tokens = (uint32_t)o->system,
		.first_tokens = (uint32_t)o->first,
		.turn_tokens = (uint32_t)o->turn,
		.output_tokens = (uint32_t)o->output,
		.min_turns = (uint32_t)o->min_turns,
		.max_turns = (uint32_t)o->max_turns,
		.think_s = o->think,
		.seed = (uint64_t)o->seed,
	};

	return o->trace ? workload_open_trace(o->trace, ret, e) : workload_new_agentic(&a, ret, e);
}

static void print_times(const char *name, struct samples *s, double unit, const char *unit_name)
{
	printf("%s\tp50 %.3f\tp90 %.3f\tp99 %.3f\tmax %.3f\t%s\n", name,
	       samples_percentile(s, 0.5) * unit, samples_percentile(s, 0.9) * unit,
	       samples_percentile(s, 0.99) * unit, samples_percentile(s, 1) * unit, unit_name);
}

static int print_host(const struct sim_result *r)
{
	struct samples plan = {0}, commit = {0};
	int bad = 0;

	for (uint64_t i = 0; i < r->steps && !bad; i++)
		bad = samples_add(&plan, r->plans[i].plan_us) < 0 ||
		      samples_add(&commit, r->plans[i].commit_us) < 0;
	print_times("planning (host)", &plan, 1, "us");
	print_times("committing (host)", &commit, 1, "us");
	samples_release(&plan);
	samples_release(&commit);
	return bad;
}

static void print_result(struct sim_result *r)
{
	printf("requests\t%llu\tfailed %llu\tretracted %llu\twaited for another's prompt %llu\n",
	       (unsigned long long)r->requests, (unsigned long long)r->failed,
	       (unsigned long long)r->end.retractions, (unsigned long long)r->end.shared_waits);
	printf("prompt tokens\t%llu\tcached %llu\thit rate %.2f %%\n",
	       (unsigned long long)r->prompt_tokens, (unsigned long long)r->cached_tokens,
	       percent(r->cached_tokens, r->prompt_tokens));
	printf("computed\t%llu prompt tokens\t%llu generated\t%llu replayed\n",
	       (unsigned long long)r->computed_tokens, (unsigned long long)r->generated_tokens,
	       (unsigned long long)r->end.replayed_tokens);
	printf("memory\tpeak %.2f GiB\tpeak nodes %llu\tevicted %llu pages, %llu states (%llu "
	       "never hit)\n",
	       (double)r->peak_bytes / (double)(1u << 30), (unsigned long long)r->peak_nodes,
	       (unsigned long long)r->end.cache.evicted_pages,
	       (unsigned long long)r->end.cache.evicted_slots,
	       (unsigned long long)r->end.cache.evicted_unhit_slots);
	printf("misses");
	for (int i = 0; i < PREFIX_MISS_N; i++)
		if (r->end.misses[i])
			printf("\t%s %llu", prefix_miss_name((enum prefix_miss)i),
			       (unsigned long long)r->end.misses[i]);
	printf("\nsteps\t%llu\tin %.1f s of simulated time\tat most %u sequences\n",
	       (unsigned long long)r->steps, r->seconds, r->peak_running);
	print_times("time to first token", &r->ttft_s, 1e3, "ms");
	print_times("step (device)", &r->step_s, 1e3, "ms");
	if (print_host(r))
		printf("(not all samples: out of memory)\n");
}

/* A workload, owned, and the settings of each worker. */
struct setup {
	struct workload *w;
	struct scheduler_config config;
	struct cost_model cost;
};

static int open_setup(const struct simulate_options *o, double memory, struct setup *ret,
		      struct err *e)
{
	int r = open_workload(o, &ret->w, e);

	if (r < 0)
		return r;
	ret->config = scheduler_config(o, workload_longest(ret->w), memory);
	ret->cost = (struct cost_model){
		.step = o->step,
		.prefill_token_s = o->prefill_us * 1e-6,
		.prefill_kv_s = o->prefill_kv_us * 1e-6,
		.decode_row_s = o->row_us * 1e-6,
		.kv_token_s = o->kv_us * 1e-6,
		.max_prefill_s = o->max_prefill_ms * 1e-3,
	};
	return 0;
}

static int run_one(const struct simulate_options *o, double memory, struct sim_result *ret,
		   struct err *e)
{
	struct setup s = {0};
	int r = open_setup(o, memory, &s, e);

	if (r == 0)
		r = sim_run(s.w, &s.config, &s.cost, ret, e);
	workload_free(s.w);
	return r;
}

static int run_fleet(const struct simulate_options *o, const struct fleet_options *fleet,
		     struct fleet_result *ret, struct err *e)
{
	struct setup s = {0};
	int r = open_setup(o, o->cache_memory, &s, e);

	s.config.handoff_min_tokens = (uint32_t)o->min_tokens;
	if (r == 0)
		r = fleet_run(s.w, &s.config, &s.cost, fleet, ret, e);
	workload_free(s.w);
	return r;
}

/* Runs the same workload on two fleets: one with prefill and decode apart, and one of as many unified workers. */
static int simulate_fleet(const struct simulate_options *o, struct err *e)
{
	const struct fleet_options apart = {
		.n_prefill = (uint32_t)o->prefill_workers,
		.n_decode = (uint32_t)o->decode_workers,
		.link_bytes_s = o->link,
		.fabric_bytes_s = o->fabric,
		.message_s = o->message_us * 1e-6,
		.n_groups = (uint32_t)o->windows,
		.heartbeat_s = o->heartbeat * 1e-3,
	};
	const struct fleet_options unified = {.n_decode = apart.n_prefill + apart.n_decode};
	struct fleet_result a = {0}, u = {0};
	int r = run_fleet(o, &apart, &a, e);

	if (r == 0)
		r = run_fleet(o, &unified, &u, e);
	if (r == 0)
		fleet_report(&apart, &a, &u);
	fleet_result_release(&a);
	fleet_result_release(&u);
	return r;
}

static int simulate(const struct simulate_options *o, struct err *e)
{
	struct sim_result bounded = {0}, unlimited = {0};
	int r;

	if (o->replay)
		return replay_file(o->replay, e);
	if (o->decode_workers > 0)
		return simulate_fleet(o, e);
	/* A run may take minutes, so a file that cannot be written is refused before the run begins. */
	r = o->svg ? plot_check("svg", o->svg, e) : 0;
	if (r == 0)
		r = run_one(o, o->cache_memory, &bounded, e);
	if (r == 0)
		print_result(&bounded);
	if (r == 0 && o->svg)
		r = plot_plan_cost(o->svg, &bounded, e);
	if (r == 0 && o->compare) {
		r = run_one(o, 0, &unlimited, e);
		if (r == 0) {
			printf("\nunlimited memory:\n");
			print_result(&unlimited);
			printf("\nof the hits of unlimited memory\t%.2f %%\n",
			       percent(bounded.cached_tokens, unlimited.cached_tokens));
		}
	}
	sim_result_release(&bounded);
	sim_result_release(&unlimited);
	return r;
}

int cli_simulate(int argc, char **argv, struct err *e)
{
	struct simulate_options o = {0};
	int r = parse_options(argc, argv, &o, e);

	if (r == 0 && o.model)
		r = sizes_of_model(&o, e);
	return r == 0 ? simulate(&o, e) : r;
}
