/*
 * delta_scan.cl with its products by wgmma. The bits are the same.
 *
 * The four warps of a group are a warp group. Its 64 columns of the state are the rows of an instruction, and W and K'
 * are read from local memory once for all four. W is taken as it lies, and K' transposed.
 *
 * Source of the layouts: the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout". Options and
 * reference: delta_scan.cl.
 */
#include "common.clh"
#include "wgmma.clh"

#define WRITTEN()	 WGMMA_WRITTEN()
#define PRODUCTS_BEGIN() WGMMA_BEGIN()
#define PRODUCTS_END()                                                                             \
	do {                                                                                       \
		WGMMA_END();                                                                       \
		WGMMA_WAIT(0);                                                                     \
	} while (0)
#define PRODUCTS_READ(d) WGMMA_READ(d, 32)
#define BY_ROWS(d, a, tile, k)	WGMMA_64(d, a, WGMMA_TOKENS((tile) + (k) * 32))
#define BY_TERMS(d, a, tile, k) WGMMA_64_TERMS(d, a, WGMMA_TOKENS((tile) + (k) * 2048))

#include "delta_scan.cl"
