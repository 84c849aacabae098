/* The stretches into which sums on a GPU are divided: they decide bits. One text for kernels that must add alike, and
 * for their launchers: macros alone. */
#ifndef KERNELS_CHAINS_H
#define KERNELS_CHAINS_H

#define CHAIN_TERMS 2048 /* terms of a chain (nvidia/tensor.clh) */
#define PART_TERMS  256	 /* terms of a part of a chain */

/* The number of warps of a team (nvidia/step_product.clh) for sums of so many terms: one for each part of a chain. If
 * sums differ, `terms` is that of the longest. */
#define TEAM(terms)                       \
	((terms) <= PART_TERMS	     ? 1u \
	 : (terms) <= 2 * PART_TERMS ? 2u \
	 : (terms) <= 4 * PART_TERMS ? 4u \
				     : 8u)

#define ROUTER_PART 128 /* terms of a part of the router's sums (generic/router.cl) */

#endif
