/* `tigon transfer-key FILE`: makes a key pair for a worker (daemon/transfer/keys.h). */
#include <errno.h>
#include <string.h>

#include "daemon/cli/command.h"
#include "daemon/transfer/keys.h"

int cli_transfer_key(int argc, char **argv, struct err *e)
{
	char key[TRANSFER_KEY_TEXT];
	int r;

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		printf("usage: tigon transfer-key FILE\n\n"
		       "Makes a key pair for --transfer-key and prints the public key, for the files of the peers.\n");
		return -ECANCELED;
	}
	if (argc != 2 || argv[1][0] == '-')
		return err_set(e, EINVAL, "the name of one file is wanted; --help says more");
	r = transfer_keys_create(argv[1], key, e);
	if (r == 0)
		printf("%s\n", key);
	return r;
}
