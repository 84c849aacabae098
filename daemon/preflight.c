#include "daemon/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "base/private.h"
#include "engine/cache_size.h"
#include "engine/checkpoint/model_config.h"

/* Checks --max-model-len. A model was not trained for sequences with more positions than config.json has, and answers
 * nonsense behind the last one. So, as in vLLM, a longer length is an error rather than a warning. A user who wants it
 * all the same changes config.json. */
static int check_length(const struct options *o, struct err *e)
{
	struct model_config c;
	int r;

	if (!o->max_model_len)
		return 0;
	r = model_config_open(o->model, &c, e);
	if (r < 0 || o->max_model_len <= c.max_position_embeddings)
		return r;
	return err_set(e, EINVAL,
		       "--max-model-len %llu: the model has %u positions (max_position_embeddings "
		       "of config.json)",
		       (unsigned long long)o->max_model_len, c.max_position_embeddings);
}

static int check_host_memory(const struct options *o, struct err *e)
{
	uint64_t total = o->host_cache_memory ? host_memory_read().total : 0;

	if (!total || o->host_cache_memory <= total)
		return 0;
	return err_set(e, EINVAL, "--host-cache-memory asks for %s, and this process may have %s",
		       size_text(o->host_cache_memory).s, size_text(total).s);
}

/* Creates --cache-dir if it is missing. A directory that exists and cannot be written is no error, because its files
 * can be read. A directory that others may write to is refused, because forged pages in it would be used. */
static int check_cache_dir(const struct options *o, struct err *e)
{
	int code, fd;

	if (!o->cache_dir)
		return 0;
	code = mkdir(o->cache_dir, 0700) < 0 && errno != EEXIST ? errno : 0;
	fd = open(o->cache_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		code = code ? code : errno;
		return err_set(e, code, "--cache-dir %s: %s", o->cache_dir, strerror(code));
	}
	close(fd);
	if (private_directory(o->cache_dir, e) < 0) {
		err_prefix(e, "--cache-dir");
		return -e->code;
	}
	return 0;
}

int preflight_check(const struct options *o, struct err *e)
{
	int r = check_length(o, e);

	if (r == 0 && o->prefix_cache != OPTION_OFF)
		r = check_host_memory(o, e);
	if (r == 0 && o->prefix_cache != OPTION_OFF)
		r = check_cache_dir(o, e);
	return r;
}
