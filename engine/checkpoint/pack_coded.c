/* Coded matrices (kernels/coded.h). The size of a coded panel is known only after it was coded, so panels are appended
 * one behind the other, in the order of their parts (struct pack_part); a table at the beginning has the place of each.
 * The buffer is planned for the largest size of every panel. So its end usually stays unwritten, and on a CPU memory
 * that is never written takes no pages of the system. */
#include "engine/checkpoint/pack_internal.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "kernels/cl_error.h"
#include "kernels/coded.h"

/* A matrix that is being coded. Threads code chunks of panels (pack_internal.h) side by side, and append them in the
 * order of their numbers, so that the bytes do not depend on the threads. */
struct coding {
	struct packer *packer;
	struct pack_work work;
	/* if the weights are synthetic: the panels of the only part, in KERNEL_PACK_PAIRS; NULL: rows are read from the
	 * checkpoint */
	const uint16_t *made;
	uint64_t K;   /* columns, padded to 16 */
	uint8_t *out; /* the matrix, mapped */
	pthread_cond_t turn;
	/* chunks that have their place, and bytes of the matrix that are used; guarded by work.lock */
	uint64_t appended, used;
};

/* Waits until all chunks before this one have their places. Returns the place of this chunk, which has `bytes` bytes,
 * in the matrix. */
static uint64_t take_place(struct coding *g, const struct pack_chunk *c, uint64_t bytes)
{
	uint64_t at;

	pthread_mutex_lock(&g->work.lock);
	while (g->appended < c->number)
		pthread_cond_wait(&g->turn, &g->work.lock);
	at = g->used;
	g->used += bytes;
	g->appended++;
	pthread_cond_broadcast(&g->turn);
	pthread_mutex_unlock(&g->work.lock);
	return at;
}

/* Codes the panels of a chunk into `coded`, one behind the other. ends[i] is the end of panel i there. rows, pairs:
 * work space for one panel each. */
static void code_chunk(struct coding *g, const struct pack_chunk *c, uint16_t *rows,
		       uint16_t *pairs, uint8_t *coded, uint64_t ends[PACK_CHUNK])
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < c->n; i++) {
		const uint16_t *panel = pairs;

		if (g->made)
			panel = g->made + (c->first + i) * g->K * 16;
		else
			pack_read_panel(g->packer, c->part, c->first + i, g->K, true,
					KERNEL_PACK_CODED, rows, pairs);
		at += coded_panel(panel, g->K, coded + at);
		ends[i] = at;
	}
	if (!g->made)
		pack_forget(g->packer, c);
}

static void code_chunks(void *arg)
{
	struct coding *g = arg;
	uint16_t *rows = malloc(16 * g->K * sizeof(*rows));
	uint16_t *pairs = malloc(16 * g->K * sizeof(*pairs));
	uint8_t *coded = malloc(PACK_CHUNK * coded_panel_bound(g->K));
	uint32_t *table = (uint32_t *)(void *)g->out;
	uint64_t ends[PACK_CHUNK], at;
	struct pack_chunk c;

	while (rows && pairs && coded && pack_work_take(&g->work, &c)) {
		code_chunk(g, &c, rows, pairs, coded, ends);
		at = take_place(g, &c, ends[c.n - 1]);
		memcpy(g->out + at, coded, ends[c.n - 1]);
		for (uint64_t i = 0; i < c.n; i++)
			table[c.part->first + (c.first + i) * c.part->stride] =
				(uint32_t)((at + (i ? ends[i - 1] : 0)) / CODED_UNIT);
	}
	free(rows);
	free(pairs);
	free(coded);
}

/* Makes the uncoded panels of a synthetic weight in `stage` by a kernel, and maps them. NULL: it failed (p->error). */
static const uint16_t *make(struct packer *p, const struct weight *w,
			    const struct weight_synthesis *s, cl_mem stage)
{
	cl_int code;
	void *m;

	kernel_synthesize(p->kernels, stage, 0, 1, w->rows, w->cols, s->key, s->scale, s->offset);
	m = clEnqueueMapBuffer(p->queue, stage, CL_TRUE, CL_MAP_READ, 0,
			       KERNEL_LD(w->rows) * KERNEL_LD(w->cols) * 2, 0, NULL, NULL, &code);
	if (code != CL_SUCCESS) {
		cl_error(&p->error, code, "mapping synthetic weights");
		return NULL;
	}
	return m;
}

/* Makes a buffer in which a kernel makes the uncoded panels of synthetic weights, before they are coded. It has room
 * for any one of the parts (struct pack_part). NULL: it failed (p->error). */
static cl_mem new_stage(struct packer *p, const struct pack_part *parts, size_t n_parts)
{
	uint64_t most = 0;
	cl_int code;
	cl_mem stage;

	for (size_t i = 0; i < n_parts; i++) {
		const struct weight *w = parts[i].weights;

		most = MAX(most, KERNEL_LD(w->rows) * KERNEL_LD(w->cols) * 2);
	}
	stage = clCreateBuffer(p->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, most, NULL,
			       &code);
	if (code == CL_SUCCESS)
		return stage;
	cl_error(&p->error, code, "memory for synthetic weights");
	return NULL;
}

/* Codes the panels of n parts and appends them to the matrix. Errors are kept in g->packer->error. */
static void append(struct coding *g, const struct pack_part *parts, size_t n)
{
	uint64_t chunks = 0;

	for (size_t i = 0; i < n; i++) {
		assert(KERNEL_LD(parts[i].weights->cols) == g->K);
		chunks += CEIL_DIV(parts[i].rows, (uint64_t)16 * PACK_CHUNK);
	}
	pack_work_init(&g->work, parts, n);
	g->appended = 0;
	parallel_run(chunks, code_chunks, g);
	pack_work_release(&g->work);
	/* A thread that has no memory takes no chunk. So chunks are left if no thread has memory. */
	if (g->appended < chunks)
		err_no_memory(&g->packer->error);
}

/* Does the work of append for synthetic weights, one part after the other. */
static void append_synthetic(struct coding *g, const struct pack_part *parts, size_t n)
{
	struct packer *p = g->packer;
	cl_mem stage = new_stage(p, parts, n);
	struct weight_synthesis s;

	for (size_t i = 0; i < n && !p->error.code; i++) {
		weights_synthesis(p->weights, parts[i].weights->role, parts[i].layer,
				  parts[i].expert, &s);
		g->made = make(p, parts[i].weights, &s, stage);
		if (!g->made)
			break;
		append(g, &parts[i], 1);
		pack_unmap(p, stage, (void *)(uintptr_t)g->made);
	}
	if (stage)
		clReleaseMemObject(stage);
}

void pack_matrix_coded(struct packer *p, cl_mem buffer, uint64_t panels,
		       const struct pack_part *parts, size_t n_parts)
{
	struct coding g = {.packer = p, .used = coded_table_bytes(panels)};
	uint64_t cols, plain, most;
	struct weight_synthesis s;

	if (p->error.code || !n_parts)
		return;
	cols = parts[0].weights->cols;
	g.K = KERNEL_LD(cols);
	plain = panels * 16 * g.K * sizeof(uint16_t);
	most = pack_matrix_bytes(p->kernels, panels, cols);
	g.out = pack_map_part(p, buffer, 0, most, false);
	if (!g.out)
		return;
	pthread_cond_init(&g.turn, NULL);
	if (weights_synthesis(p->weights, parts[0].weights->role, parts[0].layer, 0, &s))
		append_synthetic(&g, parts, n_parts);
	else
		append(&g, parts, n_parts);
	pthread_cond_destroy(&g.turn);
	((uint32_t *)(void *)g.out)[panels] = (uint32_t)(g.used / CODED_UNIT);
	p->saved += most - g.used;
	p->plain += MAX(plain, g.used) - g.used;
	pack_unmap(p, buffer, g.out);
}
