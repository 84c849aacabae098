/*
 * Build tool: turns kernel sources into one C file, so that the binary carries them.
 *
 *     embed OUT.c FILE...      a source is named by its folder and file name ("generic/gemm.cl")
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

int main(int argc, char **argv)
{
	FILE *out;

	if (argc < 3 || !(out = fopen(argv[1], "w"))) {
		fprintf(stderr, "usage: embed OUT.c FILE...\n");
		return 1;
	}
	fprintf(out,
		"#include \"kernels/sources.h\"\n\nconst struct kernel_source kernel_sources[] = {\n");
	for (int i = 2; i < argc; i++) {
		FILE *in = fopen(argv[i], "r");
		int c;

		if (!in) {
			perror(argv[i]);
			return 1;
		}
		fprintf(out, "\t{\"%s\",\n\t\"", short_name(argv[i]));
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
		fprintf(out, "\"},\n");
		fclose(in);
	}
	fprintf(out, "\t{0, 0},\n};\n");
	return fclose(out) != 0;
}
