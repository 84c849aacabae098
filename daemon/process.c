#include "daemon/process.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	uint64_t n = 0;

	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n - 1; /* without the descriptor of `dir` */
}

static void read_memory(struct process_numbers *p)
{
	FILE *f = fopen("/proc/self/statm", "re");
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), all, resident;

	if (!f)
		return;
	if (fscanf(f, "%" SCNu64 " %" SCNu64, &all, &resident) == 2) {
		p->virtual_bytes = all * page;
		p->resident_bytes = resident * page;
	}
	fclose(f);
}

void process_read(struct process_numbers *ret)
{
	struct timespec cpu;
	struct rlimit limit;

	*ret = (struct process_numbers){.open_fds = count_fds()};
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
		ret->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000 + (uint64_t)cpu.tv_nsec;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		ret->max_fds = limit.rlim_cur;
	read_memory(ret);
}
