/* `tigon cache`: what a server's prefix cache holds, as a tree; `tigon cache flush` empties it. */
#ifndef DAEMON_CLI_CACHE_H
#define DAEMON_CLI_CACHE_H

/* argv[0] is "cache". Prints what went wrong to standard error. Returns the exit status, 0 or 1. */
int cli_cache(int argc, char **argv);

#endif
