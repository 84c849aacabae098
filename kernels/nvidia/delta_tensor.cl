/*
 * The steps of delta_tensor.clh that compute all chunks at once, delta_chunk_tensor and delta_out_tensor, and
 * delta_conv_tensor, which is delta_conv (generic/delta_conv.cl) with q, k and v rounded to bf16.
 *
 *     step, proj, conv_w, neg_a, dt_bias, gates, ring, first_row, n_rows, n_tokens   as in generic/delta_conv_gpu.cl
 *              and generic/delta_chunks.cl
 *     qs, ks   [T, HK * DK] bf16; out of delta_conv_tensor, into delta_chunk_tensor
 *     vs       [T, HV * DV] bf16; the same
 *     work     as in delta_tensor.clh; out of delta_chunk_tensor, into delta_out_tensor
 *     norm_w   [DV] float; in
 *     out      [T, HV * DV] bf16; out
 *
 * delta_out_tensor also keeps the inputs that the convolution needs next, for the row and its snapshots.
 *
 * Groups: of delta_conv_tensor a warp for each head of q, k or v and 8 tokens, LANES / 32 warps a group; of the others
 * n x HV, where n is at least the number of chunks. Options: delta_tensor.clh. Reference: reference_delta_step.
 */
#include "delta_tensor.clh"

/* ---- delta_conv_tensor ---- */

#define UNITS (2 * HK + HV)
#define TOKENS CONV_TOKENS /* of a warp */
#if LANES / 32 * CONV_TOKENS != DELTA_CHUNK
#error "the warps of delta_out_tensor have the tokens of a chunk"
#endif
#define FOR_TOKENS(j) _Pragma("unroll") for (uint j = 0; j < TOKENS; j++)

/* Returns silu(x), right to more bits than bf16 has. */
static inline float quick_silu(float x)
{
	return native_divide(x, 1.0f + native_exp(-x));
}

static inline float square_of(float4 x)
{
	return fma(x.x, x.x, x.y * x.y) + fma(x.z, x.z, x.w * x.w);
}

/* A warp has TOKENS neighbouring tokens of one head of q, k or v, and a lane four columns of it. The tokens may be of
 * several rows. */
__kernel GROUP_SIZE void delta_conv_tensor(__global const int *restrict step, int rows_at, int token_rows_at,
					   __global const float *restrict proj, __global const float *restrict conv_w,
					   __global const float *restrict neg_a, __global const float *restrict dt_bias,
					   __global const float *restrict ring, __global ushort *restrict qs,
					   __global ushort *restrict ks, __global ushort *restrict vs,
					   __global float *restrict gates, uint n_tokens)
{
	const uint warp = GROUP_X * (LANES / 32) + LANE / 32, lane = LANE % 32;
	/* Neighbouring warps have neighbouring heads of the same tokens, so that memory is read in its order. */
	const uint first = warp / UNITS * TOKENS, unit = warp % UNITS;
	const bool is_v = unit >= 2 * HK, query = unit < HK; /* v has no norm */
	const uint h = unit - (is_v ? 2 * HK : query ? 0 : HK), heads = is_v ? HV : HK, dims = is_v ? DV : DK;
	const uint c = MIN_(lane * 4, dims - 4), channel = (is_v ? V_AT + h * DV : unit * DK) + c;
	__global const int *row_of = step + token_rows_at + first, *row;
	__global ushort *out = (is_v ? vs : query ? qs : ks) + ((ulong)first * heads + h) * dims + c;
	float4 x[TOKENS], w[CONV];
	uint n;

	if (first >= n_tokens)
		return;
	n = MIN_(n_tokens - first, (uint)TOKENS);
#pragma unroll
	for (uint k = 0; k < CONV; k++)
		w[k] = GLOBAL_4(conv_w + k * CHANNELS + channel);
	row = step + rows_at + row_of[0] * ROW_INTS;
	if (n == TOKENS && row_of[TOKENS - 1] == row_of[0] && first >= (uint)row[ROW_TOKEN] + CONV - 1) {
		/* the rule: all inputs are of this step and this row */
		__global const float *from = proj + (ulong)(first - (CONV - 1)) * DELTA_LD + channel;
		float4 in[TOKENS + CONV - 1];

#pragma unroll
		for (uint j = 0; j < TOKENS + CONV - 1; j++)
			in[j] = GLOBAL_4(from + (ulong)j * DELTA_LD);
		FOR_TOKENS (j) {
			x[j] = 0;
#pragma unroll
			for (uint k = 0; k < CONV; k++)
				x[j] = fma(in[j + k], w[k], x[j]);
		}
	} else {
		FOR_TOKENS (j) {
			const uint t = first + MIN_(j, n - 1);
			__global const int *of = step + rows_at + row_of[MIN_(j, n - 1)] * ROW_INTS;
			const uint t0 = (uint)of[ROW_TOKEN], start = (uint)of[ROW_START];
			const int src = of[ROW_STATE_SRC];

			x[j] = 0;
#pragma unroll
			for (uint k = 0; k < CONV; k++) {
				uint back = CONV - 1 - k;
				float4 v = 0; /* before the sequence */

				if (t - t0 >= back)
					v = GLOBAL_4(proj + (ulong)(t - back) * DELTA_LD + channel);
				else if (src != ROW_STATE_ZERO)
					v = GLOBAL_4(ring + channel +
						     ((ulong)src * CONV + (start + t - t0 + CONV - back) % CONV) * CHANNELS);
				x[j] = fma(v, w[k], x[j]);
			}
		}
	}
	FOR_TOKENS (j) {
		float scale = 1;

		x[j] = (float4)(quick_silu(x[j].x), quick_silu(x[j].y), quick_silu(x[j].z), quick_silu(x[j].w));
		if (!is_v) {
			float sum = lane * 4 < dims ? square_of(x[j]) : 0.0f;

#pragma unroll
			for (uint d = 16; d; d /= 2)
				sum = add_other(sum, d);
			scale = native_rsqrt(sum + 1e-6f) * (query ? 1.0f / sqrt((float)DK) : 1.0f);
		}
		if (j < n && lane * 4 < dims)
			*(__global uint2 *)(out + (ulong)j * heads * dims) =
				(uint2)(pair(x[j].x * scale, x[j].y * scale), pair(x[j].z * scale, x[j].w * scale));
	}
	if (is_v && lane < n) /* the gates of this value head */
		put_gates(gates, proj, neg_a, dt_bias, first + lane, h);
}

/* ---- delta_chunk_tensor ---- */

/* Starts this lane's copies of C rows of `columns` elements, `stride` apart, as tiles of 64 columns each. Rows from n
 * on become zeros. */
GROUP_FUNCTION void copy_rows(uint to, __global const ushort *from, uint stride, uint columns, uint n)
{
	FOR_ITEMS (i, C * columns / 8) {
		uint row = i / (columns / 8), c = i % (columns / 8);

		COPY_SOME_16(to + c / 8 * TILE_BYTES + WGMMA_CHUNK(row, c % 8), from + MIN_(row, n - 1) * stride + c * 8,
			row < n ? 16 : 0);
	}
}

/* Loads the A operand of rows 16 i .. 16 i + 15 of a tile at terms 16 k .. 16 k + 15, and that of its columns
 * 16 i .. 16 i + 15 at terms that are rows. */
#define LOAD_OPERAND(load, a, tile, i, k)                                                          \
	do {                                                                                       \
		uint m_[4];                                                                        \
                                                                                                   \
		load(m_, tile, i, k);                                                              \
		(a) = (uint4)(m_[0], m_[2], m_[1], m_[3]);                                          \
	} while (0)

/* Returns two neighbouring bf16 numbers times two floats. */
static inline uint scaled_pair(uint v, float first, float second)
{
	return pair(as_float(v << 16) * first, as_float(v & 0xffff0000) * second);
}

#define ZERO_TILES(d, n)                                                                           \
	_Pragma("unroll") for (uint i_ = 0; i_ < (n); i_++)                                        \
		_Pragma("unroll") for (uint e_ = 0; e_ < 4; e_++) (d)[i_][e_] = 0

/* Returns e^x. native_exp would take three more instructions, for results below 2^-126. */
static inline float quick_exp(float x)
{
	float r;

	__asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.4426950408889634f));
	return r;
}

/* Warps 0 to 3 compute K K^T, and A from it. Warps 4 to 7 compute Q K^T, and P. A warp has 16 rows. Then all eight
 * warps compute T, W and U. The value heads of a key head compute K K^T and Q K^T each for itself, which is the least
 * part. */
__kernel GROUP_SIZE void delta_chunk_tensor(__global const int *restrict step, int rows_at, int first_row, int n_rows,
					    __global const ushort *restrict qs, __global const ushort *restrict ks,
					    __global const ushort *restrict vs, __global const float *restrict gates,
					    __global uint4 *restrict work)
{
	__local uint4 keys_[K_QUADS] __attribute__((aligned(1024)));
	__local uint4 inverse_[TILE_BYTES / 16] __attribute__((aligned(1024))); /* T, and work space of `invert` */
	__local float A[C * C_LD] __attribute__((aligned(1024))); /* Q is here before A, and V after it */
	__local float G[C] QUADS_ALIGNED, beta[C] QUADS_ALIGNED, grown[C] QUADS_ALIGNED; /* grown: beta e^G */
	__global const int *rows = step + rows_at + first_row * ROW_INTS;
	const uint h = GROUP_Y, kh = KEY_HEAD(h), warp = LANE / 32 % 4, half_ = LANE / 128, lane = LANE % 32;
	const uint keys = (uint)(ulong)keys_, inverse = (uint)(ulong)inverse_, many = (uint)(ulong)A;
	const uint first = lane % 4 * 2, row = warp * 16 + lane / 4; /* the lane's first column, and its first row */
	const bool of_q = half_;
	uint chunk = GROUP_X, r = row_of_chunk(rows, (uint)n_rows, &chunk), n;
	__global uint4 *own = VALUE_WORK(GROUP_X, h);
	__global float *factors = (__global float *)(own + OF_FACTORS);
	float sum[TOKEN_TILES][4], last;
	uint4 a[TOKEN_STEPS];
	ulong t;

	if (r == (uint)n_rows)
		return;
	rows += r * ROW_INTS;
	t = (uint)rows[ROW_TOKEN] + chunk * C;
	n = MIN_((uint)rows[ROW_COUNT] - chunk * C, (uint)C);
	copy_rows(keys, ks + (t * HK + kh) * DK, HK * DK, DK, n);
	copy_rows(many, qs + (t * HK + kh) * DK, HK * DK, DK, n);
	COPY_END();
	ZERO_TILES(sum, TOKEN_TILES);
	COPY_WAIT(0);
	BARRIER();
#pragma unroll 2
	for (uint s = 0; s < STEPS; s++) {
		uint4 x;

		LOAD_OPERAND(LOAD_ROWS, x, (of_q ? many : keys) + s / 4 * TILE_BYTES, warp, s % 4);
		if (of_q && FIRST_OF_KEY(h))
			KEY_WORK(GROUP_X, kh)[(s * TOKEN_STEPS + warp) * 32 + lane] = x;
#pragma unroll
		for (uint i = 0; i < TOKEN_TILES / 2; i++)
			if (i <= warp) { /* tiles above the diagonal are not needed */
				uint b[4];

				LOAD_ROWS(b, keys + s / 4 * TILE_BYTES, i, s % 4);
				MMA(sum[2 * i], x, b[0], b[1]);
				MMA(sum[2 * i + 1], x, b[2], b[3]);
			}
	}
	chunk_gates(gates + (t * HV + h) * 2, n, G, beta); /* with barriers: nobody reads `many` any more */
	last = G[C - 1];
	FOR_ITEMS (i, C) {
		factors[i] = quick_exp(G[i]);
		grown[i] = quick_exp(G[i]) * beta[i];
	}
	if (LANE == 0)
		factors[C] = exp(last);
	{
		const float own_G[2] = {G[row], G[row + 8]}, own_beta[2] = {beta[row], beta[row + 8]};

#pragma unroll
		for (uint m = 0; m < TOKEN_STEPS; m++)
			if (m <= warp) { /* above the diagonal all is zero, and not read */
				float p[8];

#pragma unroll
				for (uint i = 0; i < 2; i++) {
					const uint c = m * 16 + i * 8 + first;
					float2 g = *(LOCAL const float2 *)(G + c);

#pragma unroll
					for (uint e = 0; e < 4; e++) {
						const uint at = c + e % 2, j = row + e / 2 * 8;
						float v = sum[2 * m + i][e] * quick_exp(own_G[e / 2] - (e % 2 ? g.y : g.x));

						p[i * 4 + e] = at <= j ? v : 0.0f;
						if (!of_q)
							A[j * C_LD + at] = at < j ? own_beta[e / 2] * v : 0.0f;
					}
				}
				if (of_q)
					own[OF_P + (warp * TOKEN_STEPS + m) * 32 + lane] = operand_of(p);
			}
	}
	BARRIER();
	invert(A, (LOCAL float *)inverse_);
	FOR_ITEMS (i, TILE_BYTES / 16) { /* T, without the blocks above the diagonal */
		uint j = i / 8, c = i % 8 * 8;

		if (c / 16 > j / 16)
			continue;

		float4 x = LOCAL_4(A + j * C_LD + c) * LOCAL_4(beta + c);
		float4 y = LOCAL_4(A + j * C_LD + c + 4) * LOCAL_4(beta + c + 4);

		inverse_[WGMMA_CHUNK(j, i % 8) / 16] =
			(uint4)(pair(x.x, x.y), pair(x.z, x.w), pair(y.x, y.y), pair(y.z, y.w));
	}
#pragma unroll
	for (uint m = 0; m < TOKEN_STEPS; m++) { /* e^G T; not used above the diagonal */
		float x[8];

#pragma unroll
		for (uint i = 0; i < 4; i++) {
			const uint c = m * 16 + i / 2 * 8 + first;
			float2 t_ = *(LOCAL const float2 *)(A + (row + i % 2 * 8) * C_LD + c);
			float2 g = *(LOCAL const float2 *)(grown + c);

			x[i * 2] = t_.x * g.x;
			x[i * 2 + 1] = t_.y * g.y;
		}
		a[m] = operand_of(x);
	}
	BARRIER(); /* T is there, and nobody reads A any more */
	copy_rows(many, vs + (t * HV + h) * DV, HV * DV, DV, n);
	COPY_END();
#pragma unroll
	FOR_ITEMS (i, K_QUADS) { /* K' */
		uint j = i / 8 % C;
		float f = quick_exp(last - G[j]);
		uint4 x = keys_[i];

		own[OF_K + i] = (uint4)(scaled_pair(x.x, f, f), scaled_pair(x.y, f, f), scaled_pair(x.z, f, f),
					scaled_pair(x.w, f, f));
	}
	/* W: the warp has 16 tokens, and half of the dimensions */
#pragma unroll 2
	for (uint i = 0; i < STEPS / 2; i++) { /* 16 dimensions at a time */
		const uint d = half_ * (STEPS / 2) + i;
		float w[2][4];
		__global uint *to = (__global uint *)(own + OF_W) + d / 4 * (TILE_BYTES / 4) + lane % 4;

		ZERO_TILES(w, 2);
#pragma unroll
		for (uint m = 0; m < TOKEN_STEPS; m++)
			if (m <= warp) {
				uint b[4];

				LOAD_TERMS(b, keys + d / 4 * TILE_BYTES, d % 4, m);
				MMA(w[0], a[m], b[0], b[1]);
				MMA(w[1], a[m], b[2], b[3]);
			}
#pragma unroll
		for (uint e = 0; e < 4; e++) /* rows `row` and row + 8 of two chunks of 16 bytes */
			to[WGMMA_CHUNK(row + e / 2 * 8, d % 4 * 2 + e % 2) / 4] =
				pair(w[e % 2][e / 2 * 2], w[e % 2][e / 2 * 2 + 1]);
	}
	COPY_WAIT(0);
	BARRIER(); /* V is there */
	/* U^T: the warp has 16 columns */
#pragma unroll 1
	for (uint block = LANE / 32; block < BLOCKS; block += LANES / 32) {
		float u[TOKEN_TILES * 4];

#pragma unroll
		for (uint i = 0; i < TOKEN_TILES * 4; i++)
			u[i] = 0;
#pragma unroll
		for (uint m = 0; m < TOKEN_STEPS; m++) {
			uint4 v;

			LOAD_OPERAND(LOAD_TERMS, v, many + block / 4 * TILE_BYTES, block % 4, m);
#pragma unroll
			for (uint i = m; i < TOKEN_STEPS; i++) { /* above the diagonal T is zero */
				uint b[4];

				LOAD_ROWS(b, inverse, i, m);
				MMA(u + 8 * i, v, b[0], b[1]);
				MMA(u + 8 * i + 4, v, b[2], b[3]);
			}
		}
#pragma unroll
		for (uint m = 0; m < TOKEN_STEPS; m++)
			own[OF_V + (block * TOKEN_STEPS + m) * 32 + lane] = operand_of(u + 8 * m);
	}
}

/* ---- delta_out_tensor ---- */

#define O_LD (DV + 4) /* rows of O begin in different banks of local memory */
#define QP_QUADS (K_QUADS + TOKEN_STEPS * TOKEN_STEPS * 32)
#define OUT_QUADS MAX_(QP_QUADS, C * O_LD / 4)

/* A warp computes 16 columns of O^T at a time, of all tokens. Q and P are the other operands: an A operand is two B
 * operands, those of its first eight tokens, and of its last eight. Then a warp has 8 tokens of O, and a lane four
 * columns of them. */
__kernel GROUP_SIZE void delta_out_tensor(__global const int *restrict step, int rows_at, int first_row, int n_rows,
					  __global const float *restrict proj, __global const uint4 *restrict work,
					  __global const float *restrict norm_w, __global float *ring,
					  __global ushort *restrict out)
{
	__local uint4 memory_[OUT_QUADS]; /* Q and P, then O, [C][O_LD] float */
	LOCAL float *O = (LOCAL float *)memory_;
	__global const int *row = step + rows_at + first_row * ROW_INTS;
	const uint h = GROUP_Y, lane = LANE % 32, warp = LANE / 32, memory = (uint)(ulong)memory_;
	const uint first = lane % 4 * 2;			/* the lane's first token of O^T */
	const uint column = MIN_(lane * 4, (uint)DV - 4); /* its columns of O */
	uint chunk = GROUP_X, r = row_of_chunk(row, (uint)n_rows, &chunk), n, done;
	__global const uint4 *own = VALUE_WORK(GROUP_X, h);
	__global const float *z;
	float4 gates[TOKENS], w;
	ulong t;

	if (r == (uint)n_rows)
		return;
	FOR_ITEMS (i, K_QUADS)
		COPY_16(memory + i * 16, KEY_WORK(GROUP_X, KEY_HEAD(h)) + i);
	FOR_ITEMS (i, QP_QUADS - K_QUADS)
		COPY_16(memory + (K_QUADS + i) * 16, own + OF_P + i);
	COPY_END();
	row += r * ROW_INTS;
	t = (uint)row[ROW_TOKEN] + chunk * C;
	n = MIN_((uint)row[ROW_COUNT] - chunk * C, (uint)C);
	done = chunk * C + n;
	z = proj + t * DELTA_LD + Z_AT + h * DV + column;
	FOR_TOKENS (j) /* on their way while O is computed */
		gates[j] = GLOBAL_4(z + (ulong)MIN_(warp * TOKENS + j, n - 1) * DELTA_LD);
	w = GLOBAL_4(norm_w + column);
	/* The inputs that the convolution needs next. */
	for (int i = 0; i < row[ROW_SNAPSHOTS]; i++)
		if ((uint)row[ROW_SNAPSHOT_TOKENS(i)] == done)
			carry_head(proj, ring, row, (uint)row[ROW_SNAPSHOT_SLOT(i)], done, h);
	if (done == (uint)row[ROW_COUNT])
		carry_head(proj, ring, row, (uint)row[ROW_STATE_DST], done, h);
	{
		float o[TOKEN_TILES][4];
		const uint block = MIN_(warp, (uint)BLOCKS - 1); /* warps past the last block keep nothing */
		__global const uint4 *states = own + OF_S + block * STEPS * 32 + lane;
		__global const uint4 *values = own + OF_V + block * TOKEN_STEPS * 32 + lane;
		__global const float *factors = (__global const float *)(own + OF_FACTORS) + first;
		LOCAL const uint4 *q = memory_ + lane, *p = memory_ + K_QUADS + lane;

		ZERO_TILES(o, TOKEN_TILES);
		COPY_WAIT(0);
		BARRIER();
#pragma unroll
		for (uint s = 0; s < STEPS; s++) {
			uint4 a = states[s * 32];

#pragma unroll
			for (uint i = 0; i < TOKEN_STEPS; i++) {
				uint4 b = q[(s * TOKEN_STEPS + i) * 32];

				MMA(o[2 * i], a, b.x, b.z);
				MMA(o[2 * i + 1], a, b.y, b.w);
			}
		}
#pragma unroll
		for (uint i = 0; i < TOKEN_TILES; i++) {
			float2 g = *(__global const float2 *)(factors + i * 8);

#pragma unroll
			for (uint e = 0; e < 4; e++)
				o[i][e] *= e % 2 ? g.y : g.x;
		}
#pragma unroll
		for (uint m = 0; m < TOKEN_STEPS; m++) {
			uint4 a = values[m * 32];

#pragma unroll
			for (uint i = m; i < TOKEN_STEPS; i++) {
				uint4 b = p[(i * TOKEN_STEPS + m) * 32];

				MMA(o[2 * i], a, b.x, b.z);
				MMA(o[2 * i + 1], a, b.y, b.w);
			}
		}
		BARRIER(); /* nobody reads Q or P any more */
		if (warp < BLOCKS)
#pragma unroll
			for (uint i = 0; i < TOKEN_TILES; i++)
#pragma unroll
				for (uint e = 0; e < 4; e++)
					O[(i * 8 + first + e % 2) * O_LD + block * 16 + lane / 4 + e / 2 * 8] = o[i][e];
	}
	BARRIER();
	FOR_TOKENS (j) {
		const uint token = warp * TOKENS + j;
		float4 x = LOCAL_4(O + token * O_LD + column), g = gates[j];
		float sum = lane * 4 < DV ? square_of(x) : 0.0f;

#pragma unroll
		for (uint d = 16; d; d /= 2)
			sum = add_other(sum, d);
		x *= native_rsqrt(sum / DV + EPS) * w;
		if (token < n && lane * 4 < DV)
			*(__global uint2 *)(IN_ROW(out, t + token, HV * DV) + h * DV + column) =
				(uint2)(pair(x.x * quick_silu(g.x), x.y * quick_silu(g.y)),
					pair(x.z * quick_silu(g.z), x.w * quick_silu(g.w)));
	}
}
