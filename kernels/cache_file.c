#include "kernels/cache_file.h"

#include <fcntl.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

enum { CONTENT_MAX = 256 << 20 };

static const char magic[8] = "TIGONCL1";

struct header {
	char magic[8];
	uint64_t bytes;
	uint64_t hash[2];
};

static void hash_device_text(struct hash128 *h, cl_device_id device, cl_device_info what)
{
	char text[1024] = "";

	clGetDeviceInfo(device, what, sizeof(text) - 1, text, NULL);
	hash128_text(h, text);
}

void cache_file_path(const char *dir, cl_device_id device, const char *text, const char *options,
		     char ret[CACHE_PATH_MAX])
{
	struct hash128 h = HASH128_INIT;
	char hex[33];

	hash_device_text(&h, device, CL_DEVICE_NAME);
	hash_device_text(&h, device, CL_DEVICE_VENDOR);
	hash_device_text(&h, device, CL_DEVICE_VERSION);
	hash_device_text(&h, device, CL_DRIVER_VERSION);
	hash128_text(&h, text);
	hash128_text(&h, options);
	hash128_hex(&h, hex);
	snprintf(ret, CACHE_PATH_MAX, "%s/%s.clbin", dir, hex);
}

/* Fills the header of a cache file. The hash covers the file's name too, so that a file that was renamed to another
 * program's name is refused. */
static void fill_header(struct header *h, const char *path, const void *data, size_t bytes)
{
	struct hash128 hash = HASH128_INIT;
	const char *slash = strrchr(path, '/');

	hash128_text(&hash, slash ? slash + 1 : path);
	hash128_update(&hash, data, bytes);
	*h = (struct header){.bytes = bytes,
			     .hash = {(uint64_t)(hash.value >> 64), (uint64_t)hash.value}};
	memcpy(h->magic, magic, sizeof(magic));
}

/* Reads the header of a file of file_bytes bytes. Returns false if the header is damaged. The number of bytes in the
 * header is checked here, before so much memory is allocated. */
static bool read_header(FILE *f, uint64_t file_bytes, struct header *ret)
{
	return fread(ret, sizeof(*ret), 1, f) == 1 && !memcmp(ret->magic, magic, sizeof(magic)) &&
	       ret->bytes && ret->bytes <= CONTENT_MAX && ret->bytes == file_bytes - sizeof(*ret);
}

/* Reads the rest of the file behind its header into data. Returns false if the file is damaged. */
static bool read_content(FILE *f, const char *path, const struct header *h, void *data)
{
	struct header want;

	if (fread(data, 1, h->bytes, f) != h->bytes)
		return false;
	fill_header(&want, path, data, h->bytes);
	return !memcmp(h, &want, sizeof(want));
}

void *cache_file_read(const char *path, bool again, size_t *ret_bytes)
{
	bool good = false, short_of_memory = false;
	struct header h;
	void *data = NULL;
	off_t size;
	int fd = file_open(AT_FDCWD, path, path, &size, NULL);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");

	if (!f) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	if (read_header(f, (uint64_t)size, &h)) {
		data = malloc(h.bytes);
		short_of_memory = !data;
		good = data && read_content(f, path, &h, data);
	}
	fclose(f);
	if (good) {
		*ret_bytes = h.bytes;
		return data;
	}
	/* A damaged file is not deleted here: another process may have replaced it by a good one meanwhile. */
	if (short_of_memory)
		log_info("program cache: %s is not used: out of memory", path);
	else if (!again)
		log_info("program cache: %s is damaged and will be replaced", path);
	free(data);
	return NULL;
}

void cache_file_write(const char *path, const void *data, size_t bytes)
{
	struct header h;
	char temporary[4200];
	bool written;
	FILE *f;
	int fd;

	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	fd = mkstemp(temporary);
	f = fd < 0 ? NULL : fdopen(fd, "wb");
	if (!f) {
		log_warning("program cache: cannot write %s: %s", path, strerror(errno));
		if (fd >= 0) {
			close(fd);
			unlink(temporary);
		}
		return;
	}
	fill_header(&h, path, data, bytes);
	written = fwrite(&h, sizeof(h), 1, f) == 1 && fwrite(data, 1, bytes, f) == bytes;
	if (fclose(f) != 0 || !written || rename(temporary, path) < 0) {
		log_warning("program cache: cannot write %s: %s", path, strerror(errno));
		unlink(temporary);
	}
}
