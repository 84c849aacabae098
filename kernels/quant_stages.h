/* Quantised weights for tensor cores: the panels of kernels/quant.h in another order.
 *
 * There a warp multiplies bf16 numbers. So a lane decodes the codes that lie in its registers to the operands that it
 * needs itself (nvidia/panel.clh). A panel is cut into *stages* of QUANT_STAGE_TERMS terms, and in a stage each lane's
 * codes lie side by side. A panel is
 *
 *     header    QUANT_HEADER bytes: the type's number, the tensor's scale as a float, the bytes of a stage, where the
 *               first stage begins in the panel; whole planes of a stage, and whether it has one of 1 bit, bytes of the
 *               scales of a lane, bytes from scales to mins (0: no mins); zeros
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
 *     scales    for each c: those of row c and then of row c + 8, for the stage's groups (QUANT_STAGE_GROUPS); a group of
 *               128 terms has its scale in both of its stages
 *     mins      in the same way, in types with a min
 *
 * The last stage of a row may have fewer terms: the scales that it lacks are zero. A panel of plain weights has a header,
 * and then its elements in the order of FRAGMENTS. A panel's bytes are a multiple of 64. */
#pragma once

#include "kernels/quant.h"

/* As quant_panel_bytes and quant_pack of quant.h. */
uint64_t quant_stages_bytes(const struct quant_type *t, uint64_t K);
bool quant_pack_stages(const struct quant_type *t, const void *const rows[16], uint64_t K,
		       float factor, void *out);

/* Writes the header of a panel of plain bf16 weights, K a row, and zeros behind these up to a whole stage. */
void quant_plain_begin(void *out, uint64_t K);
