#include "protocol/ollama/embed.h"

#include <inttypes.h>
#include <string.h>

#include "protocol/openai/embeddings.h"
#include "protocol/openai/writer.h"

void ollama_embed_begin(const char *model, struct buf *out)
{
	buf_puts(out, "{\"model\":");
	writer_string(out, model, strlen(model));
	buf_puts(out, ",\"embeddings\":[");
}

void ollama_embed_vector(uint32_t index, const float *sum, uint32_t dimensions, struct buf *out)
{
	if (index)
		buf_putc(out, ',');
	openai_vector(sum, dimensions, out);
}

void ollama_embed_end(const struct openai_usage *u, const struct ollama_times *t, struct buf *out)
{
	buf_printf(out,
		   "],\"total_duration\":%" PRIu64 ",\"load_duration\":%" PRIu64
		   ",\"prompt_eval_count\":%" PRIu32 "}",
		   t->total, t->load, u->prompt_tokens);
}

void ollama_embedding(const float *sum, uint32_t dimensions, struct buf *out)
{
	buf_puts(out, "{\"embedding\":");
	openai_vector(sum, dimensions, out);
	buf_putc(out, '}');
}

void ollama_embed_nothing(const char *model, struct buf *out)
{
	ollama_embed_begin(model, out);
	buf_puts(out, "]}");
}

void ollama_embedding_nothing(struct buf *out)
{
	buf_puts(out, "{\"embedding\":[]}");
}
