/*
 * generic/moe_route.cl with the experts of a token chosen by one warp, which needs no barrier. The bits are the same.
 * Local size of moe_topk: WARP_LANES, if the shape is one of warp_choice.clh. Then WARP_TOPK is 1. Reference:
 * reference_moe_topk.
 */
#include "generic/moe_route.cl"

#if WARP_TOPK
#include "warp_choice.clh"

__kernel __attribute__((reqd_work_group_size(WARP_LANES, 1, 1))) void
moe_topk(__global const float *restrict router, __global int *restrict experts, __global float *restrict weights)
{
	const uint lane = (uint)get_local_id(0);
	const ulong t = GROUP_X;
	uint expert;
	float weight;

	warp_choice(router + t * LD(EXPERTS + SHARED), lane, &expert, &weight);
	if (lane < TOPK) {
		experts[t * TOPK + lane] = (int)expert;
		weights[t * TOPK + lane] = weight;
	}
}
#endif
