/* kernels/library.c: of several processes that start at the same time, one compiles a program. A FIFO in place of a
 * file of the cache stops none of them. Old temporary files are deleted. Only the programs of wgmma have instructions
 * that a device without wgmma cannot compile.
 *
 *     test_library              the tests
 *     test_library child DIR    gets one program, with the cache in DIR; prints how many it compiled: 0 or 1 */
#include "kernels/library.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "engine/device.h"
#include "kernels/ptx.h"
#include "kernels/sources.h"
#include "tests/scratch.h"
#include "tests/tap.h"

enum { PROCESSES = 3 };

static char self[512];

static int child(const char *dir)
{
	struct library l = {.variant = "generic", .cache_dir = dir};
	cl_program program;
	struct device d;
	struct err e = {0};

	if (device_open("cpu", &d, &e) < 0 && device_open(NULL, &d, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	l.context = d.context;
	l.device = d.id;
	if (library_program(&l, "peak.cl",
			    "-cl-std=CL1.2 -DLANES=1 -DVEC=16 -DBF16=0 -DACCUMULATORS=16", &program,
			    &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	clReleaseProgram(program);
	device_close(&d);
	printf("%u\n", l.built);
	return 0;
}

/* Runs n child processes at the same time. Returns how many programs they compiled together, or -1 if one failed. */
static int run(const char *dir, int n)
{
	FILE *out[PROCESSES];
	char command[1200];
	int sum = 0, built;

	snprintf(command, sizeof(command), "exec timeout 100 '%s' child '%s'", self, dir);
	for (int i = 0; i < n; i++)
		out[i] = popen(command, "r");
	for (int i = 0; i < n; i++) {
		if (!out[i] || fscanf(out[i], "%d", &built) != 1)
			built = -100;
		sum += built;
		if (!out[i] || pclose(out[i]) != 0)
			sum = -100;
	}
	return sum < 0 ? -1 : sum;
}

TEST(processes)
{
	is_int(run(scratch_dir, PROCESSES), 1, "of %d processes one compiles", PROCESSES);
	is_int(run(scratch_dir, PROCESSES), 0, "and later none");
}

TEST(fifo)
{
	DIR *d = opendir(scratch_dir);
	struct dirent *entry;
	int n = 0;

	while (d && (entry = readdir(d)))
		if (strstr(entry->d_name, ".clbin")) {
			remove(scratch_path(entry->d_name));
			check(mkfifo(scratch_path(entry->d_name), 0600) == 0);
			n++;
		}
	closedir(d);
	is_int(n, 1, "one file");
	is_int(run(scratch_dir, 1), 1, "a FIFO in its place is not waited for");
	is_int(run(scratch_dir, 1), 0, "and is replaced");
	check(remove(scratch_path("lock")) == 0 && mkfifo(scratch_path("lock"), 0600) == 0);
	is_int(run(scratch_dir, 1), 0, "nor is one that should be the lock");
}

/* Writes a file, and sets the time of its last change to that many hours ago. */
static void write_old(const char *name, int hours)
{
	const struct timespec then = {.tv_sec = time(NULL) - hours * 3600};

	scratch_write(name, "x", 1);
	check(utimensat(AT_FDCWD, scratch_path(name), (struct timespec[]){then, then}, 0) == 0);
}

static bool there(const char *name)
{
	return access(scratch_path(name), F_OK) == 0;
}

TEST(leftovers)
{
	write_old("0123456789abcdef0123456789abcdef.clbin.a1B2c3", 25);
	write_old("0123456789abcdef0123456789abcdef.clbin.new000", 23);
	write_old("probe.clbin.a1B2c3", 25);
	write_old("tempfile_a1B2c3", 25);
	write_old("tempfile_a1B2c3.cl", 25);
	write_old("0123456789abcdef0123456789abcdef.clbin", 2500);
	write_old("notes.text", 2500);
	library_clean(scratch_dir);
	ok(!there("0123456789abcdef0123456789abcdef.clbin.a1B2c3") &&
		   !there("probe.clbin.a1B2c3") && !there("tempfile_a1B2c3"),
	   "what a killed process left behind is deleted");
	ok(there("0123456789abcdef0123456789abcdef.clbin.new000"), "a day later");
	ok(there("0123456789abcdef0123456789abcdef.clbin") && there("notes.text") &&
		   there("tempfile_a1B2c3.cl"),
	   "and nothing else");
}

/* Returns whether a program is one of those that programs.c and probe.c compile for devices with wgmma alone. */
static bool needs_wgmma(const char *file)
{
	return !strcmp(file, "attention_wide.cl") || !strcmp(file, "delta_scan_wide.cl") ||
	       !strcmp(file, "gemm_wide.cl") || !strcmp(file, "probes/wgmma.cl");
}

TEST(hidden_instructions)
{
	uint32_t n = 0, hiding = 0;

	for (const struct kernel_source *k = kernel_sources; k->name; k++) {
		const char *file =
			strncmp(k->name, "probes/", 7) ? strchr(k->name, '/') + 1 : k->name;
		const char *end = strrchr(file, '.');
		struct buf source;
		struct err e = {0};
		bool hides;

		if (strcmp(end, ".cl") || !strncmp(k->name, "x86/", 4))
			continue;
		buf_init(&source, 4 << 20);
		check(library_source("nvidia", file, &source, &e) == 0);
		hides = strstr(buf_str(&source), PTX_HIDDEN);
		if (hides != needs_wgmma(file))
			printf("# %s\n", k->name);
		check(hides == needs_wgmma(file));
		hiding += hides;
		n++;
		buf_release(&source);
	}
	check(n > 30 && hiding == 4);
	ok_all("of %u programs %u have instructions of sm_90a, all of them programs of wgmma", n,
	       hiding);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "child"))
		return child(argv[2]);
	snprintf(self, sizeof(self), "%s", argv[0]);
	run_tests();
	return done();
}
