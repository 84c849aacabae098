/*
 * Build tool: turns files into C, so that the binary carries them.
 *
 *     embed OUT.c FILE...             kernel sources; one is named by its folder and file name ("generic/gemm.cl")
 *     embed OUT.c --text NAME FILE    a text, as the array NAME of characters
 */
#include <stdio.h>
#include <string.h>

static const char *short_name(const char *path)
{
	const char *p = path + strlen(path);

	for (int slashes = 0; p > path; p--)
		if (p[-1] == '/' && ++slashes == 2)
			break;
	return p;
}

/* Writes a file as a string literal. Returns 0, or -1 if it cannot be opened. */
static int put_file(const char *path, FILE *out)
{
	FILE *in = fopen(path, "r");
	int c;

	if (!in) {
		perror(path);
		return -1;
	}
	fprintf(out, "\t\"");
	while ((c = fgetc(in)) != EOF) {
		if (c == '\n')
			fprintf(out, "\\n\"\n\t\"");
		else if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c == '\t')
			fprintf(out, "\\t");
		else
			fputc(c, out);
	}
	fprintf(out, "\"");
	return fclose(in);
}

static int put_text(const char *name, const char *path, FILE *out)
{
	fprintf(out, "extern const char %s[];\nconst char %s[] =\n", name, name);
	if (put_file(path, out) < 0)
		return -1;
	fprintf(out, ";\n");
	return 0;
}

static int put_kernels(char **paths, int n, FILE *out)
{
	fprintf(out,
		"#include \"kernels/sources.h\"\n\nconst struct kernel_source kernel_sources[] = {\n");
	for (int i = 0; i < n; i++) {
		fprintf(out, "\t{\"%s\",\n", short_name(paths[i]));
		if (put_file(paths[i], out) < 0)
			return -1;
		fprintf(out, "},\n");
	}
	fprintf(out, "\t{0, 0},\n};\n");
	return 0;
}

int main(int argc, char **argv)
{
	const int is_text = argc == 5 && !strcmp(argv[2], "--text");
	FILE *out;

	if (argc < 3 || !(out = fopen(argv[1], "w"))) {
		fprintf(stderr, "usage: embed OUT.c FILE... | embed OUT.c --text NAME FILE\n");
		return 1;
	}
	if (is_text ? put_text(argv[3], argv[4], out) : put_kernels(argv + 2, argc - 2, out))
		return 1;
	return fclose(out) != 0;
}
