#include "engine/checkpoint/config_source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

void config_fail(struct config_source *s, int code, const char *key, const char *what)
{
	if (s->error == 0)
		s->error = err_set(s->e, code, "%s: %s%s %s", s->file, s->path, key, what);
}

const json_t *config_value(const struct config_source *s, const char *key)
{
	const json_t *v = json_object_get(s->object, key);

	return json_is_null(v) ? NULL : v;
}

uint32_t config_whole(struct config_source *s, const char *key, uint32_t min, uint32_t max,
		      uint32_t missing)
{
	const json_t *v = config_value(s, key);
	json_int_t n;

	if (s->error < 0 || !v)
		return missing;
	n = json_integer_value(v);
	if (json_is_integer(v) && n >= min && n <= max)
		return (uint32_t)n;
	if (json_is_integer(v))
		s->error = err_set(s->e, EINVAL, "%s: %s%s is %lld, must be %u to %u", s->file,
				   s->path, key, (long long)n, min, max);
	else
		s->error = err_set(s->e, EINVAL, "%s: %s%s must be a whole number, %u to %u",
				   s->file, s->path, key, min, max);
	return missing;
}

bool config_truth(struct config_source *s, const char *key, bool missing)
{
	const json_t *v = config_value(s, key);

	if (s->error < 0 || !v)
		return missing;
	if (!json_is_boolean(v))
		config_fail(s, EINVAL, key, "must be true or false");
	return json_is_true(v);
}

double config_real(struct config_source *s, const char *key, double min, double max, bool closed,
		   double missing)
{
	const json_t *v = config_value(s, key);
	double n;

	if (s->error < 0 || !v)
		return missing;
	n = json_number_value(v);
	if (json_is_number(v) && isfinite(n) && (closed ? n >= min : n > min) && n <= max)
		return n;
	s->error = err_set(s->e, EINVAL, "%s: %s%s must be a number %s %g and at most %g", s->file,
			   s->path, key, closed ? "of at least" : "above", min, max);
	return missing;
}

void config_only_truth(struct config_source *s, const char *key, bool wanted)
{
	if (config_truth(s, key, wanted) != wanted && s->error == 0)
		config_fail(s, ENOTSUP, key,
			    wanted ? "is false, which is not supported"
				   : "is true, which is not supported");
}

void config_only_word(struct config_source *s, const char *key, const char *wanted)
{
	const json_t *v = config_value(s, key);

	if (s->error < 0 || !v || (json_is_string(v) && !strcmp(json_string_value(v), wanted)))
		return;
	s->error = err_set(s->e, ENOTSUP, "%s: %s%s must be \"%s\": nothing else is supported",
			   s->file, s->path, key, wanted);
}

uint32_t config_word(struct config_source *s, const char *key, const char *const *words, uint32_t n,
		     uint32_t missing)
{
	const json_t *v = config_value(s, key);
	const char *word = json_string_value(v);
	char list[128] = "";
	size_t at = 0;

	if (s->error < 0 || !v)
		return missing;
	for (uint32_t i = 0; i < n; i++) {
		if (word && !strcmp(word, words[i]))
			return i;
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s\"%s\"",
				       !i	   ? ""
				       : i + 1 < n ? ", "
						   : " or ",
				       words[i]);
		at = MIN(at, sizeof(list) - 1);
	}
	s->error = err_set(s->e, ENOTSUP, "%s: %s%s must be %s: nothing else is supported", s->file,
			   s->path, key, list);
	return missing;
}
