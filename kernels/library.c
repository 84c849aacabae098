#include "kernels/library.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/macros.h"
#include "kernels/cache_file.h"
#include "kernels/cl_error.h"
#include "kernels/ptx.h"
#include "kernels/sources.h"

enum {
	SOURCE_MAX = 4 << 20,
	OPTIONS_MAX = 4096,
	INCLUDE_DEPTH_MAX = 8,
	LOCK_SECONDS = 300,
	LOCK_TRIES = 20, /* tries a second */
	TEMPORARY_SECONDS = 24 * 60 * 60,
};

const char *library_text(const char *variant, const char *file)
{
	char name[128];

	snprintf(name, sizeof(name), "%s/%s", variant, file);
	for (const struct kernel_source *s = kernel_sources; s->name; s++)
		if (!strcmp(s->name, name) || !strcmp(s->name, file))
			return s->text;
	return strcmp(variant, "generic") ? library_text("generic", file) : NULL;
}

/* Appends a variant's source of a file to out, with its includes inlined. */
static int inline_source(const char *variant, const char *file, int depth, struct buf *out,
			 struct err *e)
{
	const char *text = library_text(variant, file), *line, *end;

	if (!text)
		return err_set(e, ENOENT, "kernel source %s is not in this binary", file);
	if (depth > INCLUDE_DEPTH_MAX)
		return err_set(e, ELOOP, "kernel source %s includes itself", file);
	for (line = text; *line; line = end) {
		char name[128];

		end = strchr(line, '\n');
		end = end ? end + 1 : line + strlen(line);
		if (sscanf(line, "#include \"%127[^\"]\"", name) == 1) {
			int r = inline_source(variant, name, depth + 1, out, e);

			if (r < 0)
				return r;
		} else {
			buf_append(out, line, (size_t)(end - line));
		}
	}
	return out->failed ? err_set(e, ENOMEM, "kernel source %s: out of memory", file) : 0;
}

static cl_program program_from_binary(struct library *l, const char *path, bool again,
				      const char *options)
{
	cl_program program = NULL;
	cl_int status, code;
	size_t bytes;
	void *data = cache_file_read(path, again, &bytes);
	const unsigned char *binary = data;

	if (!data)
		return NULL;
	program = clCreateProgramWithBinary(l->context, 1, &l->device, &bytes, &binary, &status,
					    &code);
	if (code == CL_SUCCESS)
		code = clBuildProgram(program, 1, &l->device, options, NULL, NULL);
	free(data);
	if (code != CL_SUCCESS) {
		log_info("program cache: %s is not accepted (%s)", path, cl_error_name(code));
		if (program)
			clReleaseProgram(program);
		return NULL;
	}
	return program;
}

/* Returns the program's binary, for the caller to free. NULL: *code says why there is none. */
static void *binary_of(cl_program program, size_t *ret_bytes, cl_int *code)
{
	unsigned char *binary = NULL;

	*ret_bytes = 0;
	*code = clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(*ret_bytes), ret_bytes,
				 NULL);
	if (*code == CL_SUCCESS && !*ret_bytes)
		*code = CL_INVALID_PROGRAM_EXECUTABLE;
	if (*code == CL_SUCCESS && !(binary = malloc(*ret_bytes)))
		*code = CL_OUT_OF_HOST_MEMORY;
	if (*code == CL_SUCCESS)
		*code = clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary,
					 NULL);
	if (*code == CL_SUCCESS)
		return binary;
	free(binary);
	return NULL;
}

static void save_program(cl_program program, const char *path)
{
	size_t bytes;
	cl_int code;
	void *binary = binary_of(program, &bytes, &code);

	if (binary)
		cache_file_write(path, binary, bytes);
	free(binary);
}

/* Checks that a file of 64 KiB can be written in the cache. Returns 0, or -errno if not. */
static int probe_cache(const char *dir)
{
	static const char zeros[64 << 10];
	char path[4096];
	ssize_t n;
	int fd, r;

	snprintf(path, sizeof(path), "%s/probe.clbin.XXXXXX", dir);
	fd = mkstemp(path);
	if (fd < 0)
		return -errno;
	n = write(fd, zeros, sizeof(zeros));
	r = n == (ssize_t)sizeof(zeros) ? 0 : n < 0 ? -errno : -ENOSPC;
	close(fd);
	unlink(path);
	return r;
}

/* Returns whether a name is that of a temporary file of cache_file_write or probe_cache, or of the empty file that each
 * process leaves in PoCL's cache. */
static bool is_temporary(const char *name)
{
	return !fnmatch("*.clbin.??????", name, 0) || !fnmatch("tempfile_??????", name, 0);
}

void library_clean(const char *dir)
{
	time_t now = time(NULL);
	struct dirent *entry;
	struct stat st;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d)))
		if (is_temporary(entry->d_name) &&
		    fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_mtime < now - TEMPORARY_SECONDS)
			unlinkat(dirfd(d), entry->d_name, 0);
	if (d)
		closedir(d);
}

/* Returns whether the code of a build says that the compiler refuses the program, and not that it could not do its
 * work. */
static bool is_refusal(cl_int code)
{
	return code == CL_BUILD_PROGRAM_FAILURE || code == CL_INVALID_BUILD_OPTIONS ||
	       code == CL_INVALID_BINARY;
}

bool library_is_pocl(cl_device_id device)
{
	char version[256] = "";

	clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof(version) - 1, version, NULL);
	return strstr(version, "PoCL") != NULL;
}

static int build_error(const struct library *l, cl_program program, const char *file, cl_int code,
		       struct err *e)
{
	const char *pocl = library_is_pocl(l->device) ? getenv("POCL_CACHE_DIR") : NULL;
	const char *caches[] = {l->cache_dir, pocl};
	size_t bytes = 0;
	char *text;
	struct err why;
	int r;

	/* PoCL's build log does not report a failure to write to its own cache. */
	for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
		r = caches[i] ? probe_cache(caches[i]) : 0;
		if (r < 0)
			return err_set(e, EIO,
				       "kernel program %s does not build: the program cache %s "
				       "cannot be written: %s",
				       file, caches[i], strerror(-r));
	}
	clGetProgramBuildInfo(program, l->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
	text = calloc(1, bytes + 1);
	if (text)
		clGetProgramBuildInfo(program, l->device, CL_PROGRAM_BUILD_LOG, bytes, text, NULL);
	r = is_refusal(code) ? -ENOEXEC : cl_error(&why, code, file);
	err_set(e, -r, "kernel program %s does not build (%s): %.300s", file, cl_error_name(code),
		text ? text : "");
	log_debug("kernel program %s: %s", file, text ? text : "");
	free(text);
	return r;
}

/* Makes a program of PTX. After an error *ret is unchanged. */
static int build_ptx(const struct library *l, const char *file, const char *options,
		     const char *text, size_t bytes, cl_program *ret, struct err *e)
{
	cl_int status, code;
	cl_program program =
		clCreateProgramWithBinary(l->context, 1, &l->device, &bytes,
					  (const unsigned char **)&text, &status, &code);
	int r;

	if (code != CL_SUCCESS)
		return cl_error(e, code, file);
	code = clBuildProgram(program, 1, &l->device, options, NULL, NULL);
	if (code != CL_SUCCESS) {
		r = build_error(l, program, file, code, e);
		clReleaseProgram(program);
		return r;
	}
	*ret = program;
	return 0;
}

/* NVIDIA's compiler does not take all instructions from source. Those that it does not take stand as comments in the
 * PTX of *program (ptx.h). Compiles that PTX with the comments made instructions, releases *program and sets it to the
 * new program. Without such comments, and after an error, *program is unchanged. */
static int reveal(const struct library *l, const char *file, const char *options,
		  cl_program *program, struct err *e)
{
	cl_program revealed = NULL;
	size_t bytes, n = 0;
	cl_int code;
	char *text = NULL, *ptx = binary_of(*program, &bytes, &code);
	int r;

	if (!ptx)
		return cl_error(e, code, file);
	r = ptx_reveal(ptx, bytes, &text, &n);
	free(ptx);
	if (r < 0)
		err_set(e, -r, "kernel program %s: %s", file,
			r == -ENOMEM ? "out of memory" : "it has instructions of sm_90a alone");
	else if (text)
		r = build_ptx(l, file, options, text, n, &revealed, e);
	free(text);
	if (!revealed)
		return r;
	clReleaseProgram(*program);
	*program = revealed;
	return 0;
}

/* Waits until no other process compiles the program whose cache file is `path`, but LOCK_SECONDS at most, since that
 * process may be stopped. Returns a descriptor; to close it lets other processes compile the program. -1: the program
 * is not locked, so two processes may compile it. */
static int lock_program(const struct library *l, const char *path, const char *file)
{
	const struct timespec pause = {.tv_nsec = 1000000000 / LOCK_TRIES};
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	uint64_t hash = 0;
	char name[4096];
	int fd;

	sscanf(strrchr(path, '/') + 1, "%15" SCNx64, &hash);
	lock.l_start = (off_t)hash;
	snprintf(name, sizeof(name), "%s/lock", l->cache_dir);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	for (int i = 0; fd >= 0 && i < LOCK_SECONDS * LOCK_TRIES; i++) {
		if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
			return fd;
		if (errno != EAGAIN && errno != EACCES)
			break;
		if (!i)
			log_info("program cache: another process compiles %s: waiting for it",
				 file);
		nanosleep(&pause, NULL);
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool is_word(char c)
{
	return c == '_' || isalnum((unsigned char)c);
}

/* Returns whether a text has `name`, which has len characters, as a whole word. */
static bool names(const char *text, const char *name, size_t len)
{
	for (const char *p = text; (p = memmem(p, strlen(p), name, len)); p += len)
		if ((p == text || !is_word(p[-1])) && !is_word(p[len]))
			return true;
	return false;
}

/* Appends the offered options to out, but no " -DNAME=VALUE" whose NAME is not in the source. */
static void take_options(const char *offered, const char *source, struct buf *out)
{
	for (const char *p = offered; *p;) {
		size_t len = 1 + strcspn(p + 1, " ");
		bool macro = !strncmp(p, " -D", 3);

		if (!macro || names(source, p + 3, strcspn(p + 3, "= ")))
			buf_append(out, p, len);
		p += len;
	}
}

/* Compiles a program. */
static int build(struct library *l, const char *file, const struct buf *source, const char *options,
		 cl_program *ret, struct err *e)
{
	const char *text = source->data;
	char quiet[OPTIONS_MAX + 8];
	cl_int code;
	cl_program program = clCreateProgramWithSource(l->context, 1, &text, &source->len, &code);
	int r = 0;

	if (code != CL_SUCCESS)
		return cl_error(e, code, file);
	/* PoCL writes the number of warnings to standard error. */
	snprintf(quiet, sizeof(quiet), "%s -w", options);
	code = clBuildProgram(program, 1, &l->device, quiet, NULL, NULL);
	if (code != CL_SUCCESS)
		r = build_error(l, program, file, code, e);
	else if (strstr(text, PTX_HIDDEN))
		r = reveal(l, file, options, &program, e);
	if (r < 0) {
		clReleaseProgram(program);
		return r;
	}
	l->built++;
	*ret = program;
	return 0;
}

/* Makes a program from its cache file, or else compiles it and writes that file. */
static int load_or_build(struct library *l, const char *file, const struct buf *source,
			 const char *options, cl_program *ret, struct err *e)
{
	cl_program program;
	char path[CACHE_PATH_MAX];
	int lock = -1, r = 0;

	if (!l->cache_dir)
		return build(l, file, source, options, ret, e);
	cache_file_path(l->cache_dir, l->device, source->data, options, path);
	program = program_from_binary(l, path, false, options);
	if (!program) {
		lock = lock_program(l, path, file);
		/* Another process may have compiled the program meanwhile. */
		program = lock < 0 ? NULL : program_from_binary(l, path, true, options);
	}
	if (program) {
		l->loaded++;
	} else {
		r = build(l, file, source, options, &program, e);
		if (r == 0)
			save_program(program, path);
	}
	if (lock >= 0)
		close(lock);
	if (r == 0)
		*ret = program;
	return r;
}

int library_source(const char *variant, const char *file, struct buf *out, struct err *e)
{
	return inline_source(variant, file, 0, out, e);
}

int library_program(struct library *l, const char *file, const char *offered, cl_program *ret,
		    struct err *e)
{
	struct buf source, taken;
	int r;

	buf_init(&source, SOURCE_MAX);
	buf_init(&taken, OPTIONS_MAX);
	r = library_source(l->variant, file, &source, e);
	if (r == 0) {
		take_options(offered, buf_str(&source), &taken);
		if (taken.failed)
			r = err_set(e, ENOMEM, "options of kernel source %s: out of memory", file);
	}
	if (r == 0)
		r = load_or_build(l, file, &source, buf_str(&taken), ret, e);
	buf_release(&source);
	buf_release(&taken);
	return r;
}
