/* Coded matrices (kernels/coded.h). The size of a coded panel is known only after it was coded, so panels are appended
 * one behind the other, in the order of their parts (struct pack_part); a table at the beginning has the place of each.
 * The buffer is planned for the largest size of every panel. So its end usually stays unwritten, and on a CPU memory
 * that is never written takes no pages of the system. */
#include "engine/checkpoint/pack_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "kernels/cl_error.h"
#include "kernels/coded.h"

/* The number of panels of a batch. Threads code them side by side, each panel into memory of its own. */
enum { BATCH = 256 };

struct batch {
	struct packer *packer;
	const struct pack_part *part;
	/* the part's panels in KERNEL_PACK_PAIRS, if its weight is synthetic; NULL: its rows are read from the
	 * checkpoint */
	const uint16_t *made;
	uint64_t first;	     /* the batch's first panel: its number in the part */
	uint64_t K;	     /* columns, padded to 16 */
	uint8_t *coded;	     /* [BATCH][coded_panel_bound] */
	size_t sizes[BATCH]; /* bytes of each coded panel; 0: out of memory */
};

static void code_one(void *arg, size_t i)
{
	struct batch *b = arg;
	uint64_t K = b->K, panel = b->first + i;
	uint8_t *out = b->coded + i * coded_panel_bound(K);
	uint16_t *rows, *pairs;

	if (b->made) {
		b->sizes[i] = coded_panel(b->made + panel * K * 16, K, out);
		return;
	}
	rows = calloc(16 * K, sizeof(*rows));
	pairs = calloc(16 * K, sizeof(*pairs));
	b->sizes[i] = 0;
	if (rows && pairs) {
		pack_part_rows(b->packer, b->part, panel, K, true, rows);
		pack_panel(rows, K, true, KERNEL_PACK_PAIRS, pairs);
		b->sizes[i] = coded_panel(pairs, K, out);
	}
	free(rows);
	free(pairs);
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

/* Codes the panels of a part (struct pack_part) and appends them to the matrix at m, of which *used bytes are used;
 * *used grows. Returns the number of panels. `stage`: as new_stage made it, for synthetic weights. Errors are kept in
 * p->error. */
static uint64_t append(struct packer *p, const struct pack_part *part, struct batch *b,
		       cl_mem stage, uint8_t *m, uint64_t *used)
{
	const struct weight *w = part->weights;
	uint32_t *table = (uint32_t *)(void *)m;
	uint64_t panels = CEIL_DIV(w->rows, 16u);
	struct weight_synthesis s;

	assert(KERNEL_LD(w->cols) == b->K);
	b->part = part;
	b->made = NULL;
	if (weights_synthesis(p->weights, w->role, part->layer, part->expert, &s))
		b->made = make(p, w, &s, stage);
	for (b->first = 0; b->first < panels && !p->error.code; b->first += BATCH) {
		size_t n = MIN(panels - b->first, (uint64_t)BATCH);

		parallel_for(n, code_one, b);
		for (size_t i = 0; i < n; i++) {
			if (!b->sizes[i]) {
				err_no_memory(&p->error);
				break;
			}
			table[part->first + (b->first + i) * part->stride] =
				(uint32_t)(*used / CODED_UNIT);
			memcpy(m + *used, b->coded + i * coded_panel_bound(b->K), b->sizes[i]);
			*used += b->sizes[i];
		}
	}
	if (b->made)
		pack_unmap(p, stage, (void *)(uintptr_t)b->made);
	return panels;
}

void pack_matrix_coded(struct packer *p, cl_mem buffer, uint64_t panels,
		       const struct pack_part *parts, size_t n_parts)
{
	struct batch b = {.packer = p};
	uint64_t cols, plain, done = 0, used = coded_table_bytes(panels);
	struct weight_synthesis s;
	cl_mem stage = NULL;
	uint8_t *m;

	if (p->error.code || !n_parts)
		return;
	cols = parts[0].weights->cols;
	b.K = KERNEL_LD(cols);
	plain = panels * 16 * b.K * sizeof(uint16_t);
	b.coded = calloc(BATCH, coded_panel_bound(b.K));
	if (!b.coded) {
		err_no_memory(&p->error);
		return;
	}
	if (weights_synthesis(p->weights, parts[0].weights->role, parts[0].layer, 0, &s))
		stage = new_stage(p, parts, n_parts);
	m = pack_map_part(p, buffer, 0, pack_matrix_bytes(p->kernels, panels, cols), false);
	for (size_t i = 0; m && i < n_parts && !p->error.code; i++)
		done += append(p, &parts[i], &b, stage, m, &used);
	if (m) {
		assert(p->error.code || done == panels);
		((uint32_t *)(void *)m)[panels] = (uint32_t)(used / CODED_UNIT);
		p->saved += pack_matrix_bytes(p->kernels, panels, cols) - used;
		p->plain += MAX(plain, used) - used;
		pack_unmap(p, buffer, m);
	}
	if (stage)
		clReleaseMemObject(stage);
	free(b.coded);
}
