/*
 * attention_flash.cl with its products by wgmma, for heads whose size is a multiple of 64. The bits are the same.
 *
 * wgmma takes keys and values transposed, as they lie in the pages: keys with the 64-byte swizzle, which is the order
 * that attention_flash.cl gives them anyway, values with the 128-byte swizzle, in blocks of 64 dimensions, one behind
 * the other. The queries and the softmax weights are the A operands, in registers.
 *
 * Source of the layouts: the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout". Options and
 * reference: attention_flash.cl.
 */
#include "common.clh"
#include "wgmma.clh"

#if HD % 64
#error "no layout for such a head"
#endif

#define VALUE_BYTES	    4096 /* bytes of 64 dimensions of the values of a block */
#define VALUE_CHUNK(row, c) (KEY_BYTES + (c) / 8 * VALUE_BYTES + (row) * 128 + (((c) % 8 ^ ((row) & 7)) << 4))
#define WRITTEN()	    WGMMA_WRITTEN()

/* Descriptors of 16 terms: of the keys' dimensions, and of the values' keys for 64 dimensions. */
#define KEY_TERMS(k)	  ((ulong)(((memory + (k) * 1024) & 0x3ffff) >> 4) | 1ul << 16 | 32ul << 32 | 2ul << 62)
#define VALUE_TERMS(j, c) \
	((ulong)(((memory + KEY_BYTES + (c) * VALUE_BYTES + (j) * 2048) & 0x3ffff) >> 4) | (VALUE_BYTES / 16ul) << 16 | \
	 64ul << 32 | 1ul << 62)

#define TILE_(d)    "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define TILES_4_(d) TILE_((d)[0]), TILE_((d)[1]), TILE_((d)[2]), TILE_((d)[3])
#define QUADS_(a)   "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3])

/* d += a * terms, for tiles d[0], d[1], ... of eight columns each. */
#define WGMMA_KEYS(d, a, terms)                                                                    \
	__asm__ volatile("//@wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "                \
			 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "               \
			 "{%16,%17,%18,%19}, %20, 1, 1, 1, 1;"                                     \
			 : TILES_4_(d)                                                             \
			 : QUADS_(a), "l"(terms)                                                   \
			 : "memory")
#define WGMMA_VALUES(d, a, terms)                                                                  \
	__asm__ volatile(WGMMA_64_TERMS_TEXT                                                       \
			 : TILES_4_(d), TILES_4_((d) + 4)                                          \
			 : QUADS_(a), "l"(terms)                                                   \
			 : "memory")
#define READ_TILES(d, n)                                                                           \
	_Pragma("unroll") for (uint i_ = 0; i_ < (n); i_++) __asm__ volatile("" : TILE_((d)[i_]))

/* s += the products of the queries and the block's keys. */
#define WIDE_SCORES()                                                                              \
	do {                                                                                       \
		WGMMA_BEGIN();                                                                     \
		_Pragma("unroll") for (uint k_ = 0; k_ < TERM_STEPS; k_++)                         \
			WGMMA_KEYS(s, queries[k_], KEY_TERMS(k_));                                 \
		WGMMA_END();                                                                       \
		WGMMA_WAIT(0);                                                                     \
		READ_TILES(s, KEYS / 8);                                                           \
	} while (0)

/* o += the products of the weights and the block's values. */
#define WIDE_OUTPUTS()                                                                             \
	do {                                                                                       \
		WGMMA_BEGIN();                                                                     \
		_Pragma("unroll") for (uint j_ = 0; j_ < KEYS / 16; j_++)                          \
			_Pragma("unroll") for (uint c_ = 0; c_ < HD / 64; c_++)                    \
				WGMMA_VALUES(o + c_ * 8, p[j_], VALUE_TERMS(j_, c_));              \
		WGMMA_END();                                                                       \
		WGMMA_WAIT(0);                                                                     \
		READ_TILES(o, CHUNKS);                                                             \
	} while (0)

#include "attention_flash.cl"
