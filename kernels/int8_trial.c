#include "kernels/int8_trial.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "kernels/cl_error.h"
#include "kernels/huge_pages.h"
#include "kernels/int8.h"
#include "kernels/probe.h"

enum {
	/* bytes of the buffer for all matrices, more than most caches hold; one large matrix makes the buffer
	 * grow */
	WEIGHT_BYTES = 256 << 20,
	MATRICES_MAX = 1024,
	PATTERN_BYTES = 128, /* the longest pattern of clEnqueueFillBuffer */
};

/* A buffer that is replaced by a larger one when it is too small. */
struct store {
	cl_mem mem;
	uint64_t bytes;
};

struct int8_trial {
	struct kernels *kernels;
	cl_context context;
	cl_command_queue queue;
	uint32_t group, N, K; /* group and sizes of the matrices */
	uint64_t alignment;
	bool cpu;
	struct store weights, x, q, out;
	cl_mem matrices[MATRICES_MAX]; /* regions of the buffer `weights` */
	uint32_t n_matrices, next;
};

int int8_trial_open(struct kernels *k, cl_context context, cl_command_queue queue,
		    const char *cache_dir, uint32_t group, struct int8_trial **ret, struct err *e)
{
	struct int8_trial *t;
	cl_device_id device = NULL;
	cl_uint bits = 0;
	int r = kernels_open_int8(k, cache_dir, group, e);

	if (r < 0)
		return r;
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(e);
	clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(device), &device, NULL);
	clGetDeviceInfo(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(bits), &bits, NULL);
	*t = (struct int8_trial){
		.kernels = k,
		.context = context,
		.queue = queue,
		.group = group,
		.alignment = MAX(bits / 8, 4u),
		.cpu = probe_is_cpu(device),
	};
	*ret = t;
	return 0;
}

static void release_matrices(struct int8_trial *t)
{
	while (t->n_matrices)
		clReleaseMemObject(t->matrices[--t->n_matrices]);
	t->next = 0;
}

static void release(struct store *s)
{
	if (s->mem)
		clReleaseMemObject(s->mem);
	*s = (struct store){0};
}

void int8_trial_close(struct int8_trial *t)
{
	if (!t)
		return;
	clFinish(t->queue);
	release_matrices(t);
	release(&t->weights);
	release(&t->x);
	release(&t->q);
	release(&t->out);
	free(t);
}

/* Queues the filling of a buffer with random words. Read as a float or as two bf16, a word has magnitudes between 0.007
 * and 0.5. Products read scales and activations from such buffers, and subnormal numbers would be slow. */
static cl_int fill(struct int8_trial *t, const struct store *s)
{
	uint32_t words[PATTERN_BYTES / 4], random = 1;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		random = random * 1664525 + 1013904223;
		words[i] = ((random >> 8 | random << 24) & 0x82ff82ff) | 0x3c003c00;
	}
	return clEnqueueFillBuffer(t->queue, s->mem, words, sizeof(words), 0,
				   ROUND_UP(s->bytes, PATTERN_BYTES), 0, NULL, NULL);
}

/* Replaces a buffer of less than `bytes` bytes by a new one, and fills that. Does nothing if the buffer is large
 * enough. */
static int grow(struct int8_trial *t, struct store *s, uint64_t bytes, struct err *e)
{
	cl_int code;

	if (bytes <= s->bytes)
		return 0;
	release(s);
	s->mem = clCreateBuffer(t->context, CL_MEM_READ_WRITE, ROUND_UP(bytes, PATTERN_BYTES), NULL,
				&code);
	if (code != CL_SUCCESS) {
		s->mem = NULL;
		return err_set(e, ENOMEM, "the device has no buffer of %.0f MB: %s",
			       (double)bytes / 1e6, cl_error_name(code));
	}
	s->bytes = bytes;
	if (t->cpu)
		huge_pages_ask(t->queue, s->mem, bytes);
	return cl_error(e, fill(t, s), "filling the int8 products' buffers");
}

/* Cuts t->weights into as many matrices [N, K] as it has room for, at most MATRICES_MAX, one behind the other. Grows it
 * first if it has no room for one. */
static int cut_matrices(struct int8_trial *t, uint32_t N, uint32_t K, struct err *e)
{
	uint64_t bytes = int8_matrix_bytes(N, K, t->group), apart;
	cl_int code = CL_SUCCESS;
	int r;

	if (!bytes)
		return err_set(e, ENOMEM, "a matrix of %u x %u is too large", N, K);
	release_matrices(t);
	r = grow(t, &t->weights, MAX(bytes, (uint64_t)WEIGHT_BYTES), e);
	if (r < 0)
		return r;
	apart = ROUND_UP(bytes, t->alignment);
	for (uint64_t at = 0;
	     code == CL_SUCCESS && t->n_matrices < MATRICES_MAX && at + bytes <= t->weights.bytes;
	     at += apart) {
		cl_buffer_region region = {at, bytes};
		cl_mem m = clCreateSubBuffer(t->weights.mem, CL_MEM_READ_ONLY,
					     CL_BUFFER_CREATE_TYPE_REGION, &region, &code);

		if (code == CL_SUCCESS)
			t->matrices[t->n_matrices++] = m;
	}
	t->N = N;
	t->K = K;
	return cl_error(e, code, "cutting the int8 products' weights");
}

int int8_trial_run(struct int8_trial *t, uint32_t M, uint32_t N, uint32_t K, uint32_t launches,
		   struct err *e)
{
	uint32_t words = int8_row_words(K, t->group);
	int r = cl_error(e, clFinish(t->queue), "an int8 product");

	if (r == 0 && (!t->n_matrices || t->N != N || t->K != K))
		r = cut_matrices(t, N, K, e);
	if (r == 0)
		r = grow(t, &t->x, (uint64_t)M * K * 4, e);
	if (r == 0)
		r = grow(t, &t->q, (uint64_t)M * words * 4, e);
	if (r == 0)
		r = grow(t, &t->out, (uint64_t)M * N * 4, e);
	for (uint32_t i = 0; r == 0 && i < launches; i++) {
		kernel_quantize_rows(t->kernels, false, t->x.mem, K, t->q.mem, words, M, K);
		kernel_gemm_int8_store(t->kernels, t->q.mem, words, t->matrices[t->next],
				       t->out.mem, N, M, N, K);
		t->next = (t->next + 1) % t->n_matrices;
	}
	return r < 0 ? r : kernels_status(t->kernels, e);
}
