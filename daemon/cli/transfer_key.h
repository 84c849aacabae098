#ifndef DAEMON_CLI_TRANSFER_KEY_H
#define DAEMON_CLI_TRANSFER_KEY_H

/* `tigon transfer-key`; argv[0] is the command's name. The exit status. */
int cli_transfer_key(int argc, char **argv);

#endif
