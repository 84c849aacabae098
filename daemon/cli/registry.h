#ifndef DAEMON_CLI_REGISTRY_H
#define DAEMON_CLI_REGISTRY_H

/* `tigon registry`; argv[0] is the command's name. The exit status. */
int cli_registry(int argc, char **argv);

#endif
