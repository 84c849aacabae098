/* `tigon transfer-key FILE`: new keys for a worker (daemon/transfer/keys.h). */
#include "daemon/cli/transfer_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/transfer/keys.h"

int cli_transfer_key(int argc, char **argv)
{
	char key[TRANSFER_KEY_TEXT];
	struct err e = {0};

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		printf("usage: tigon transfer-key FILE\n\n"
		       "Makes keys for tigond --transfer-key and prints the public one, for the lists of peers.\n");
		return EXIT_SUCCESS;
	}
	if (argc != 2 || argv[1][0] == '-') {
		fprintf(stderr,
			"tigon transfer-key: the name of one file is wanted; --help says more\n");
		return EXIT_FAILURE;
	}
	if (transfer_keys_create(argv[1], key, &e) < 0) {
		fprintf(stderr, "tigon transfer-key: %s\n", e.text);
		return EXIT_FAILURE;
	}
	printf("%s\n", key);
	return EXIT_SUCCESS;
}
