#include "protocol/anthropic/models.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "protocol/openai/writer.h"

void anthropic_body_model(const struct openai_model *m, struct buf *out)
{
	const time_t created = m->created;
	char when[32] = "1970-01-01T00:00:00Z";
	struct tm tm;

	if (gmtime_r(&created, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	buf_puts(out, "{\"type\":\"model\",\"id\":");
	writer_string(out, m->id, strlen(m->id));
	buf_puts(out, ",\"display_name\":");
	writer_string(out, m->id, strlen(m->id));
	buf_printf(out,
		   ",\"created_at\":\"%s\",\"lifecycle\":\"active\",\"max_input_tokens\":%" PRIu32
		   ",\"max_tokens\":%" PRIu32 "}",
		   when, m->max_model_len, m->max_model_len);
}

void anthropic_body_models(const struct openai_model *models, size_t n, struct buf *out)
{
	buf_puts(out, "{\"data\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_putc(out, ',');
		anthropic_body_model(&models[i], out);
	}
	buf_puts(out, "],\"has_more\":false,\"first_id\":");
	writer_string(out, models[0].id, strlen(models[0].id));
	buf_puts(out, ",\"last_id\":");
	writer_string(out, models[n - 1].id, strlen(models[n - 1].id));
	buf_putc(out, '}');
}

void anthropic_body_count(size_t n_tokens, struct buf *out)
{
	buf_printf(out, "{\"input_tokens\":%zu}", n_tokens);
}
