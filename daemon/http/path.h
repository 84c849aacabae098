/* The path in a request's target, and its percent-escapes: "%63" for "c".
 *
 * libmicrohttpd would decode all of them before an endpoint is looked for. Then "/cache%2Fflush" would be the path of
 * an endpoint, and "/cache%00.html" would end at the zero byte. A proxy in front, which lets only some paths through,
 * reads these two paths in another way. So only escapes of characters that need none are decoded at first (RFC 3986,
 * section 6.2.2.2). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Returns whether a target, as the client sent it, has a scheme and a host in front of the path: "http://host:80/path"
 * (RFC 9112, section 3.2.2). To be asked before path_normalise, because "%68ttp://" is no scheme. */
bool path_has_host(const char *target);

/* Returns the path in such a target, without its query; that of "http://host" is "/". *ret_host [*ret_len]: the host
 * and its port, within the target. */
const char *path_behind_host(const char *target, const char **ret_host, size_t *ret_len);

/* Decodes, in place, the escapes of letters, digits, "-", ".", "_" and "~". Returns the new length. */
size_t path_normalise(char *text);

/* Decodes the escapes in a part of a path or in a value of a query, in place. An escape of the zero byte, and one
 * that is malformed, stay as they are. */
void path_decode(char *text);
