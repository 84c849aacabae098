/* Coded weights: the same bf16 numbers in three quarters of the bytes, without loss.
 *
 * The lower byte of a bf16 number (the last bit of the exponent, and the mantissa) is as good as random. The upper byte
 * (the sign and the rest of the exponent) takes few values, because weights of one matrix are of similar size: 16
 * values cover a range of 16 binades with both signs, and one weight in ten thousand lies outside. So a panel (the
 * weights of 16 columns of a product: kernels.h) has a dictionary of 16 upper bytes, and a weight is its lower byte and
 * a code of 4 bits. A tile of a panel (16 k x 16 columns) with any other upper byte is not coded: one tile in forty, if
 * weights are normally distributed.
 *
 * The speed of products of few rows is that of reading weights. With coded weights these products take about three
 * quarters of the time, and decode register by register. For many rows and sums of more than 256 terms a group decodes
 * a panel once and uses it for all its rows (generic/gemm.clh, TALL). The arithmetic gets the same numbers in the same
 * order, so its bits are the same.
 *
 * (Huffman codes of the exponents save a little more and cost more to decode: Zhang et al. 2025, "70% Size, 100%
 * Accuracy: Lossless LLM Compression for Efficient GPU Inference via Dynamic-Length Float".)
 *
 * Layout of a matrix of n panels, little-endian. The table, each panel and each tile begin at multiples of 64 bytes:
 *
 *     uint32 [n + 1]    where panel i begins, in units of 64 bytes; the last entry is the end of all
 *     panels, in any order, each:
 *         uint8 [16]    the dictionary
 *         uint32 [ceil(K / 512)]
 *                       bit t: tile t, which is k = 16 t .. 16 t + 15, is not coded
 *         zeros up to the next boundary
 *         tiles, each   384 bytes; if it is not coded, 512 bytes in KERNEL_PACK_PAIRS
 *
 * Inside a coded tile, a step is 64 weights: 4 k of 16 columns, which in KERNEL_PACK_PAIRS (kernels.h) fill two
 * registers. Two steps lie together in the order in which they are read: 32 bytes of codes of the first, 32 of the
 * second, 64 lower bytes of the first, 64 of the second. Weight i of register v has the number b = i / 8 * 16 + v * 8 +
 * i % 8 in its step, because the decoder joins lower and upper bytes by unpack instructions, which take one half of
 * each 128-bit lane. Its lower byte is byte b of the step's lower bytes. Its code is the lower half of byte b % 32 of
 * the step's codes for b < 32, else the upper half. kernels/x86/gemm_core.clh decodes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Panels begin at multiples of so many bytes; the table and a panel's header are padded to a multiple. */
#define CODED_UNIT 64u

/* Return the bytes of the table [n + 1] of n panels, and the most bytes that one panel of K terms can take. K is a
 * multiple of 16. */
uint64_t coded_table_bytes(uint64_t n);
uint64_t coded_panel_bound(uint64_t K);

/* Codes a panel of K x 16 weights in KERNEL_PACK_PAIRS into out [coded_panel_bound(K)]. Returns the bytes written. */
size_t coded_panel(const uint16_t *pairs, uint64_t K, uint8_t *out);

/* Decodes a panel back into KERNEL_PACK_PAIRS, for tests; kernels have their own decoder (x86/gemm_core.clh). */
void coded_panel_decode(const uint8_t *panel, uint64_t K, uint16_t *ret_pairs);
