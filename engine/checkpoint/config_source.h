/* Reads typed values of a JSON object's keys, with messages that name file and key. The source keeps the first error;
 * from then on the typed reads treat every key as missing, so a caller checks once, at the end. A key that is null
 * counts as missing. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct config_source {
	const char *file;
	/* path of the object in the file: "", or keys that each have a dot behind them, as in "text_config." */
	const char *path;
	const json_t *object;
	struct err *e;
	int error; /* 0 or -errno */
};

/* Notes an error, unless there is one already. Its sentence is "FILE: KEY WHAT", with the path before the key. */
void config_fail(struct config_source *s, int code, const char *key, const char *what);

/* Returns the value of a key, borrowed; NULL: the key is missing. */
const json_t *config_value(const struct config_source *s, const char *key);

/* Return the key's value, or `missing` if the key is missing. A value of another type is an error, and so is a number
 * below min or above max; config_real allows min itself only if `closed`. */
uint32_t config_whole(struct config_source *s, const char *key, uint32_t min, uint32_t max,
		      uint32_t missing);
bool config_truth(struct config_source *s, const char *key, bool missing);
double config_real(struct config_source *s, const char *key, double min, double max, bool closed,
		   double missing);

/* Note an error if the key has another value than `wanted`, which is the only one that the engine computes. The key may
 * be missing. */
void config_only_truth(struct config_source *s, const char *key, bool wanted);
void config_only_word(struct config_source *s, const char *key, const char *wanted);

/* Returns the number of the key's value among n words, or `missing` if the key is missing. Another value is an error. */
uint32_t config_word(struct config_source *s, const char *key, const char *const *words, uint32_t n,
		     uint32_t missing);
