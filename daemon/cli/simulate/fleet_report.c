#include "daemon/cli/simulate/fleet_report.h"

#include <stdio.h>

static void line(const char *name, double apart, double unified, int digits)
{
	printf("%s\t%.*f\t%.*f\n", name, digits, apart, digits, unified);
}

static void times(const char *name, struct samples *apart, struct samples *unified)
{
	static const struct {
		const char *name;
		double share;
	} all[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		char text[64];

		snprintf(text, sizeof(text), "%s %s, ms", name, all[i].name);
		line(text, samples_percentile(apart, all[i].share) * 1e3,
		     samples_percentile(unified, all[i].share) * 1e3, 3);
	}
}

double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

void fleet_report(const struct fleet_options *o, struct fleet_result *apart,
		  struct fleet_result *unified)
{
	uint64_t bytes = apart->page_bytes + apart->state_bytes;

	printf("workers\t%u prefill, %u decode\t%u unified\n", o->n_prefill, o->n_decode,
	       o->n_prefill + o->n_decode);
#define COUNT(name, field) line(name, (double)apart->field, (double)unified->field, 0)
	COUNT("requests", requests);
	COUNT("failed", failed);
	COUNT("retracted", retractions);
	COUNT("prompts handed over", handed_over);
	COUNT("prompt tokens", prompt_tokens);
	line("found by answering workers, %", percent(apart->local_tokens, apart->prompt_tokens),
	     percent(unified->local_tokens, unified->prompt_tokens), 2);
	line("found by prefill workers, % of tokens handed over",
	     percent(apart->found_tokens, apart->asked_tokens), 0, 2);
	COUNT("prompt tokens computed by prefill workers", prefilled_tokens);
	COUNT("prompt tokens computed by answering workers", computed_tokens);
	COUNT("generated", generated_tokens);
#undef COUNT
	line("sent, GB", (double)bytes * 1e-9, 0, 3);
	line("states in it, GB", (double)apart->state_bytes * 1e-9, 0, 3);
	line("sent a prompt, MB",
	     apart->handed_over ? (double)bytes * 1e-6 / (double)apart->handed_over : 0, 0, 3);
	line("simulated time, s", apart->seconds, unified->seconds, 1);
	line("generated a second", (double)apart->generated_tokens / MAX(apart->seconds, 1e-9),
	     (double)unified->generated_tokens / MAX(unified->seconds, 1e-9), 1);
	line("prefill workers busy, %", 100 * apart->prefill_busy, 0, 1);
	line("busiest prefill worker, %", 100 * apart->prefill_busiest, 0, 1);
	line("answering workers busy, %", 100 * apart->decode_busy, 100 * unified->decode_busy, 1);
	line("busiest answering worker, %", 100 * apart->decode_busiest,
	     100 * unified->decode_busiest, 1);
	line("busiest link, %", 100 * apart->link_busiest, 0, 1);
	times("time to first token", &apart->ttft_s, &unified->ttft_s);
	times("between tokens", &apart->between_s, &unified->between_s);
	times("from first token drawn to received", &apart->wait_s, &unified->wait_s);
}
