/* The parts into which kernels divide their work, as far as their launchers count such parts, and what a group has of
 * them. One text for the kernels and for their launchers: macros alone. */
#ifndef KERNELS_GROUPS_H
#define KERNELS_GROUPS_H

/* generic/moe_route.cl */
#define ROUTER_BLOCKS 4 /* column blocks (tuning.h) of a part of OP_ROUTER (step.h) */

/* generic/router.cl */
#define ROUTER_COLUMNS	64 /* columns of a group of `router` and router_tall */
#define ROUTER_ROWS	64 /* rows of a group of `router`; router_tall has twice as many */
#define ROUTER_FEW_ROWS 4  /* the most rows of a group of router_few */

/* generic/attention_decode.cl */
#define SPLIT_CHUNK 4 /* attention_split: query heads whose parts are added up at a time, at most */

/* generic/delta_conv_gpu.cl, nvidia/delta_tensor.cl */
#define CONV_TOKENS 8 /* tokens of a group; in delta_conv_tensor of a warp, */
#define DELTA_WARPS 8 /* of which a group has so many */

/* generic/delta_prefill.cl, generic/delta_chunks.cl, nvidia/delta_tensor.cl */
#define DELTA_CHUNK	   64 /* tokens of a chunk */
#define DELTA_CHUNK_FLOATS (DELTA_CHUNK * (2 * DELTA_CHUNK + 1))
#define DELTA_BLOCK	   16 /* columns of a state of a group of delta_scan (delta_chunks.cl) */

/* nvidia/delta_scan.cl */
#define SCAN_WARPS   4			    /* warps of a group that compute; one more copies */
#define SCAN_LANES   (SCAN_WARPS * 32 + 32) /* lanes of a group */
#define SCAN_COLUMNS (SCAN_WARPS * 16)	    /* columns of a state of a group */

/* nvidia/attention_flash.cl */
#define FLASH_WARPS   8			 /* warps of a group */
#define FLASH_QUERIES (FLASH_WARPS * 16) /* the most queries of a tile */
#define FLASH_KEYS    32		 /* keys of a block */

/* nvidia/gemm_wide.cl */
#define WIDE_LANES   256 /* lanes of a group */
#define WIDE_COLUMNS 128 /* columns of a tile */
#define WIDE_TOKENS  128 /* the most rows of a tile */
#define PART_TOKENS  64	 /* the same of gemm_wide_parts and gemm_split */

/* nvidia/moe_route.cl */
#define WARP_LANES   32	 /* lanes that choose a token's experts, */
#define WARP_EXPERTS 512 /* up to so many experts */

/* nvidia/decode_step.cl */
#define STEP_ROWS  8   /* the most rows of a step */
#define STEP_LANES 512 /* lanes of a group */
#define STEP_HALF  256 /* lanes of half a group, LANES there */

#endif
