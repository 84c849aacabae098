/* Weights are hashed in chunks by a few threads of low priority. The hash of a file is the hash of its length and of
 * its chunks' hashes. The memo is a file with hashes computed before. A line of it is about one file of weights:
 *
 *     <hash, 64 hex> <bytes> <mtime, ns> <ctime, ns> <inode> <checksum of all the rest, 16 hex> <path> */
#include "engine/cache_identity.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/families/family.h"
#include "kernels/sources.h"

/* Raise this number when the bytes of an item (engine_read_item) get another meaning, or when the host computes in
 * another way the numbers that decide bits (checkpoint/pack.c). Items that older builds have stored are then not
 * found. */
#define LAYOUT_VERSION 4

enum {
	DIGEST = 32,
	CHUNK_BYTES = 64 << 20,
	READ_BYTES = 1 << 20,
	THREADS_MAX = 4,
	THREAD_NICE = 10,
	FILES_MAX = 16384,
	MEMO_MAX = 16 << 20,
	MEMO_LINES_MAX = 4096, /* the most lines about other files that stay in the memo */
};

/* ---- a hash of fields ---- */

struct digest {
	gnutls_hash_hd_t h;
	bool failed;
};

static void add(struct digest *d, const void *data, size_t len)
{
	if (!d->failed && gnutls_hash(d->h, data, len) < 0)
		d->failed = true;
}

static void add_number(struct digest *d, uint64_t v)
{
	v = htole64(v);
	add(d, &v, sizeof(v));
}

static void add_float(struct digest *d, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	add_number(d, bits);
}

/* Hashes a text with its length, so that ("ab", "c") and ("a", "bc") differ. */
static void add_text(struct digest *d, const char *text)
{
	add_number(d, strlen(text));
	add(d, text, strlen(text));
}

static int begin(struct digest *d, struct err *e)
{
	*d = (struct digest){0};
	return gnutls_hash_init(&d->h, GNUTLS_DIG_SHA256) < 0
		       ? err_set(e, EFAULT, "cannot compute a hash")
		       : 0;
}

static int end(struct digest *d, uint8_t ret[DIGEST], struct err *e)
{
	uint8_t out[DIGEST];

	gnutls_hash_deinit(d->h, out);
	if (d->failed)
		return err_set(e, EFAULT, "cannot compute a hash");
	memcpy(ret, out, DIGEST);
	return 0;
}

/* ---- one file's bytes ---- */

struct hashing {
	int fd;
	uint64_t size, n_chunks;
	uint8_t (*digests)[DIGEST]; /* [n_chunks] */
	atomic_uint_fast64_t next;
	atomic_int error; /* an error of one of the threads, as negative errno; 0: none */
	const atomic_bool *cancel;
};

static int hash_chunk(struct hashing *g, uint64_t i, char *buffer, gnutls_hash_hd_t h)
{
	uint64_t at = i * CHUNK_BYTES, stop = MIN(at + CHUNK_BYTES, g->size);

	while (at < stop) {
		ssize_t n = pread(g->fd, buffer, MIN(stop - at, (uint64_t)READ_BYTES), (off_t)at);

		if (g->cancel && atomic_load(g->cancel))
			return -ECANCELED;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE; /* the file became shorter */
		if (gnutls_hash(h, buffer, (size_t)n) < 0)
			return -EFAULT;
		at += (uint64_t)n;
	}
	gnutls_hash_output(h, g->digests[i]);
	return 0;
}

static void *hash_chunks(void *arg)
{
	struct hashing *g = arg;
	char *buffer = malloc(READ_BYTES);
	gnutls_hash_hd_t h = NULL;
	uint64_t i;
	int r = 0;

	pthread_setname_np(pthread_self(), "cache-hash");
	setpriority(PRIO_PROCESS, (id_t)gettid(), THREAD_NICE);
	if (!buffer || gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
		r = -ENOMEM;
	while (r == 0 && !atomic_load(&g->error) &&
	       (i = atomic_fetch_add(&g->next, 1)) < g->n_chunks)
		r = hash_chunk(g, i, buffer, h);
	if (r < 0)
		atomic_store(&g->error, r);
	if (h)
		gnutls_hash_deinit(h, NULL);
	free(buffer);
	return NULL;
}

static size_t thread_count(uint64_t n_chunks)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = cpus < 2 ? 1 : (size_t)cpus / 2;

	n = MIN(n, (size_t)THREADS_MAX);
	return MIN((uint64_t)n, MAX(n_chunks, UINT64_C(1)));
}

static int run_threads(struct hashing *g)
{
	pthread_t threads[THREADS_MAX];
	size_t n = thread_count(g->n_chunks), started = 0;
	int r = 0;

	while (started < n && (r = -pthread_create(&threads[started], NULL, hash_chunks, g)) == 0)
		started++;
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return started ? atomic_load(&g->error) : r;
}

static int hash_file(int fd, const char *shown, uint64_t size, const atomic_bool *cancel,
		     uint8_t ret[DIGEST], struct err *e)
{
	struct hashing g = {.fd = fd,
			    .size = size,
			    .n_chunks = CEIL_DIV(size, (uint64_t)CHUNK_BYTES),
			    .cancel = cancel};
	struct digest d;
	int r;

	g.digests = calloc(g.n_chunks + 1, sizeof(*g.digests));
	if (!g.digests)
		return err_set(e, ENOMEM, "%s: out of memory", shown);
	r = run_threads(&g);
	if (r < 0)
		r = err_set(e, -r, "%s: cannot be hashed: %s", shown, strerror(-r));
	if (r == 0)
		r = begin(&d, e);
	if (r == 0) {
		add_number(&d, size);
		add(&d, g.digests, g.n_chunks * DIGEST);
		r = end(&d, ret, e);
	}
	free(g.digests);
	return r;
}

/* ---- the memo ---- */

struct weight_file {
	char *path;	  /* absolute */
	const char *name; /* the name inside the checkpoint: the end of path */
	uint64_t size, mtime_ns, ctime_ns, inode;
	uint8_t digest[DIGEST];
};

static void hex(const uint8_t *bytes, size_t n, char *ret)
{
	for (size_t i = 0; i < n; i++)
		snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

/* Writes the memo's line about a file, without the newline at its end. False: the path has a newline, the line does not
 * fit, or a hash failed. */
static bool memo_line(const struct weight_file *f, char *ret, size_t size)
{
	char digest[2 * DIGEST + 1], fields[2 * DIGEST + 128], sum[17];
	uint8_t check[DIGEST];
	struct digest d;
	int n;

	if (strchr(f->path, '\n') || begin(&d, NULL) < 0)
		return false;
	hex(f->digest, DIGEST, digest);
	snprintf(fields, sizeof(fields), "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, digest,
		 f->size, f->mtime_ns, f->ctime_ns, f->inode);
	add_text(&d, fields);
	add_text(&d, f->path);
	if (end(&d, check, NULL) < 0)
		return false;
	hex(check, 8, sum);
	n = snprintf(ret, size, "%s %s %s", fields, sum, f->path);
	return n > 0 && (size_t)n < size;
}

static bool parse_digest(const char *text, uint8_t ret[DIGEST])
{
	for (size_t i = 0; i < DIGEST; i++, text += 2)
		if (strspn(text, "0123456789abcdef") < 2 || sscanf(text, "%2hhx", &ret[i]) != 1)
			return false;
	return true;
}

/* Returns true, and fills in f->digest, if the line is about file f with its present size, times and inode. A damaged
 * line matches no file. */
static bool memo_matches(const char *line, struct weight_file *f)
{
	char want[PATH_MAX + 256];
	struct weight_file g = *f;

	if (!parse_digest(line, g.digest) || !memo_line(&g, want, sizeof(want)) ||
	    strcmp(line, want))
		return false;
	*f = g;
	return true;
}

static bool memo_find(struct buf *memo, struct weight_file *f)
{
	char *line = memo->data, *stop;

	for (; line && *line; line = stop + 1) {
		bool found;

		stop = strchr(line, '\n');
		if (!stop)
			return false;
		*stop = 0;
		found = memo_matches(line, f);
		*stop = '\n';
		if (found)
			return true;
	}
	return false;
}

/* Writes the memo: the lines of the n files, as far as memo_line can write them, then at most MEMO_LINES_MAX lines of
 * the old memo that are about other paths. If the memo cannot be written, only the log says so. */
static void memo_write(const char *path, const struct buf *old, const struct weight_file *files,
		       size_t n)
{
	char line[PATH_MAX + 256];
	const char *at = old->len ? old->data : "", *stop;
	size_t lines = 0;
	struct buf out;
	struct err e;

	buf_init(&out, MEMO_MAX);
	for (size_t i = 0; i < n; i++)
		if (memo_line(&files[i], line, sizeof(line)))
			buf_printf(&out, "%s\n", line);
	for (; (stop = strchr(at, '\n')) && lines < MEMO_LINES_MAX; at = stop + 1) {
		bool ours = false;

		for (size_t i = 0; i < n && !ours; i++) {
			size_t len = strlen(files[i].path);

			ours = (size_t)(stop - at) > len &&
			       at[stop - at - (ptrdiff_t)len - 1] == ' ' &&
			       !memcmp(stop - len, files[i].path, len);
		}
		if (!ours) {
			buf_append(&out, at, (size_t)(stop - at) + 1);
			lines++;
		}
	}
	if (out.failed || file_write(path, out.data, out.len, &e) < 0 || chmod(path, 0600) < 0)
		log_info("cache: %s: the hashes of the weights cannot be kept", path);
	buf_release(&out);
}

/* ---- a model's files ---- */

struct weight_files {
	struct weight_file *v;
	size_t n, cap;
};

static void free_files(struct weight_files *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].path);
	free(l->v);
}

static int by_name(const void *a, const void *b)
{
	const struct weight_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int add_file(void *user, const char *path, const char *name, struct err *e)
{
	struct weight_files *l = user;
	char *copy;

	if (l->n == FILES_MAX)
		return err_set(e, EINVAL, "%s: more than %d files", path, FILES_MAX);
	copy = strdup(path);
	if (!copy || !array_grow(l->v, l->cap, l->n + 1)) {
		free(copy);
		return err_set(e, ENOMEM, "%s: out of memory", path);
	}
	l->v[l->n++] =
		(struct weight_file){.path = copy, .name = copy + strlen(path) - strlen(name)};
	return 0;
}

static int check_times(const struct weight_file *f, uint64_t opened_ns, struct err *e)
{
	struct stat link;
	uint64_t latest = f->ctime_ns;

	if (lstat(f->path, &link) == 0)
		latest = MAX(latest, clock_ns(link.st_ctim));
	if (opened_ns && latest > opened_ns)
		return err_set(e, ESTALE, "%s was changed while the model was loaded", f->path);
	return 0;
}

/* Fills in size, times, inode and digest of one file. *ret_known: the memo has the digest; otherwise the file is
 * hashed. */
static int digest_file(struct weight_file *f, struct buf *memo, uint64_t opened_ns,
		       const atomic_bool *cancel, bool *ret_known, struct err *e)
{
	struct stat st;
	off_t size;
	int fd = file_open(AT_FDCWD, f->path, f->path, &size, e), r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0) {
		r = err_set(e, errno, "%s: cannot stat: %s", f->path, strerror(errno));
		close(fd);
		return r;
	}
	f->size = (uint64_t)st.st_size;
	f->mtime_ns = clock_ns(st.st_mtim);
	f->ctime_ns = clock_ns(st.st_ctim);
	f->inode = st.st_ino;
	r = check_times(f, opened_ns, e);
	*ret_known = r == 0 && memo_find(memo, f);
	if (r == 0 && !*ret_known)
		r = hash_file(fd, f->path, f->size, cancel, f->digest, e);
	/* If the file was written meanwhile, f->digest is not the hash of its present bytes. */
	if (r == 0 && (fstat(fd, &st) < 0 || clock_ns(st.st_ctim) != f->ctime_ns))
		r = err_set(e, ESTALE, "%s was changed while it was hashed", f->path);
	close(fd);
	return r;
}

static void read_memo(const char *path, struct buf *memo)
{
	struct err e;

	buf_init(memo, MEMO_MAX);
	if (path && file_read(AT_FDCWD, path, path, memo, &e) < 0)
		buf_reset(memo);
	/* The memo is read as a C string, so it ends before its first 0 byte. */
	if (memo->len)
		memo->len = strlen(memo->data);
}

static int digest_files(struct weight_files *l, const char *memo_path, uint64_t opened_ns,
			const atomic_bool *cancel, struct cache_identity *ret, struct err *e)
{
	uint64_t start = clock_now_ns(), bytes = 0;
	struct digest d;
	struct buf memo;
	int r = 0;

	read_memo(memo_path, &memo);
	for (size_t i = 0; i < l->n && r == 0; i++) {
		bool known = false;

		r = digest_file(&l->v[i], &memo, opened_ns, cancel, &known, e);
		bytes += known ? 0 : l->v[i].size;
	}
	if (r == 0 && bytes) {
		log_info("cache: %.1f MiB of weights hashed in %.1f s", (double)bytes / (1 << 20),
			 (double)(clock_now_ns() - start) / 1e9);
		if (memo_path)
			memo_write(memo_path, &memo, l->v, l->n);
	}
	buf_release(&memo);
	if (r == 0)
		r = begin(&d, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < l->n; i++) {
		add_text(&d, l->v[i].name);
		add(&d, l->v[i].digest, DIGEST);
	}
	return end(&d, ret->bytes, e);
}

/* Computes the hash of the weights alone: the names and bytes of their files. */
static int weights_identity(const char *model_dir, const char *memo, uint64_t opened_ns,
			    const atomic_bool *cancel, struct cache_identity *ret, struct err *e)
{
	struct weight_files files = {0};
	struct checkpoint *k;
	int r = checkpoint_open(model_dir, &k, e);

	if (r < 0)
		return r;
	r = checkpoint_files(k, add_file, &files, e);
	checkpoint_close(k);
	if (r == 0) {
		qsort(files.v, files.n, sizeof(*files.v), by_name);
		r = digest_files(&files, memo, opened_ns, cancel, ret, e);
	}
	free_files(&files);
	return r;
}

/* ---- everything ---- */

/* Hashes the family, the numbers that the forward pass uses, and the kinds of the layers. The other fields, such as end
 * tokens and sampling defaults, decide no bits of pages and states and are left out. */
static void add_config(struct digest *d, const struct model_config *c)
{
	static_assert(sizeof(struct model_config) == 1320,
		      "a new field may decide bits: add it here");
	const uint64_t numbers[] = {
		c->hidden_size,
		c->n_layers,
		c->vocab_size,
		c->tie_word_embeddings,
		c->n_heads,
		c->n_kv_heads,
		c->head_dim,
		c->rotary_dim,
		c->n_key_heads,
		c->n_value_heads,
		c->key_head_dim,
		c->value_head_dim,
		c->conv_kernel,
		c->n_experts,
		c->n_experts_per_token,
		c->expert_size,
		c->shared_expert_size,
		c->mlp_size,
		c->norm_topk_prob,
		c->norm_adds_one,
		c->attention_gate,
		c->tiled_heads,
		c->stores_neg_a,
		c->qk_norm,
		c->qkv_bias,
		c->rope_scaling,
		c->sliding_window,
		c->score_dim,
		c->out_norms,
		c->scaled_embedding,
		c->gelu,
	};

	add_text(d, c->family->name);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		add_number(d, numbers[i]);
	add_float(d, (double)c->rms_norm_eps);
	add_float(d, c->rope_theta);
	add_float(d, c->sliding_theta);
	add_float(d, c->rope_factor);
	add_float(d, c->rope_low_factor);
	add_float(d, c->rope_high_factor);
	add_float(d, c->rope_original_context);
	for (uint32_t i = 0; i < c->n_layers; i++)
		add_number(d, (uint64_t)c->layers[i].mixer << 8 | c->layers[i].mlp);
	if (c->quantised.block_rows || c->quantised.gptq_v2) {
		add_number(d, c->quantised.block_rows);
		add_number(d, c->quantised.block_cols);
		add_number(d, c->quantised.gptq_v2);
	}
}

/* Returns whether programs of the variant may include the source: a source in kernels/ itself (kernels/step.h), in
 * generic/, or in the variant's folder. */
static bool is_used(const char *source, const char *variant)
{
	const char *const folders[] = {"kernels", "generic", variant};

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		size_t n = strlen(folders[i]);

		if (!strncmp(source, folders[i], n) && source[n] == '/')
			return true;
	}
	return false;
}

static void add_kernels(struct digest *d, const char *variant)
{
	add_text(d, variant);
	for (const struct kernel_source *s = kernel_sources; s->name; s++)
		if (is_used(s->name, variant)) {
			add_text(d, s->name);
			add_text(d, s->text);
		}
}

int cache_identity_compute(const struct cache_identity_source *s, const char *memo,
			   const atomic_bool *cancel, struct cache_identity *ret, struct err *e)
{
	struct cache_identity weights = {0};
	struct digest d;
	int r = 0;

	if (!s->synthetic)
		r = weights_identity(s->model_dir, memo, s->opened_ns, cancel, &weights, e);
	if (r == 0)
		r = begin(&d, e);
	if (r < 0)
		return r;
	add_number(&d, LAYOUT_VERSION);
	add_number(&d, s->synthetic);
	if (s->synthetic)
		add_number(&d, s->synthetic_seed);
	else
		add(&d, weights.bytes, sizeof(weights.bytes));
	add_config(&d, &s->engine->model);
	add_number(&d, s->dtype);
	add_number(&d, s->kv_dtype);
	add_number(&d, s->page_tokens);
	add_number(&d, s->engine->types);
	add_text(&d, s->engine->device_name);
	add_text(&d, s->engine->driver);
	add_kernels(&d, s->engine->kernels);
	if (s->engine->other_bits[0])
		add_text(&d, s->engine->other_bits);
	return end(&d, ret->bytes, e);
}
