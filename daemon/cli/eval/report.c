#include "daemon/cli/eval/report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "bench_commit.inc"
#include "daemon/engine_options.h"

/* The numbers of a comparison, made ready for printing. */
struct compared {
	double mean, error, median, p99, most; /* KL divergence */
	double rms;			       /* of the difference of a token's probability */
	double same, decided;		       /* shares of the positions */
};

static struct compared compared_of(struct comparison *c)
{
	double n = (double)MAX(c->n, UINT64_C(1));

	return (struct compared){
		.mean = mean_of(&c->kl),
		.error = mean_error(&c->kl),
		.median = samples_nearest(&c->all_kl, .5),
		.p99 = samples_nearest(&c->all_kl, .99),
		.most = samples_nearest(&c->all_kl, 1),
		.rms = sqrt(mean_of(&c->probability)),
		.same = (double)c->same / n,
		.decided = (double)c->decided / n,
	};
}

static double tokens_per_second(const struct reader *r)
{
	return r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
}

/* ---- JSON ---- */

static json_t *side_json(const struct eval_side *s)
{
	const struct engine_info *i = engine_info(s->reader.engine);

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "model",
			 s->reader.options.model_dir, "dtype",
			 engine_dtype_names[s->reader.options.dtype], "kv_dtype",
			 engine_kv_dtype_names[s->reader.options.kv_dtype], "device",
			 i->device_name, "kernels", i->kernels, "perplexity",
			 perplexity_of(&s->surprise), "perplexity_error",
			 perplexity_error(&s->surprise), "mean_logprob", -mean_of(&s->surprise),
			 "tokens_per_second", tokens_per_second(&s->reader));
}

static json_t *comparison_json(struct comparison *c)
{
	struct compared v = compared_of(c);

	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "kl_mean", v.mean,
			 "kl_error", v.error, "kl_median", v.median, "kl_p99", v.p99, "kl_max",
			 v.most, "probability_rms", v.rms, "same_choice", v.same, "decided",
			 v.decided, "logit_difference_max", c->difference);
}

static int print_json(const struct eval_report *r, struct err *e)
{
	json_t *root = json_pack("{s:s, s:I, s:i, s:i, s:i, s:I, s:o}", "text", r->text, "tokens",
				 (json_int_t)r->tokens, "context", (int)r->context, "unscored",
				 (int)r->unscored, "windows", (int)r->windows, "predictions",
				 (json_int_t)r->model->surprise.n, "model", side_json(r->model));
	int bad = !root;

	if (!bad && r->against)
		bad = json_object_set_new(root, "against", side_json(r->against)) < 0 ||
		      json_object_set_new(root, "comparison", comparison_json(r->comparison)) < 0;
	if (!bad)
		bad = json_dumpf(root, stdout, JSON_COMPACT) < 0 && !ferror(stdout);
	json_decref(root);
	putchar('\n');
	return bad ? err_no_memory(e) : 0;
}

/* ---- a table ---- */

static void print_side(const struct eval_side *s)
{
	printf("%s\t%s\t%s\t%.4f\t%.4f\t%.1f\n", s->reader.options.model_dir,
	       engine_dtype_names[s->reader.options.dtype],
	       engine_kv_dtype_names[s->reader.options.kv_dtype], perplexity_of(&s->surprise),
	       perplexity_error(&s->surprise), tokens_per_second(&s->reader));
}

static void print_comparison(struct comparison *c)
{
	struct compared v = compared_of(c);

	printf("\nKL divergence, nats\n");
	printf("  mean\t\t\t%.3g +- %.2g\n", v.mean, v.error);
	printf("  median\t\t%.3g\n", v.median);
	printf("  99th percentile\t%.3g\n", v.p99);
	printf("  largest\t\t%.3g\n", v.most);
	printf("difference of a token's probability, root mean square\t%.3f %%\n", 100 * v.rms);
	printf("the same greedy choice\t%.3f %% of the positions\n", 100 * v.same);
	printf("the margin decides\t%.3f %% of the positions (more than twice the largest difference of "
	       "logits)\n",
	       100 * v.decided);
	printf("largest difference of logits\t%.3g\n", c->difference);
}

static void print_table(const struct eval_report *r)
{
	const struct engine_info *i = engine_info(r->model->reader.engine);

	printf("# tigon " TIGON_VERSION ", commit " BENCH_COMMIT "\n");
	printf("# device %s, driver %s, kernels %s\n", i->device_name, i->driver, i->kernels);
	printf("# text %s: %zu tokens, %u windows of %u, of which the last %u are predicted\n",
	       r->text, r->tokens, r->windows, r->context, r->context - r->unscored - 1);
	printf("model\tdtype\tkv-dtype\tperplexity\t+-\ttokens/s\n");
	print_side(r->model);
	if (!r->against)
		return;
	print_side(r->against);
	print_comparison(r->comparison);
}

int report_print(const struct eval_report *r, bool json, struct err *e)
{
	if (json)
		return print_json(r, e);
	print_table(r);
	return 0;
}
