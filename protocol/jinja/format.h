/* Texts with values put into them: "%s" % value and "{}".format(value).
 *
 * Only the conversions that chat templates use are known: %s, %d and %%; {}, {{ and }}. Other conversions, widths,
 * precisions and fields are refused, with an error that shows their first bytes. */
#pragma once

#include "protocol/jinja/value.h"

/* Returns format % args. A tuple stands for several arguments. */
struct value value_format_percent(struct render *r, struct value format, struct value args);

/* Returns format.format(...). */
struct value value_format_braces(struct render *r, struct value format, const struct args *args);
