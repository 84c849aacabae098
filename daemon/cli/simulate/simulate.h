/* `tigon simulate`: the scheduler and the prefix cache without a device. */
#ifndef DAEMON_CLI_SIMULATE_SIMULATE_H
#define DAEMON_CLI_SIMULATE_SIMULATE_H

int cli_simulate(int argc, char **argv);

#endif
