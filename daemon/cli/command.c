#include "daemon/cli/command.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const char *program, const struct command *table, FILE *out)
{
	fprintf(out, "usage: %s COMMAND ...\n\n", program);
	for (const struct command *c = table; c->name; c++)
		fprintf(out, "  %-13s %s\n", c->name, c->text);
	fprintf(out, "\n%s COMMAND --help says more; so does man tigon.\n", program);
}

void print_plain(FILE *out, const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		/* In UTF-8, U+0080 to U+009F are control characters of two bytes. */
		bool wide = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;

		fputc(*c < ' ' || *c == 0x7f || wide ? '?' : *c, out);
		c += wide;
	}
}

int command_run(const char *program, const struct command *table, int argc, char **argv)
{
	const struct command *c = table;
	struct err e = {0};
	char name[64];
	int r;

	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
		print_help(program, table, argc < 2 ? stderr : stdout);
		return argc < 2 ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	while (c->name && strcmp(argv[1], c->name) != 0)
		c++;
	if (!c->name) {
		fprintf(stderr, "%s: there is no command \"%s\"; %s --help lists them\n", program,
			argv[1], program);
		return EXIT_FAILURE;
	}
	snprintf(name, sizeof(name), "%s %s", program, c->name);
	if (c->parts)
		return command_run(name, c->parts, argc - 1, argv + 1);
	r = c->run(argc - 1, argv + 1, &e);
	if (r == 0 || r == -ECANCELED)
		return EXIT_SUCCESS;
	fprintf(stderr, "%s: ", name);
	print_plain(stderr, e.text);
	fputc('\n', stderr);
	return EXIT_FAILURE;
}
