/* Percent-escapes in a request's path: "%63" for "c".
 *
 * libmicrohttpd would decode all of them before an endpoint is looked for. Then "/cache%2Fflush" would be the path of
 * an endpoint, and "/cache%00.html" would end at the zero byte. A proxy in front, which lets only some paths through,
 * reads these two paths in another way. So only escapes of characters that need none are decoded at first (RFC 3986,
 * section 6.2.2.2). */
#pragma once

#include <stddef.h>

/* Decodes, in place, the escapes of letters, digits, "-", ".", "_" and "~". Returns the new length. */
size_t path_normalise(char *text);

/* Decodes the escapes in a part of a path or in a value of a query, in place. An escape of the zero byte, and one
 * that is malformed, stay as they are. */
void path_decode(char *text);
