#include "base/host_memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/macros.h"

/* Reads the number behind `key` in the first line of the file path/name that begins with `key`. UINT64_MAX: there is no
 * number (a control group's "max"), no such line, or no file. */
static uint64_t read_number(const char *path, const char *name, const char *key)
{
	uint64_t value = UINT64_MAX;
	char full[4200], line[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", path, name);
	f = fopen(full, "re");
	while (f && fgets(line, sizeof(line), f)) {
		const char *number;

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		number = line + strlen(key) + strspn(line + strlen(key), " ");
		if (isdigit((unsigned char)*number))
			value = strtoull(number, NULL, 10);
		break;
	}
	if (f)
		fclose(f);
	return value;
}

static struct host_memory machine(void)
{
	uint64_t kib = read_number("/proc", "meminfo", "MemAvailable:");
	struct host_memory m = {0};
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return m;
	m.total = (uint64_t)info.totalram * info.mem_unit;
	/* Without /proc/meminfo, as in a bare chroot, m.left is the free memory, which is mostly less than the
	 * available memory. */
	m.left = kib != UINT64_MAX ? kib * 1024 : (uint64_t)info.freeram * info.mem_unit;
	return m;
}

/* Lowers m to the memory that a control group and all groups above it allow. A group's usage includes pages of files
 * that were not used lately (inactive_file), which the system can take back. So these pages are subtracted from the
 * usage. */
static void lower(struct host_memory *m, const char *mount, const char *group, const char *limit,
		  const char *usage)
{
	size_t floor_len = strlen(mount);
	char path[4096];

	snprintf(path, sizeof(path), "%s%s", mount, group);
	for (;;) {
		uint64_t most = read_number(path, limit, ""), used = read_number(path, usage, "");
		char *slash;

		if (most != UINT64_MAX && used != UINT64_MAX) {
			uint64_t cache = read_number(path, "memory.stat", "inactive_file ");

			used -= cache == UINT64_MAX ? 0 : MIN(cache, used);
			m->total = MIN(m->total, most);
			m->left = MIN(m->left, most > used ? most - used : 0);
		}
		slash = strrchr(path, '/');
		if (!slash || (size_t)(slash - path) < floor_len)
			return;
		*slash = 0;
	}
}

struct host_memory host_memory_read(void)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	struct host_memory m = machine();
	char line[4096];

	while (f && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':'), *path, top[] = "";

		line[strcspn(line, "\n")] = 0;
		path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = 0;
		if (!strcmp(path, "/"))
			path = top;
		if (!controllers[1])
			lower(&m, "/sys/fs/cgroup", path, "memory.max", "memory.current");
		else if (strstr(controllers + 1, "memory"))
			lower(&m, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
			      "memory.usage_in_bytes");
	}
	if (f)
		fclose(f);
	return m;
}
