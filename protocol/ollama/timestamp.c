#include "protocol/ollama/timestamp.h"

#include <inttypes.h>
#include <time.h>

void timestamp_write(uint64_t ns, struct buf *out)
{
	const time_t seconds = (time_t)(ns / 1000000000u);
	char text[32] = "1970-01-01T00:00:00";
	struct tm tm;

	if (gmtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	buf_printf(out, "%s.%09" PRIu64 "Z", text, ns % 1000000000u);
}
