/* The stretches into which sums on a GPU are divided: they decide bits. One text for kernels that must add alike, and
 * for their launchers: macros alone. */
#ifndef KERNELS_CHAINS_H
#define KERNELS_CHAINS_H

#define CHAIN_TERMS 2048 /* terms of a chain (nvidia/tensor.clh) */
#define PART_TERMS  256	 /* terms of a part of a chain */

#define ROUTER_PART 128 /* terms of a part of the router's sums (generic/router.cl) */

#endif
