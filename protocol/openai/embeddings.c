#include "protocol/openai/embeddings.h"

#include <endian.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/openai/writer.h"

/* ---- the request ---- */

/* Reads a member that is one of two words; absent: *ret stays. */
static int one_of(const json_t *body, const char *name, const char *no, const char *yes, bool *ret,
		  struct err *e)
{
	const json_t *v = field_get(body, name);
	char want[64];

	if (!v)
		return 0;
	*ret = field_is(v, yes);
	if (*ret || field_is(v, no))
		return 0;
	snprintf(want, sizeof(want), "\"%s\" or \"%s\"", no, yes);
	return field_wrong(e, "", name, v, want);
}

int embeddings_read(const json_t *body, const struct openai_limits *limits, struct arena *arena,
		    struct openai_request *r, struct err *e)
{
	int64_t dimensions = limits->hidden_size;
	bool mean = limits->pooling == POOLING_MEAN;
	int ret = request_undrawn(body, TASK_EMBED, arena, r, e);

	if (ret == 0)
		ret = request_always_on(body, "normalize", e);
	if (ret == 0)
		ret = one_of(body, "encoding_format", "float", "base64", &r->embed.base64, e);
	if (ret == 0)
		ret = one_of(body, "pooling", "last", "mean", &mean, e);
	if (ret == 0)
		ret = field_int(body, "", "dimensions", 1, limits->hidden_size, &dimensions, e);
	if (ret == 0)
		ret = request_truncation(body, limits, r, e);
	if (ret < 0)
		return ret;
	r->embed.pooling = mean ? POOLING_MEAN : POOLING_LAST;
	r->embed.dimensions = (uint32_t)dimensions;
	return prompt_list(body, limits, arena, r, e);
}

int openai_parse_embeddings(const char *body, size_t len, const struct pace *pace,
			    const struct openai_limits *limits, struct arena *arena,
			    struct openai_request *ret, struct err *e)
{
	return request_parse_undrawn(body, len, pace, "input", embeddings_read, limits, arena, ret,
				     e);
}

/* ---- the answer ---- */

/* Returns the factor that gives the vector the norm 1; of a vector of zeros: 1. The order of the sum is fixed. */
static double scale_of(const float *sum, uint32_t n)
{
	double squares = 0;

	for (uint32_t i = 0; i < n; i++)
		squares += (double)sum[i] * (double)sum[i];
	return squares > 0 ? 1 / sqrt(squares) : 1;
}

/* Writes the text of the vector's floats, little-endian, in base64. Blocks are encoded one by one; the bytes of a whole
 * one are a multiple of 3, so their texts are that of all bytes. */
static void write_base64(const float *sum, uint32_t n, struct buf *out)
{
	enum { BLOCK = 768 };
	const double scale = scale_of(sum, n);
	uint32_t bits[BLOCK];

	buf_putc(out, '"');
	for (uint32_t i = 0; i < n; i += BLOCK) {
		const uint32_t n_block = MIN(n - i, (uint32_t)BLOCK);
		gnutls_datum_t text, data = {(unsigned char *)bits, n_block * sizeof(*bits)};

		for (uint32_t k = 0; k < n_block; k++)
			bits[k] = htole32(float_bits((float)((double)sum[i + k] * scale)));
		if (gnutls_base64_encode2(&data, &text) < 0) {
			out->failed = true;
			return;
		}
		buf_append(out, text.data, text.size);
		gnutls_free(text.data);
	}
	buf_putc(out, '"');
}

void openai_vector(const float *sum, uint32_t dimensions, struct buf *out)
{
	const double scale = scale_of(sum, dimensions);

	for (uint32_t i = 0; i < dimensions; i++) {
		buf_putc(out, i ? ',' : '[');
		writer_float(out, (float)((double)sum[i] * scale));
	}
	buf_putc(out, ']');
}

void openai_embeddings_begin(const struct openai_head *h, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, h->id, strlen(h->id));
	buf_printf(out, ",\"object\":\"list\",\"created\":%lld,\"model\":", (long long)h->created);
	writer_string(out, h->model, strlen(h->model));
	buf_puts(out, ",\"data\":[");
}

void openai_embedding(uint32_t index, const float *sum, uint32_t dimensions, bool base64,
		      struct buf *out)
{
	buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", index ? "," : "",
		   index);
	if (base64)
		write_base64(sum, dimensions, out);
	else
		openai_vector(sum, dimensions, out);
	buf_putc(out, '}');
}

void openai_embeddings_end(const struct openai_usage *u, struct buf *out)
{
	buf_puts(out, "],\"usage\":");
	openai_prompt_usage(u, out);
	buf_puts(out, "}");
}
