/*
 * `tigon bench`: how fast kernels are (`kernels`), steps of the engine (`steps`), a server (`serve`).
 */
#ifndef DAEMON_CLI_BENCH_BENCH_H
#define DAEMON_CLI_BENCH_BENCH_H

/* argv[0] is "bench". Prints what went wrong to standard error. Returns the exit status, 0 or 1. */
int cli_bench(int argc, char **argv);

/* The same; argv[0] is the name of the part. */
int bench_kernels(int argc, char **argv);
int bench_steps(int argc, char **argv);
int bench_serve(int argc, char **argv);

#endif
