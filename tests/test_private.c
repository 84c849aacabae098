/* base/private.c: directories and files that others cannot change. daemon/api_keys.c: the keys of clients. */
#include "base/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/api_keys.h"
#include "tests/tap.h"

static char dir[] = "/tmp/tigon-private-XXXXXX", path[64];

static void write_bytes(const char *bytes, size_t len, mode_t mode)
{
	FILE *f = fopen(path, "w");

	if (!f || fwrite(bytes, 1, len, f) != len || fclose(f) || chmod(path, mode))
		abort();
}

static void write_file(const char *text, mode_t mode)
{
	write_bytes(text, strlen(text), mode);
}

TEST(directories)
{
	static const mode_t good[] = {0700, 0755, 0500, 0750},
			    bad[] = {0777, 0775, 0702, 0720, 01777};
	struct err e = {0};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ok(!chmod(dir, good[i]) && !private_directory(dir, &e), "mode %o", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ok(!chmod(dir, bad[i]) && private_directory(dir, &e) == -EPERM, "mode %o", bad[i]);
		ok(!strncmp(e.text, dir, strlen(dir)) && strstr(e.text, "chmod go-w"), "%s",
		   e.text);
	}
	is_int(chmod(dir, 0700), 0, "as before");
	is_int(private_directory("/no/such/directory", &e), 0, "one that is not there");
	is_int(private_directory("/", &e), 0, "one of root");
	if (geteuid() != 0) {
		ok(true, "one of another user # SKIP only root can make one");
		return;
	}
	ok(!chown(dir, 1, 0) && private_directory(dir, &e) == -EPERM &&
		   strstr(e.text, "another user (1)"),
	   "one of another user: %s", e.text);
	is_int(chown(dir, 0, 0), 0, "as before");
}

enum { MANY = 300 };

TEST(files)
{
	struct api_keys k = {0};
	struct err e = {0};
	char line[400], many[MANY * 8] = "";

	write_file("# keys\n\nfirst\n  sk-2~!   \r\n\tthird", 0600);
	is_int(api_keys_open(path, &k, &e), 0, "three keys%s", e.text);
	is_int((long long)k.n, 3, "three");
	is_int((long long)api_keys_find(&k, "first", 5), 1, "the first");
	is_int((long long)api_keys_find(&k, "sk-2~!", 6), 2, "the second");
	is_int((long long)api_keys_find(&k, "third", 5), 3, "the third");
	ok(!api_keys_find(&k, "First", 5) && !api_keys_find(&k, "firs", 4) &&
		   !api_keys_find(&k, "first ", 6) && !api_keys_find(&k, "first\0", 6) &&
		   !api_keys_find(&k, "", 0) && !api_keys_find(&k, "# keys", 6) &&
		   !api_keys_find(&k, "fi\0st", 5),
	   "and no others");
	memset(line, 'x', sizeof(line));
	ok(!api_keys_find(&k, line, 255) && !api_keys_find(&k, line, 256) &&
		   !api_keys_find(&k, line, sizeof(line)),
	   "however long");
	api_keys_release(&k);
	ok(!k.n && !api_keys_find(&k, "first", 5), "released");

	line[255] = 0;
	write_file(line, 0600);
	ok(!api_keys_open(path, &k, &e) && api_keys_find(&k, line, 255) == 1, "255 characters");
	api_keys_release(&k);
	line[255] = 'x';
	line[256] = 0;
	write_file(line, 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, ":1: ") &&
		   strstr(e.text, "255"),
	   "%s", e.text);
	write_file("a\nb c\n", 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, ":2: "), "%s", e.text);
	write_file("a\n\303\244\n", 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, ":2: "), "%s", e.text);
	write_file("a\n# b\na\n", 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, ":3: ") &&
		   strstr(e.text, "twice"),
	   "%s", e.text);
	write_bytes("first\ns\0e\0c\0r\0e\0t\0\n\0", 20, 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, ":2: ") &&
		   strstr(e.text, "zero byte"),
	   "%s", e.text);
	write_bytes("\0secret\n", 8, 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, ":1: "), "%s", e.text);
	write_bytes("# a\0b\nc\n", 8, 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, ":1: "), "%s", e.text);
	for (int i = 0; i < MANY; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "key%d\n", i);
	write_file(many, 0600);
	is_int(api_keys_open(path, &k, &e), 0, "many keys");
	for (int i = 0; i < MANY; i++) {
		snprintf(line, sizeof(line), "key%d", i);
		check(api_keys_find(&k, line, strlen(line)) == (size_t)i + 1);
	}
	ok_all("each is found");
	api_keys_release(&k);
	write_file("# none\n\n", 0600);
	ok(api_keys_open(path, &k, &e) == -EINVAL && strstr(e.text, "no key"), "%s", e.text);
	write_file("a\n", 0640);
	ok(api_keys_open(path, &k, &e) == -EPERM && strstr(e.text, "chmod 600"), "%s", e.text);
	is_int(api_keys_open(dir, &k, &e), -EINVAL, "a directory");
	is_int(api_keys_open("/no/such/file", &k, &e), -ENOENT, "no file");
	ok(!k.n, "after a failure there are no keys");
	unlink(path);
}

static int count_line(void *arg, char *line, struct err *e)
{
	++*(int *)arg;
	return 0;
}

/* Returns how often the text stands in the heap, which has one range of addresses.
 * A program under a sanitizer's allocator may have no heap at all. */
static int copies_in_heap(const char *text)
{
	char line[256];
	unsigned long begin = 0, end = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0;

	check(f);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "[heap]"))
			check(sscanf(line, "%lx-%lx", &begin, &end) == 2);
	fclose(f);
	for (const char *at = (const char *)begin;
	     at && (at = memmem(at, end - (uintptr_t)at, text, strlen(text))); at++)
		n++;
	return n;
}

TEST(wiped)
{
	enum { LINES = 100 };
	struct err e = {0};
	char secret[20];
	int fd, n = 0;

	for (size_t i = 0; i < sizeof(secret) - 1; i++)
		secret[i] = (char)('a' + (i * 7 + 3) % 26);
	secret[sizeof(secret) - 1] = '\n';
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	check(fd >= 0);
	for (int i = 0; i < LINES; i++)
		check(write(fd, secret, sizeof(secret)) == sizeof(secret));
	close(fd);
	secret[sizeof(secret) - 1] = 0;
	is_int(private_lines(path, count_line, &n, &e), 0, "read%s", e.text);
	is_int(n, LINES, "all lines");
	is_int(copies_in_heap(secret), 0, "and none is left in memory");
	unlink(path);
}

int main(void)
{
	if (!mkdtemp(dir))
		abort();
	snprintf(path, sizeof(path), "%s/keys", dir);
	run_tests();
	rmdir(dir);
	return done();
}
