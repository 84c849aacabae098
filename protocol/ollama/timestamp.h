/* Times on the wire: RFC 3339, in UTC. */
#pragma once

#include <stdint.h>

#include "base/buf.h"

/* Appends a time with its nanoseconds, "2026-01-31T23:59:59.000000001Z". ns: nanoseconds since 1970. */
void timestamp_write(uint64_t ns, struct buf *out);
