/* The paths of Ollama's API that are about models: GET /api/tags, GET /api/ps, POST /api/show; GET /api/version; and
 * GET /, at which clients ask whether the server runs. */
#include <string.h>

#include "base/hash.h"
#include "daemon/request/call.h"
#include "daemon/request/text.h"
#include "engine/checkpoint/families/family.h"
#include "protocol/ollama/models.h"
#include "protocol/ollama/request.h"

enum { DIGEST = 64 };

/* Writes the digest of a model. It is a hash of the fingerprint, so it changes with whatever changes answers. */
static void make_digest(const struct server *s, char out[DIGEST + 1])
{
	struct hash128 h = HASH128_INIT;

	for (size_t i = 0; i < DIGEST; i += DIGEST / 2) {
		hash128_text(&h, s->fingerprint);
		hash128_hex(&h, out + i);
	}
}

/* digest: where the model's digest is written, for as long as the model is used */
static struct ollama_model model_of(const struct server *s, char digest[DIGEST + 1])
{
	const struct engine_info *i = &s->info;
	const struct model_config *c = &i->model;
	struct ollama_model m = {
		.name = s->name,
		.digest = digest,
		.architecture = c->family->name,
		.format = s->model_format,
		.quantization = s->options.dtype == ENGINE_BFLOAT16 ? "BF16" : "F32",
		.modified_ns = (uint64_t)s->started * 1000000000u,
		.weight_bytes = i->weight_bytes,
		.memory_bytes = i->weight_bytes + i->kv_bytes + i->state_bytes + i->scratch_bytes,
		.on_cpu = i->on_cpu,
		.n_parameters = i->n_parameters,
		.context_length = i->max_model_len,
		.embedding_length = c->hidden_size,
		.n_layers = c->n_layers,
		.n_heads = c->n_heads,
		.n_kv_heads = c->n_kv_heads,
		.head_dim = c->head_dim,
		.vocab_size = c->vocab_size,
		.n_experts = c->n_experts,
		.n_experts_used = c->n_experts_per_token,
		.rope_theta = c->rope_theta,
		.norm_eps = (double)c->rms_norm_eps,
		.tools = s->tools != NULL,
	};

	make_digest(s, digest);
	if (s->template)
		m.template = template_text(s->template, &m.template_len);
	return m;
}

/* Makes the list of the model's names, and returns their number. */
static size_t names_of(const struct server *s, const char *ret[SERVED_NAMES_MAX])
{
	const struct option_names *names = &s->options.served_model_name;

	ret[0] = s->name;
	for (size_t i = 1; i < names->n; i++)
		ret[i] = names->v[i];
	return MAX(names->n, (size_t)1);
}

static int tags(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	const char *names[SERVED_NAMES_MAX];
	char digest[DIGEST + 1];
	const struct ollama_model m = model_of(s, digest);

	ollama_body_tags(&m, names, names_of(s, names), out);
	return 0;
}

static int ps(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	const char *names[SERVED_NAMES_MAX];
	char digest[DIGEST + 1];
	const struct ollama_model m = model_of(s, digest);

	ollama_body_ps(&m, names, names_of(s, names), out);
	return 0;
}

static int show(struct call *c, struct buf *out, struct err *e)
{
	const struct pace pace = prepare_pace(c);
	char digest[DIGEST + 1];
	const char *name;
	struct ollama_model m;
	int r = ollama_parse_show(buf_str(&c->text.body), c->text.body.len, &pace, &c->text.arena,
				  &name, e);

	if (r == 0)
		r = prepare_model(c->server, name, e);
	if (r < 0)
		return r;
	m = model_of(c->server, digest);
	ollama_body_show(&m, out);
	return 0;
}

static int version(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	ollama_body_version(out);
	return 0;
}

static int root(struct server *s, const char *rest, struct buf *out, struct err *e)
{
	buf_puts(out, "Ollama is running");
	return 0;
}

const struct endpoint endpoint_ollama_tags = {
	.path = "/api/tags",
	.dialect = &dialect_ollama,
	.get = tags,
};

const struct endpoint endpoint_ollama_ps = {
	.path = "/api/ps",
	.dialect = &dialect_ollama,
	.get = ps,
};

const struct endpoint endpoint_ollama_show = {
	.path = "/api/show",
	.post = true,
	.id = "show-",
	.dialect = &dialect_ollama,
	.most_body = 64 << 10,
	.reply = show,
};

const struct endpoint endpoint_ollama_version = {
	.path = "/api/version",
	.dialect = &dialect_ollama,
	.while_loading = true,
	.get = version,
};

const struct endpoint endpoint_ollama_root = {
	.path = "/",
	.type = "text/plain; charset=utf-8",
	.dialect = &dialect_ollama,
	.get = root,
};
