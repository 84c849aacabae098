/* engine/checkpoint/export: members of config.json for which memory is short. Then the file is not written. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/checkpoint/export.h"
#include "engine/layers/weights.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* The number of the call of json_object_set_new that fails, as if memory were short. 1: the next one; 0: none. */
static unsigned long json_countdown;

int __real_json_object_set_new(json_t *object, const char *key, json_t *value);
int __wrap_json_object_set_new(json_t *object, const char *key, json_t *value);

int __wrap_json_object_set_new(json_t *object, const char *key, json_t *value)
{
	if (!json_countdown || --json_countdown)
		return __real_json_object_set_new(object, key, value);
	json_decref(value);
	return -1;
}

/* Exports the model, and reads the new config.json into *ret. */
static int try_export(const struct weights *w, const struct model_config *c, const char *json,
		      struct buf *ret, struct err *e)
{
	const char *out = scratch_path("out");
	char path[4096];
	int r = weights_export(w, c, json, out, 0, e);

	buf_reset(ret);
	snprintf(path, sizeof(path), "%s/config.json", out);
	if (r == 0)
		r = file_read(AT_FDCWD, path, path, ret, e);
	scratch_remove_tree(out);
	return r;
}

TEST(export)
{
	struct model_config *c = calloc(1, sizeof(*c));
	struct weight *table = NULL;
	struct weights *w = NULL;
	struct buf json, want, got;
	struct err e = {0};
	unsigned long n = 0;
	bool failed;
	int r;

	buf_init(&json, 1 << 20);
	buf_init(&want, 1 << 20);
	buf_init(&got, 1 << 20);
	check(c && model_config_open("models/lexis", c, &e) == 0);
	check(file_read(AT_FDCWD, "models/lexis/config.json", "config", &json, &e) == 0);
	check((table = layers_weights(c)) && weights_synthetic(1, NULL, c, table, &w) == 0);
	check(try_export(w, c, buf_str(&json), &want, &e) == 0);
	do {
		json_countdown = ++n;
		r = try_export(w, c, buf_str(&json), &got, &e);
		failed = !json_countdown;
		json_countdown = 0;
		check(failed ? r == -EINVAL && strstr(e.text, "memory") != NULL : r == 0);
	} while (failed && n < 100);
	ok_all("each of %lu members of a config.json is there, or the file is not written", n - 1);
	ok(n > 4, "which are some");
	is_str(buf_str(&got), buf_str(&want), "the file that is written");
	buf_release(&json);
	buf_release(&want);
	buf_release(&got);
	weights_close(w);
	free(table);
	free(c);
}

TEST_MAIN()
