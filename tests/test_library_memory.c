/* kernels/library.c: a program is compiled once, and then read from the cache. If its file is damaged, the program is
 * compiled again. If memory is too short to read the file, this is not taken for damage: the file is kept, and read
 * again when the process has locked the program. A file that cannot be written leaves nothing behind. */
#include "tests/short_memory.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/device.h"
#include "kernels/library.h"
#include "tests/scratch.h"

enum { LOG_MAX = 1 << 20 };

static char cache[512], log_path[512], text[LOG_MAX];
static struct library library;

static int take_program(struct err *e)
{
	cl_program program = NULL;
	int r = library_program(&library, "peak.cl",
				"-cl-std=CL1.2 -DLANES=1 -DVEC=16 -DBF16=0 -DACCUMULATORS=16",
				&program, e);

	if (program)
		clReleaseProgram(program);
	return r;
}

/* Returns what was logged since the last call. */
static const char *logged(void)
{
	FILE *f = fopen(log_path, "r");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	text[n] = 0;
	check(truncate(log_path, 0) == 0);
	return text;
}

/* Writes the path of the cache's only compiled program to `path`. */
static void cache_file(char *path, size_t size)
{
	DIR *d = opendir(cache);
	struct dirent *entry;

	while (d && (entry = readdir(d)))
		if (strstr(entry->d_name, ".clbin"))
			snprintf(path, size, "%s/%s", cache, entry->d_name);
	closedir(d);
}

static unsigned n_unread; /* times that memory was too short to read the file */

static void attempt_read(void *arg, unsigned long n)
{
	struct err e = {0};
	unsigned built = library.built;
	const char *said;
	bool failed;
	int r;

	short_from(n);
	r = take_program(&e);
	failed = short_end();
	said = logged();
	check(!strstr(said, "damaged"));
	check((r == 0 || (failed && r == -ENOMEM)) && library.built == built);
	n_unread += strstr(said, "is not used: out of memory") != NULL;
}

static bool fdopen_fails;

/* Replaces the function of libc: fails if fdopen_fails is set. */
FILE *fdopen(int fd, const char *mode)
{
	static FILE *(*real)(int, const char *);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "fdopen");
	errno = ENOMEM;
	return fdopen_fails ? NULL : real(fd, mode);
}

static unsigned files(void)
{
	DIR *d = opendir(cache);
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static void test_unwritten(const char *path)
{
	struct err e = {0};
	unsigned n = files();

	check(unlink(path) == 0);
	fdopen_fails = true;
	is_int(take_program(&e), 0, "a program whose file cannot be written is there all the same");
	fdopen_fails = false;
	ok(strstr(logged(), "cannot write"), "the log says so");
	is_int(files(), n - 1, "and nothing is left of the file");
}

/* Takes the program when the header of its file names more bytes than the file has, and the n-th allocation fails. */
static void attempt_header(void *path, unsigned long n)
{
	const uint64_t bytes = 200 << 20;
	FILE *f = fopen(path, "r+");
	struct err e = {0};

	check(f && fseek(f, 8, SEEK_SET) == 0 && fwrite(&bytes, sizeof(bytes), 1, f) == 1 &&
	      fclose(f) == 0);
	short_from(n);
	check(take_program(&e) == 0 || short_failed);
	short_end();
	check(!strstr(logged(), "is not used: out of memory"));
}

static void test_cache(void)
{
	char path[1024] = "";
	struct err e = {0};
	FILE *f;
	int last = EOF;

	is_int(take_program(&e), 0, "a program is compiled");
	ok(library.built == 1 && library.loaded == 0, "the first time");
	is_int(take_program(&e), 0, "then it is there");
	ok(library.built == 1 && library.loaded == 1, "in the cache");
	logged();
	cache_file(path, sizeof(path));
	ok(each_allocation(attempt_read, NULL) > 0, "memory that is short is not called damage");
	ok_all("at any allocation");
	is_int(n_unread, 1, "one of them is for the file");
	f = fopen(path, "r+");
	ok(f && fseek(f, -1, SEEK_END) == 0 && (last = fgetc(f)) != EOF &&
		   fseek(f, -1, SEEK_END) == 0 && fputc(last ^ 1, f) != EOF && fclose(f) == 0,
	   "a byte is changed");
	is_int(take_program(&e), 0, "the program is there all the same");
	ok(strstr(logged(), "is damaged and will be replaced"), "and the log says why");
	each_allocation(attempt_header, path);
	ok_all("no memory is taken for bytes that a file does not have");
	test_unwritten(path);
}

int main(void)
{
	struct device d;
	struct err e = {0};
	int out;

	if (device_open(NULL, &d, &e) < 0)
		return skip_all(e.text);
	snprintf(cache, sizeof(cache), "%s/cache", scratch_dir);
	snprintf(log_path, sizeof(log_path), "%s/log", scratch_dir);
	out = open(log_path, O_CREAT | O_WRONLY | O_APPEND, 0600);
	check(mkdir(cache, 0700) == 0 && dup2(out, 2) == 2);
	library = (struct library){.context = d.context,
				   .device = d.id,
				   .variant = "generic",
				   .cache_dir = cache};
	test_cache();
	device_close(&d);
	return done();
}
