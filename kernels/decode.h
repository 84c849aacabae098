/*
 * The work list of a decode step, as engine/decode_work.c writes it and kernels/generic/decode_step.cl reads it. This file
 * is part of both: only macros.
 */
#ifndef KERNELS_DECODE_H
#define KERNELS_DECODE_H

/* The list begins with these ints; offsets are into the step table. The two counters are a cache line apart. */
#define WORK_NEXT	   0  /* the next ticket */
#define WORK_DONE	   16 /* tickets done */
#define WORK_TOKENS	   32
#define WORK_LOGITS	   33 /* rows of logits */
#define WORK_TOKENS_AT	   34
#define WORK_POSITIONS_AT  35
#define WORK_TOKEN_ROWS_AT 36
#define WORK_ROWS_AT	   37
#define WORK_TILES_AT	   38
#define WORK_LOGITS_AT	   39
#define WORK_INTS	   40 /* then the phases */

/* A phase: `columns` x rows parts of an operation; a ticket takes `take` neighbouring columns of one row. */
#define PHASE_OP      0
#define PHASE_LAYER   1
#define PHASE_FIRST   2 /* its first ticket */
#define PHASE_COLUMNS 3
#define PHASE_TAKE    4
#define PHASE_INTS    5

/* Operations; in brackets what columns and rows are. */
#define OP_END		0
#define OP_EMBED	1 /* embedding and first norm [1, tokens] */
#define OP_ATTENTION_IN 2 /* input projection [column groups, row blocks] */
#define OP_ATTENTION	3 /* norm, rotation, KV pages, attention [KV heads, tokens] */
#define OP_ATTENTION_OUT \
	4 /* output projection onto the residual stream [column groups, row blocks] */
#define OP_DELTA_IN  5
#define OP_DELTA     6 /* [value heads, tokens] */
#define OP_DELTA_OUT 7
#define OP_ROUTER    8	/* norm and router logits [groups of router columns, tokens] */
#define OP_TOPK	     9	/* [1, tokens] */
#define OP_SORT	     10 /* rows by expert [1, 1] */
#define OP_TOPK_SORT 11 /* both for all tokens [1, 1] */
#define OP_GATE_UP   12 /* [column groups, MoE tasks] */
#define OP_DOWN	     13
#define OP_COMBINE   14 /* sum of the experts, next norm [1, tokens] */
#define OP_LAST_NORM 15 /* of the rows that want logits [1, rows] */
#define OP_LOGITS    16 /* [column groups, row blocks] */
#define OP_COUNT     17

/* Addresses of the buffers of all layers, then, layer by layer, of its own. */
#define AT_X		 0
#define AT_H		 1
#define AT_H32		 2
#define AT_ROPE		 3
#define AT_PROJ		 4
#define AT_MIXED	 5
#define AT_Q		 6
#define AT_ROUTER_LOGITS 7
#define AT_EXPERTS	 8
#define AT_WEIGHTS	 9
#define AT_ROWS		 10
#define AT_TASKS	 11
#define AT_ACT		 12
#define AT_Y		 13
#define AT_LOGITS	 14
#define AT_RESULT	 15
#define AT_EMBED	 16
#define AT_INV_FREQ	 17
#define AT_FINAL_NORM	 18
#define AT_LM_HEAD	 19
#define AT_LAYERS	 20

#define AT_INPUT_NORM	   0
#define AT_POST_NORM	   1
#define AT_NEXT_NORM	   2 /* of the layer behind, or the final one */
#define AT_IN_PROJ	   3
#define AT_OUT_PROJ	   4
#define AT_CONV		   5
#define AT_NEG_A	   6
#define AT_DT_BIAS	   7
#define AT_NORM		   8
#define AT_RING		   9
#define AT_STATE	   10
#define AT_Q_NORM	   11
#define AT_K_NORM	   12
#define AT_K_PAGES	   13
#define AT_V_PAGES	   14
#define AT_ROUTER	   15
#define AT_EXPERTS_GATE_UP 16
#define AT_EXPERTS_DOWN	   17
#define AT_SHARED_GATE_UP  18
#define AT_SHARED_DOWN	   19
#define AT_LAYER_COUNT	   20

#endif
