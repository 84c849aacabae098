#include "protocol/openai/models.h"

#include <inttypes.h>
#include <string.h>

#include "protocol/openai/writer.h"

void openai_body_model(const struct openai_model *m, struct buf *out)
{
	const char *root = m->root ? m->root : m->id;

	buf_puts(out, "{\"id\":");
	writer_string(out, m->id, strlen(m->id));
	buf_printf(out,
		   ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"tigon\",\"root\":",
		   m->created);
	writer_string(out, root, strlen(root));
	buf_printf(out, ",\"max_model_len\":%" PRIu32 "}", m->max_model_len);
}

void openai_body_models(const struct openai_model *models, size_t n, struct buf *out)
{
	buf_puts(out, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_putc(out, ',');
		openai_body_model(&models[i], out);
	}
	buf_puts(out, "]}");
}

void openai_body_health(struct buf *out)
{
	buf_puts(out, "{\"status\":\"ok\"}");
}

void openai_body_version(const char *version, struct buf *out)
{
	buf_puts(out, "{\"version\":");
	writer_string(out, version, strlen(version));
	buf_putc(out, '}');
}
