#include "protocol/ollama/errors.h"

#include <string.h>

#include "protocol/openai/errors.h"
#include "protocol/openai/writer.h"

int ollama_error(const struct err *e, struct buf *out)
{
	buf_puts(out, "{\"error\":");
	writer_string(out, e->text, strlen(e->text));
	buf_putc(out, '}');
	return openai_status(e->code);
}
