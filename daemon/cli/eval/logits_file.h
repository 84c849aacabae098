/* The logits of an evaluation as a safetensors file, for comparing them with those of another program: one tensor `logits`
 * [predictions, vocabulary] of F32, in the order of the text. */
#pragma once

#include <stdint.h>

#include "base/file.h"

/* Begins the file `path`; the caller ends the draft (base/file.h). Errors are those of file_draft_open and
 * file_draft_write. */
int logits_file_open(struct file_draft *d, const char *path, uint64_t predictions, uint32_t vocab,
		     struct err *e) MUST_CHECK;

/* Appends n rows of logits. */
int logits_file_add(struct file_draft *d, const float *logits, uint64_t n, uint32_t vocab,
		    struct err *e) MUST_CHECK;
