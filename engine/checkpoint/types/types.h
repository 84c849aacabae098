/* The decoders of stored_type.c's table and of ggml.c's: each is the to_float of a type (stored_type.h).
 *
 * A block of a ggml type has one or two scales of half precision (d, m), perhaps a second level of scales for
 * sub-blocks of 16 or 32 elements, and codes of few bits. The files say the layout of each. Layouts and the order of
 * operations are those of ggml's ggml-quants.c and of gguf-py's quants.py, so the floats have the same bits. */
#pragma once

#include <stddef.h>

/* plain.c: one element a block */
void f32_to_float(const void *from, float *out, size_t n);
void f16_to_float(const void *from, float *out, size_t n);
void bf16_to_float(const void *from, float *out, size_t n);

/* blocks.c: a scale for 32 elements */
void q4_0_to_float(const void *from, float *out, size_t n);
void q4_1_to_float(const void *from, float *out, size_t n);
void q5_0_to_float(const void *from, float *out, size_t n);
void q5_1_to_float(const void *from, float *out, size_t n);
void q8_0_to_float(const void *from, float *out, size_t n);

/* k_blocks.c: blocks of 256 elements with scales of sub-blocks */
void q2_k_to_float(const void *from, float *out, size_t n);
void q3_k_to_float(const void *from, float *out, size_t n);
void q4_k_to_float(const void *from, float *out, size_t n);
void q5_k_to_float(const void *from, float *out, size_t n);
void q6_k_to_float(const void *from, float *out, size_t n);

/* code_tables.c: codes of 4 bits that stand for numbers of a table */
void iq4_nl_to_float(const void *from, float *out, size_t n);
void iq4_xs_to_float(const void *from, float *out, size_t n);
void mxfp4_to_float(const void *from, float *out, size_t n);
void nvfp4_to_float(const void *from, float *out, size_t n);

/* The from_float of some types (stored_type.h). The results have the bits of ggml's quantize_row_*_ref; with importance
 * those of its quantisation with an importance matrix. Q8_0 and MXFP4 ignore the importance, as in ggml. */

/* plain.c: rounded to the nearest number, ties to even */
void f32_from_float(const float *x, size_t n, const float *importance, void *out);
void f16_from_float(const float *x, size_t n, const float *importance, void *out);
void bf16_from_float(const float *x, size_t n, const float *importance, void *out);

/* quantize_blocks.c */
void q4_0_from_float(const float *x, size_t n, const float *importance, void *out);
void q5_0_from_float(const float *x, size_t n, const float *importance, void *out);
void q8_0_from_float(const float *x, size_t n, const float *importance, void *out);
void mxfp4_from_float(const float *x, size_t n, const float *importance, void *out);

/* quantize_k.c */
void q2_k_from_float(const float *x, size_t n, const float *importance, void *out);
void q3_k_from_float(const float *x, size_t n, const float *importance, void *out);
void q4_k_from_float(const float *x, size_t n, const float *importance, void *out);
void q5_k_from_float(const float *x, size_t n, const float *importance, void *out);
void q6_k_from_float(const float *x, size_t n, const float *importance, void *out);
