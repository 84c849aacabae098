/* engine/checkpoint/formats/safetensors: good files are read correctly; each kind of wrong file is refused with its
 * sentence. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>

#include "engine/checkpoint/formats/json_scan.h"
#include "engine/checkpoint/formats/safetensors.h"
#include "tests/quoted.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* Makes a file in `out`: the length of the header, the header, and data_len bytes that count up. Returns its size. */
static size_t make_file(char *out, const char *header, size_t data_len)
{
	uint64_t n = strlen(header);

	header = quoted(header);
	for (int i = 0; i < 8; i++)
		out[i] = (char)(n >> 8 * i);
	memcpy(out + 8, header, n);
	for (size_t i = 0; i < data_len; i++)
		out[8 + n + i] = (char)i;
	return 8 + n + data_len;
}

static void write_file(const char *name, const char *header, size_t data_len)
{
	char file[8192];

	scratch_write(name, file, make_file(file, header, data_len));
}

static int count(const struct tensor *t, void *user)
{
	++*(int *)user;
	return 0;
}

/* clang-format off: a case begins a line. */
static const struct {
	const char *what, *header;
	size_t data_len;
	const char *error; /* a part of the error's sentence; NULL: the file is good */
} files[] = {
	{"an empty header", "{}", 0, NULL},
	{"one tensor", "{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}", 24, NULL},
	{"a scalar", "{'a':{'dtype':'F32','shape':[],'data_offsets':[0,4]}}", 4, NULL},
	{"an empty tensor", "{'a':{'dtype':'F32','shape':[0,9],'data_offsets':[0,0]}}", 0, NULL},
	{"space everywhere",
	 " { 'a' : { 'shape' : [ 1 , 2 ] , 'data_offsets' : [ 0 , 4 ] , 'dtype' : 'BF16' } } ", 4,
	 NULL},
	{"metadata",
	 "{'__metadata__':{'x':'y\\u00e9\\n'},'a':{'dtype':'U8','shape':[3],'data_offsets':[0,3]}}",
	 3, NULL},
	{"escapes in a name", "{'\\u0061\\/b':{'dtype':'U8','shape':[3],'data_offsets':[0,3]}}", 3,
	 NULL},
	{"two tensors out of order",
	 "{'b':{'dtype':'U8','shape':[3],'data_offsets':[2,5]},'a':{'dtype':'F16','shape':[1],'data_offsets':[0,2]}}",
	 5, NULL},
	{"four-bit numbers", "{'a':{'dtype':'F4','shape':[6],'data_offsets':[0,3]}}", 3, NULL},

	{"no JSON", "hello", 0,
	 "f: header is not the JSON of a safetensors file: no object at byte 8"},
	{"nothing", "", 0, "no object"},
	{"an array", "[]", 0, "no object"},
	{"an object without end", "{'a':{'dtype':'U8','shape':[3],'data_offsets':[0,3]}", 3,
	 "the object does not end"},
	{"text behind the object", "{} x", 0, "more text behind the object"},
	{"a trailing comma", "{'a':{'dtype':'U8','shape':[3],'data_offsets':[0,3]},}", 3,
	 "a name that is not printable ASCII"},
	{"a control character in a name", "{'a\\u001b[2J':{}}", 0,
	 "a name that is not printable ASCII"},
	{"a raw control character", "{'a\n':{}}", 0, "a name that is not printable ASCII"},
	{"a zero byte in a name", "{'a\\u0000':{}}", 0, "a name that is not printable ASCII"},
	{"a broken escape", "{'a\\x':{}}", 0, "a name that is not printable ASCII"},
	{"half an escape", "{'a\\u00", 0, "a name that is not printable ASCII"},
	{"no colon", "{'a' {}}", 0, "no colon behind a name"},
	{"deep metadata", "{'__metadata__':[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0,
	 "broken __metadata__"},
	{"an empty description", "{'a':{}}", 0, "f: tensor a: its description is not valid JSON"},
	{"a description that is no object", "{'a':3}", 0,
	 "f: tensor a: its description is not an object"},
	{"no dtype", "{'a':{'shape':[3],'data_offsets':[0,3]}}", 3,
	 "f: tensor a: dtype, shape or data_offsets is missing"},
	{"an unknown key", "{'a':{'shape':[3],'x':1}}", 3, "f: tensor a: unknown key \"x\""},
	{"a key twice", "{'a':{'shape':[3],'shape':[3]}}", 3, "f: tensor a: shape twice"},
	{"an unknown dtype", "{'a':{'dtype':'F33','shape':[3],'data_offsets':[0,3]}}", 3,
	 "f: tensor a: unknown dtype F33"},
	{"a dtype that is a number", "{'a':{'dtype':1}}", 3,
	 "f: tensor a: dtype is not a known name"},
	{"a negative size", "{'a':{'dtype':'U8','shape':[-3],'data_offsets':[0,3]}}", 3,
	 "f: tensor a: shape holds something other than sizes"},
	{"a size with a fraction", "{'a':{'dtype':'U8','shape':[3.0],'data_offsets':[0,3]}}", 3,
	 "f: tensor a: shape holds something other than sizes"},
	{"a size past 64 bits",
	 "{'a':{'dtype':'U8','shape':[18446744073709551616],'data_offsets':[0,3]}}", 3,
	 "f: tensor a: shape holds something other than sizes"},
	{"nine dimensions", "{'a':{'dtype':'U8','shape':[1,1,1,1,1,1,1,1,1]", 1,
	 "f: tensor a: more than 8 dimensions"},
	{"a shape that overflows",
	 "{'a':{'dtype':'U8','shape':[4294967296,4294967296],'data_offsets':[0,0]}}", 0,
	 "f: tensor a: shape overflows"},
	{"a shape whose bits overflow",
	 "{'a':{'dtype':'F32','shape':[1152921504606846976],'data_offsets':[0,0]}}", 0,
	 "f: tensor a: shape overflows"},
	{"half a byte", "{'a':{'dtype':'F4','shape':[5],'data_offsets':[0,3]}}", 3,
	 "f: tensor a: shape does not fill whole bytes"},
	{"offsets that are no pair", "{'a':{'dtype':'U8','shape':[3],'data_offsets':[0]}}", 3,
	 "f: tensor a: data_offsets are not two numbers"},
	{"offsets the wrong way round", "{'a':{'dtype':'U8','shape':[3],'data_offsets':[3,0]}}", 3,
	 "f: tensor a: data_offsets [3, 0] leave the 3 bytes of data"},
	{"offsets past the end", "{'a':{'dtype':'U8','shape':[3],'data_offsets':[1,4]}}", 3,
	 "f: tensor a: data_offsets [1, 4] leave the 3 bytes of data"},
	{"offsets far past the end",
	 "{'a':{'dtype':'U8','shape':[3],'data_offsets':[18446744073709551612,18446744073709551615]}}",
	 3, "leave the 3 bytes of data"},
	{"bytes that differ from the shape",
	 "{'a':{'dtype':'F16','shape':[3],'data_offsets':[0,4]}}", 4,
	 "f: tensor a: shape takes 6 bytes, data_offsets 4"},
	{"a name twice",
	 "{'a':{'dtype':'U8','shape':[1],'data_offsets':[0,1]},'a':{'dtype':'U8','shape':[1],'data_offsets':[1,2]}}",
	 2, "f: tensor a: listed twice"},
	{"an overlap",
	 "{'a':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},'b':{'dtype':'U8','shape':[2],'data_offsets':[1,3]}}",
	 3, "f: tensor b: overlaps another at byte 1 of the data"},
	{"a hole",
	 "{'a':{'dtype':'U8','shape':[1],'data_offsets':[0,1]},'b':{'dtype':'U8','shape':[1],'data_offsets':[2,3]}}",
	 3, "f: tensor b: leaves a hole before it at byte 1 of the data"},
	{"bytes that nobody owns", "{'a':{'dtype':'U8','shape':[3],'data_offsets':[0,3]}}", 7,
	 "f: 4 bytes behind the last tensor"},
};
/* clang-format on */

TEST(headers)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char file[8192];
		size_t len = make_file(file, files[i].header, files[i].data_len);
		struct err e = {0};
		int n = 0, r = safetensors_parse("f", file, len, count, &n, &e);

		if (files[i].error) {
			ok(r == -EINVAL && n == 0 && strstr(e.text, files[i].error), "refused: %s",
			   files[i].what);
			if (!strstr(e.text, files[i].error))
				printf("#   got  %s\n#   want %s\n", e.text, files[i].error);
		} else {
			ok(r == 0, "read: %s%s%s", files[i].what, r ? ": " : "", e.text);
		}
	}
}

TEST(lengths)
{
	static const char one[] = "{'a':{'dtype':'U8','shape':[3],'data_offsets':[0,3]}}";
	/* clang-format off: a case begins a line. */
	static const struct {
		const char *file;
		size_t len;
		const char *sentence, *what;
	} rows[] = {
		{"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10,
		 "f: header of 18446744073709551615 bytes, more than the 100 MB allowed",
		 "a header of 2^64 - 1 bytes"},
		{"\x03\0\0\0\0\0\0\0{}", 10, "f: header of 3 bytes in a file of 10 bytes",
		 "a header longer than the file"},
		{"{}", 2, "f: 2 bytes are too short for a safetensors file", "a file of 2 bytes"},
	};
	/* clang-format on */
	char file[8192];
	size_t len = make_file(file, one, 3);
	struct err e = {0};
	int n = 0;

	for (size_t cut = 0; cut < len; cut++) {
		/* The file in memory of its own, so that a sanitizer sees a read beyond its end. */
		char *part = malloc(cut ? cut : 1);

		memcpy(part, file, cut);
		check(safetensors_parse("f", part, cut, count, &n, &e) == -EINVAL && n == 0);
		free(part);
	}
	ok_all("every file cut short is refused");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		is_int(safetensors_parse("f", rows[i].file, rows[i].len, count, &n, &e), -EINVAL,
		       "%s is refused", rows[i].what);
		is_str(e.text, rows[i].sentence, "says so");
	}
}

static int stop(const struct tensor *t, void *user)
{
	return -ECANCELED;
}

TEST(visit)
{
	char file[8192];
	size_t len = make_file(file, files[7].header, files[7].data_len);
	struct err e = {0};

	is_int(safetensors_parse("f", file, len, stop, NULL, &e), -ECANCELED,
	       "a visitor's error ends the parse");
}

/* Opens the scratch directory. Checks the result and, of a failure, the sentence without the directory's name. */
static void expect(int error, const char *sentence, const char *what)
{
	struct safetensors *s;
	struct err e = {0};
	int r = safetensors_open(scratch_dir, &s, &e);
	const char *text = e.text;

	if (!strncmp(text, scratch_dir, strlen(scratch_dir)))
		text += strlen(scratch_dir);
	is_int(r, error, "%s", what);
	if (r == 0)
		safetensors_close(s);
	else
		is_str(text, sentence, "says so");
}

static void remove_file(const char *name)
{
	ok(remove(scratch_path(name)) == 0, "removes %s", name);
}

#define TENSOR(name) "{'" name "':{'dtype':'U8','shape':[3],'data_offsets':[0,3]}}"
#define INDEX	     "model.safetensors.index.json"

#define MISSING "/" INDEX ": tensor w is said to be in a.safetensors, which does not hold it"
#define OUTSIDE(file) \
	"/" INDEX ": tensor x is said to be in " file ", which is no file name inside the directory"

/* clang-format off: a case begins a line. */
static const struct {
	const char *text;
	int error;
	const char *sentence, *what;
} indices[] = {
	{"{'metadata':{'total_size':6.5e0},'weight_map':{'x':'a.safetensors','w':'b.safetensors'}}",
	 0, "", "an index of two files"},
	{"{'weight_map':{'x':'a.safetensors','w':'q.safetensors'}}", -ENOENT,
	 "/q.safetensors: cannot open: No such file or directory",
	 "an index that names a missing file"},
	{"{'weight_map':{'x':'a.safetensors','w':'a.safetensors'}}", -EINVAL, MISSING,
	 "an index that names a missing tensor"},
	{"{'weight_map':{'x':'b.safetensors','w':'a.safetensors'}}", -EINVAL, MISSING,
	 "an index that mixes files up"},
	{"{'weight_map':{'x':'../a.safetensors'}}", -EINVAL, OUTSIDE("'../a.safetensors'"),
	 "an index that leaves the directory"},
	{"{'weight_map':{'x':'/etc/passwd'}}", -EINVAL, OUTSIDE("'/etc/passwd'"),
	 "an index with an absolute path"},
	{"{'weight_map':{'x':'..'}}", -EINVAL, OUTSIDE("'..'"),
	 "an index with the parent directory"},
	{"{'weight_map':{'x':''}}", -EINVAL, OUTSIDE("''"), "an index with an empty file name"},
	{"{'weight_map':{}}", -EINVAL, "/" INDEX ": no weight_map that names tensors",
	 "an empty index"},
	{"{'weight_map':{'x':3}}", -EINVAL, "/" INDEX ": weight_map is broken at byte 19",
	 "an index of numbers"},
	{"{'weight_map':{'x':'a.safetensors'}", -EINVAL, "/" INDEX ": broken JSON at byte 35",
	 "an index cut short"},
	{"", -EINVAL, "/" INDEX ": not a JSON object", "an empty index file"},
};
/* clang-format on */

TEST(directory)
{
	const struct tensor *t;
	struct safetensors *s;
	struct err e = {0};
	size_t n;

	expect(-ENOENT, ": no safetensors file in this directory", "an empty directory is refused");
	scratch_write("z.safetensors", "", 0);
	expect(-EINVAL, "/z.safetensors: 0 bytes are too short for a safetensors file",
	       "an empty file is refused");
	remove_file("z.safetensors");
	mkdir(scratch_path("z.safetensors"), 0777);
	expect(-EINVAL, "/z.safetensors: not a regular file", "a directory in a file's place");
	remove_file("z.safetensors");
	mkfifo(scratch_path("z.safetensors"), 0666);
	expect(-EINVAL, "/z.safetensors: not a regular file",
	       "a pipe in a file's place does not hang");
	remove_file("z.safetensors");

	/* Without an index and model.safetensors, all *.safetensors are read. */
	write_file("a.safetensors", TENSOR("x"), 3);
	write_file("b.safetensors", TENSOR("w"), 3);
	write_file("c.safetensors.txt", "no", 0);
	if (ok(safetensors_open(scratch_dir, &s, &e) == 0, "opens every safetensors file %s",
	       e.text)) {
		t = safetensors_list(s, &n);
		is_int(n, 2, "two tensors");
		is_str(t[0].name, "w", "sorted by name");
		is_str(t[0].file, scratch_path("b.safetensors"), "a tensor knows its file");
		t = tensor_find(t, n, "x");
		ok(t && t->bytes == 3 && t->n_dims == 1 && t->shape[0] == 3 && !t->type->to_float,
		   "finds a tensor");
		is_str(t->type->name, "U8", "knows its dtype");
		ok(!memcmp(t->data, "\0\1\2", 3), "its data is the file's");
		ok(!tensor_find(safetensors_list(s, &n), n, "y"), "finds no other");
		safetensors_close(s);
	}
	write_file("b.safetensors", TENSOR("x"), 3);
	{
		char want[600];

		snprintf(want, sizeof(want), "/b.safetensors: tensor x is in %s too",
			 scratch_path("a.safetensors"));
		expect(-EINVAL, want, "a tensor in two files");
	}

	/* Without an index, model.safetensors alone is read. */
	ok(symlink("a.safetensors", scratch_path("model.safetensors")) == 0, "links");
	expect(0, "", "a symbolic link to a file is followed, the other files are not read");

	/* If there is an index, the files that it names are read, and no others. */
	write_file("b.safetensors", TENSOR("w"), 3);
	for (size_t i = 0; i < ARRAY_SIZE(indices); i++) {
		scratch_write(INDEX, quoted(indices[i].text), strlen(quoted(indices[i].text)));
		expect(indices[i].error, quoted(indices[i].sentence), indices[i].what);
	}

	remove_file(INDEX);
	ok(symlink("gone", scratch_path(INDEX)) == 0, "links the index to nothing");
	expect(-ENOENT, "/" INDEX ": cannot open: No such file or directory",
	       "such an index does not count as absent");

	is_int(safetensors_open("/nonexistent/checkpoint", &s, &e), -ENOENT, "no directory");
	is_str(e.text,
	       "/nonexistent/checkpoint: cannot open the directory: No such file or directory",
	       "says so");
}

static int produce(size_t index, void *data, void *user, struct err *e)
{
	if (index == 2)
		return err_set(e, EDOM, "enough");
	memset(data, 'a' + (int)index, index ? 6 : 4);
	return 0;
}

TEST(write)
{
	const struct stored_type *f16 = stored_type_find("F16"), *bf16 = stored_type_find("BF16");
	/* clang-format off: a tensor begins a line. */
	struct tensor t[3] = {
		{.name = "first", .bytes = 4, .shape = {2}, .n_dims = 1, .type = f16},
		{.name = "\"\\", .bytes = 6, .shape = {1, 3, 1}, .n_dims = 3, .type = bf16},
		{.name = "third",
		 .bytes = 1,
		 .shape = {1},
		 .n_dims = 1,
		 .type = stored_type_find("U8")},
	};
	/* clang-format on */
	const struct tensor *list, *got;
	size_t n;
	struct safetensors *s;
	struct err e = {0};

	remove_file(INDEX);
	remove_file("model.safetensors");
	is_int(safetensors_write(scratch_path("model.safetensors"), t, 3, produce, NULL, &e), -EDOM,
	       "an error of the producer ends the writing");
	is_str(e.text, "enough", "and is reported");
	ok(access(scratch_path("model.safetensors"), F_OK) < 0 &&
		   access(scratch_path("model.safetensors.partial"), F_OK) < 0,
	   "nothing is left behind");
	ok(safetensors_write(scratch_path("model.safetensors"), t, 2, produce, NULL, &e) == 0,
	   "writes two tensors %s", e.text);
	if (!ok(safetensors_open(scratch_dir, &s, &e) == 0, "reads them again %s", e.text))
		return;
	list = safetensors_list(s, &n);
	got = tensor_find(list, n, "first");
	ok(got && got->type == f16 && got->n_dims == 1 && !memcmp(got->data, "aaaa", 4),
	   "the first");
	got = tensor_find(list, n, "\"\\");
	ok(got && got->type == bf16 && got->n_dims == 3 && got->shape[1] == 3 &&
		   !memcmp(got->data, "bbbbbb", 6),
	   "the second, whose name needs escapes");
	safetensors_close(s);
}

static void scans(const char *text, bool want)
{
	struct json_scan s;
	bool good;

	json_scan_init(&s, text, strlen(text));
	good = json_scan_skip(&s) == 0 && json_scan_end(&s);
	if (good != want)
		printf("# %s\n", text);
	check(good == want);
}

TEST(scan)
{
	/* clang-format off: a list of valid texts, and one of others. */
	static const char *const good[] = {
		"0",
		"-0",
		"-0.5e+7",
		"12E3",
		"1.25",
		"true",
		"null",
		"\"\\u12aF\\\"\"",
		"[]",
		"[1,{\"a\":[]},\"\"]",
		"{\"a\":{},\"b\":[{}]}",
	};
	static const char *const bad[] = {
		"01",	 "+1",	    ".5",    "1.",	 "1e",		"-",  "tru", "nul", "[1,]",
		"[1 2]", "{\"a\"}", "{a:1}", "{\"a\":}", "\"\\u12g4\"", "\"", "'a'", "",    "]",
	};
	/* clang-format on */
	char deep[(JSON_SCAN_DEPTH + 1) * 2];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		scans(good[i], true);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		scans(bad[i], false);
	ok_all("the scanner passes JSON and nothing else");
	for (int n = JSON_SCAN_DEPTH; n <= JSON_SCAN_DEPTH + 1; n++) {
		struct json_scan s;

		memset(deep, '[', (size_t)n);
		memset(deep + n, ']', (size_t)n);
		json_scan_init(&s, deep, (size_t)n * 2);
		is_int(json_scan_skip(&s), n == JSON_SCAN_DEPTH ? 0 : -EINVAL, "%d lists in lists",
		       n);
	}
}

/* ---- memory that is given back ---- */

enum { READERS = 3, PART = 1 << 20, PARTS = 80, MARK = 4000 };

/* [2] a and b, which share a page of mapped memory; together PARTS parts */
static const struct tensor *both;
static struct safetensors *forgetting;

/* Returns a byte of the two tensors; `at` counts from the beginning of a through b. */
static uint8_t byte_at(uint64_t at)
{
	const uint8_t *a = both[0].data, *b = both[1].data;

	return at < both[0].bytes ? a[at] : b[at - both[0].bytes];
}

/* Adds up the bytes of every part, and forgets one half of the part and then the other. *arg: a bool, set to false if a
 * sum is wrong. */
static void *read_all(void *arg)
{
	bool *right = arg;

	for (uint64_t i = 0; i < PARTS; i++) {
		const uint8_t *from = i < PARTS / 2 ? both[0].data : both[1].data;
		uint64_t first = (i % (PARTS / 2)) * PART;
		uint64_t bytes = i < PARTS / 2 ? both[0].bytes : both[1].bytes;
		uint64_t end = (i + 1) % (PARTS / 2) ? first + PART : bytes, sum = 0;

		for (uint64_t k = first; k < end; k++)
			sum += from[k];
		*right = *right && sum == (i < PARTS / 2 ? 1u : 2u);
		safetensors_forget(forgetting, from + first, PART / 2);
		safetensors_forget(forgetting, from + first + PART / 2, end - first - PART / 2);
	}
	return NULL;
}

/* Returns how many bytes of mapped files are in this process's memory. */
static uint64_t resident_files(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssFile: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return (uint64_t)kib * 1024;
}

TEST(forget)
{
	const uint64_t bytes = (uint64_t)PARTS * PART, middle = bytes / 2 - 77;
	char header[256], file[512];
	size_t begin, n;
	struct err e = {0};
	bool right[READERS];
	pthread_t threads[READERS];
	uint64_t before;
	FILE *f;

	mkdir(scratch_path("large"), 0777);
	snprintf(header, sizeof(header),
		 "{'a':{'dtype':'U8','shape':[%llu],'data_offsets':[0,%llu]},"
		 "'b':{'dtype':'U8','shape':[%llu],'data_offsets':[%llu,%llu]}}",
		 (unsigned long long)middle, (unsigned long long)middle,
		 (unsigned long long)(bytes - middle), (unsigned long long)middle,
		 (unsigned long long)bytes);
	begin = make_file(file, header, 0);
	scratch_write("large/a.safetensors", file, begin);
	f = fopen(scratch_path("large/a.safetensors"), "r+");
	check(f && ftruncate(fileno(f), (off_t)(begin + bytes)) == 0);
	/* Each part of a has one byte 1, and each part of b one byte 2. All other bytes are 0. */
	for (uint64_t i = 0; i < PARTS; i++) {
		uint64_t at = (i % (PARTS / 2)) * PART + MARK + (i < PARTS / 2 ? 0 : middle);

		check(fseek(f, (long)(begin + at), SEEK_SET) == 0 &&
		      fputc(i < PARTS / 2 ? 1 : 2, f) != EOF);
	}
	check(fclose(f) == 0);
	before = resident_files();
	if (!ok(safetensors_open(scratch_path("large"), &forgetting, &e) == 0, "opens %s", e.text))
		return;
	both = safetensors_list(forgetting, &n);
	check(n == 2 && both[0].bytes == middle);
	for (int i = 0; i < READERS; i++) {
		right[i] = true;
		check(pthread_create(&threads[i], NULL, read_all, &right[i]) == 0);
	}
	for (int i = 0; i < READERS; i++)
		check(pthread_join(threads[i], NULL) == 0 && right[i]);
	ok_all("threads read two tensors, and give their memory back meanwhile");
	ok(resident_files() < before + (40 << 20), "the memory is less than half of the file");
	ok(byte_at(MARK) == 1 && byte_at(middle - 1) == 0 && byte_at(middle) == 0 &&
		   byte_at(middle + MARK) == 2,
	   "what was given back can be read again");
	safetensors_close(forgetting);
}

TEST_MAIN()
