/* `tigon bench serve`: how fast a server answers. */
#ifndef DAEMON_CLI_BENCH_H
#define DAEMON_CLI_BENCH_H

/* argv[0] is "bench". Prints what went wrong to standard error. Returns the exit status, 0 or 1. */
int cli_bench(int argc, char **argv);

#endif
