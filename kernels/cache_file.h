/* The files of the program cache: compiled programs (library.h), and the abilities of devices (probe.h).
 *
 * DIR/<hash>.clbin = "TIGONCL1" | u64 bytes | u64[2] FNV-1a 128 of the file's name and the content | content.
 * <hash> covers the device's name, vendor and version, the driver's version, and two texts (of a program: its whole
 * source with its includes, and its options), so that a change of any of them gives another file. A file is written
 * under a temporary name, <hash>.clbin.XXXXXX with six other characters, and renamed. */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

enum { CACHE_PATH_MAX = 4096 };

/* Writes the path of the file for a device, a text and its options to ret. */
void cache_file_path(const char *dir, cl_device_id device, const char *text, const char *options,
		     char ret[CACHE_PATH_MAX]);

/* Returns the content of a file, at least one byte, for the caller to free. NULL: there is no file, it is damaged, or
 * out of memory; the last two are logged. again: this is the second try, so damage is not logged again. */
void *cache_file_read(const char *path, bool again, size_t *ret_bytes);

/* Writes a file. A failure is only logged, because the content can be made again. */
void cache_file_write(const char *path, const void *data, size_t bytes);
