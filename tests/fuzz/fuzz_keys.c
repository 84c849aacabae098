/* Any bytes as a file of keys (--api-key-file): each key that was read is found under its number. A key with another
 * first byte, and the empty key, are not found. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/api_keys.h"

static void check_keys(const struct api_keys *k)
{
	for (size_t i = 0; i < k->n; i++) {
		char other[API_KEY_MAX + 1];
		const struct api_key *key = &k->v[i];

		if (!key->len || key->len > API_KEY_MAX || strlen(key->text) != key->len ||
		    api_keys_find(k, key->text, key->len) != i + 1)
			abort();
		memcpy(other, key->text, sizeof(other));
		other[0] ^= (char)0x80; /* keys are ASCII */
		if (api_keys_find(k, other, key->len) || api_keys_find(k, key->text, 0))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("keys", MFD_CLOEXEC);
	struct api_keys k = {0};
	struct err e = {0};
	char path[64];

	if (fd < 0 || fchmod(fd, 0600) < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (api_keys_open(path, &k, &e) < 0) {
		if (!e.text[0] || k.n || k.v)
			abort();
	} else {
		if (!k.n)
			abort();
		check_keys(&k);
		api_keys_release(&k);
	}
	close(fd);
	return 0;
}
