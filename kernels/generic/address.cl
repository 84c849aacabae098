/* Writes the device address of a buffer to at[i], for a decode step in one launch (decode_step.cl). One group. */
#include "common.clh"

__kernel GROUP_SIZE void address(__global uchar *buffer, __global ulong *at, uint i)
{
	if (LANE == 0)
		at[i] = (ulong)buffer;
}
