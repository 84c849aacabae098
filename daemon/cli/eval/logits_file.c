#include "daemon/cli/eval/logits_file.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

int logits_file_open(struct file_draft *d, const char *path, uint64_t predictions, uint32_t vocab,
		     struct err *e)
{
	enum { LENGTH = 8, HEADER = 248 }; /* so that the numbers begin at byte 256 */
	char head[LENGTH + HEADER + 1];
	uint64_t length = htole64(HEADER);
	int r = file_draft_open(d, path, e);

	if (r < 0)
		return r;
	memcpy(head, &length, LENGTH);
	snprintf(head + LENGTH, HEADER + 1, "%-*s", HEADER, "");
	r = snprintf(
		head + LENGTH, HEADER + 1,
		"{\"logits\":{\"dtype\":\"F32\",\"shape\":[%llu,%u],\"data_offsets\":[0,%llu]}}",
		(unsigned long long)predictions, vocab,
		(unsigned long long)predictions * vocab * sizeof(float));
	head[LENGTH + r] = ' ';
	r = file_draft_write(d, head, LENGTH + HEADER, e);
	return r < 0 ? file_draft_close(d, r, e) : 0;
}

int logits_file_add(struct file_draft *d, const float *logits, uint64_t n, uint32_t vocab,
		    struct err *e)
{
	return file_draft_write(d, logits, n * vocab * sizeof(*logits), e);
}
