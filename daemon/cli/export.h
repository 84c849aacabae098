/* `tigon export`: weights, random or from files, as a Hugging Face checkpoint in bf16. */
#ifndef DAEMON_CLI_EXPORT_H
#define DAEMON_CLI_EXPORT_H

/* argv[0] is "export". Prints what went wrong to standard error. Returns the exit status, 0 or 1. */
int cli_export(int argc, char **argv);

#endif
