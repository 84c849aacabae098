/* Quantised weights for tensor cores: the numbers of the panels of kernels/quant.h, in another order.
 *
 * On tensor cores a warp multiplies bf16 numbers that lie in its lanes' registers (mma.sync, wgmma). A lane reads the
 * codes of just the weights that it needs there, and decodes them itself (nvidia/panel.clh). For this a panel is cut
 * into *stages* of QUANT_STAGE_TERMS terms, and in a stage the codes are sorted by lanes. A panel is
 *
 *     header    QUANT_HEADER bytes: words of 4 bytes, zeros behind these
 *                   0   the type's number
 *                   1   the tensor's scale, a float
 *                   2   bytes of a stage
 *                   3   where the first stage begins in the panel
 *                   4   planes of a stage that have two words a lane
 *                   5   1: a stage has a plane of one word a lane, too
 *                   6   bytes of the scales of a lane in a stage
 *                   7   bytes from the scales of a stage to its mins; 0: no mins
 *     supers    types of SUPER: for each 256 terms, for each c from 0 to 7, f16 [4]: the scales' factors of rows c and
 *               c + 8, the mins' factors of both
 *     stages    k ascending
 *
 * and a stage is, with lane = 4 c + t:
 *
 *     low       LOW bits of each code. A lane has eight quads of four codes: quad 2 j + r belongs to row c + 8 r and to
 *               step j of 16 terms, and its byte i to k = 16 j + 2 t + (0, 1, 8, 9)[i] of the stage. That is the order
 *               of KERNEL_PACK_FRAGMENTS.
 *                   They lie in planes of two words a lane, [LOW / 2][32 lanes][2]: 8 / LOW quads a word, the first
 *                   one in the lowest bits of its bytes
 *     high      HIGH bits of each code, in the same way: one plane, of 1 bit with one word a lane
 *     scales    for each c: those of row c and then of row c + 8, for the stage's groups (QUANT_STAGE_GROUPS); a group
 *               of 128 terms has its scale in both of its stages
 *     mins      in the same way, in types with a min
 *
 * The last stage of a row may have fewer terms: the scales that it lacks are zero. A panel of plain weights has a
 * header with words 0 to 3 alone, then its elements in the order of FRAGMENTS, then zeros up to a whole stage. A
 * panel's bytes are a multiple of 64. The table in front of a matrix's panels is that of quant.h. */
#pragma once

#include "kernels/quant.h"

/* As quant_panel_bytes and quant_pack of quant.h. A type of NULL stands for a panel of plain bf16 weights. */
uint64_t quant_stages_bytes(const struct quant_type *t, uint64_t K);
bool quant_pack_stages(const struct quant_type *t, const void *const rows[16], uint64_t K,
		       float factor, void *out);

/* Writes what surrounds the elements of a panel of plain weights, K a row: the header before them, and the zeros
 * behind. The elements themselves, bf16 [K * 16] behind the header, are the caller's to write. */
void quant_plain_begin(void *out, uint64_t K);
