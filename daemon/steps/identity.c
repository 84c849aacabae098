#include "daemon/steps/identity.h"

#include <stdio.h>
#include <stdlib.h>

void identity_init(struct identity *i, const struct server *s)
{
	*i = (struct identity){.server = s};
	pthread_mutex_init(&i->lock, NULL);
}

void identity_release(struct identity *i)
{
	pthread_mutex_destroy(&i->lock);
}

/* Returns the path of the memo (engine/cache_identity.h), new. NULL: there is no directory for it, or memory is short;
 * then the files of weights are hashed at this start, even if they were hashed before. */
static char *own_memo(const struct options *o)
{
	char *memo;

	return o->program_cache && asprintf(&memo, "%s/weights", o->program_cache) >= 0 ? memo
											: NULL;
}

static int compute(struct identity *i, const char *memo, const atomic_bool *cancel, struct err *e)
{
	const struct options *o = &i->server->options;
	const struct cache_identity_source source = {
		.model_dir = o->model,
		.synthetic = o->synthetic,
		.synthetic_seed = o->synthetic_seed,
		.dtype = (enum engine_dtype)o->dtype,
		.kv_dtype = (enum engine_kv_dtype)o->kv_dtype,
		.page_tokens = (uint32_t)o->page_size,
		.engine = &i->server->info,
		.opened_ns = i->opened_ns,
	};
	char *own = memo ? NULL : own_memo(o);
	int r = cache_identity_compute(&source, memo ? memo : own, cancel, &i->id, e);

	free(own);
	return r;
}

int identity_get(struct identity *i, const char *memo, const atomic_bool *cancel,
		 struct cache_identity *ret, struct err *e)
{
	int r = 0;

	pthread_mutex_lock(&i->lock);
	if (!i->known)
		r = compute(i, memo, cancel, e);
	i->known = r == 0;
	*ret = i->id;
	pthread_mutex_unlock(&i->lock);
	return r;
}
