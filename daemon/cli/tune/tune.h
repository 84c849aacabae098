/* `tigon tune`: finds the fastest cuts of the kernels (kernels/tuning/tuning.h) on a device, for a model. */
#ifndef DAEMON_CLI_TUNE_TUNE_H
#define DAEMON_CLI_TUNE_TUNE_H

/* argv[0] is "tune". Prints what went wrong to standard error. Returns the exit status, 0 or 1. */
int cli_tune(int argc, char **argv);

#endif
