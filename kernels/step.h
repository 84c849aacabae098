/*
 * The step table: the data of a step for the kernels, as one array of ints that the host writes once a step. This file
 * is one text for the host's C, which writes the table (engine/step.c, engine/decode_work.c), and for OpenCL C, which
 * reads it and writes only the counters in it: macros alone. A name that ends in _AT is an offset, if its comment says
 * nothing else: it counts ints from the table's beginning. A float stands in the table as its bits.
 *
 *     section                      its ints
 *     tokens [T]                   the T tokens of all rows, prefill rows first; -1 - d: the id that draw d of the
 *                                  step before has drawn, which the host has not seen yet
 *     positions [T]                the position of each of these tokens in its sequence
 *     token rows [T]               the number of the row of each of these tokens
 *     rows [R][ROW_INTS]           the sequences of the step
 *     block tables                 the KV pages of each row, in the order of their tokens
 *     ring rows [R][ROW_INTS]      the same rows for layers with a sliding window, with block tables of their own; only in
 *                                  models with such layers
 *     page copies [n][COPY_INTS]   pages that these layers copy, in lists (engine/step.c)
 *     tiles [n][QUERY_TILE_INTS]   the work of attention; on a GPU without the rows that generate
 *     splits [n][SPLIT_INTS]       the work of attention for rows that generate, on a GPU, in batches: each for one
 *                                  call of kernel_attention_decode
 *     logits rows [L]              the tokens whose logits the draws need
 *     draws [n][DRAW_INTS]         the draws of the step, in the order of their rows
 *     of each draw                 the ids that it must not draw, its biases [n][BIAS_INTS], its token mask
 *     score rows [S]               tokens of prompts; their logits say how likely the next token of the prompt was
 *     scores [S][SCORE_INTS]       these next tokens
 *     poolings [n][POOLING_INTS]   tokens of prompts whose hidden states are added to the sum of a seat
 *     all [T]                      0, 1, 2 ...; only while activations are dumped
 *     work list                    only if the step is one launch (below)
 *
 * The host reads the result back: a flag | drawn ids [draws] | reports of the draws that want one | results of the
 * scores | sums of the poolings that end. A report says how likely a token was and which tokens are the likeliest.
 *
 * A seat reset is a table of its own, [RESET_INTS] | prompt ids | generated ids: all tokens that a sequence with
 * penalties has before its first draw in a seat.
 */
#ifndef KERNELS_STEP_H
#define KERNELS_STEP_H

/* ---- a row: consecutive tokens of one sequence ---- */

#define ROW_TOKEN     0 /* its first token in the step */
#define ROW_COUNT     1 /* number of its tokens */
#define ROW_START     2 /* position of the first token */
#define ROW_STATE_SRC 3 /* slot of the state from which it continues, or ROW_STATE_ZERO */
#define ROW_STATE_DST 4 /* slot in which it leaves its state; may be that of ROW_STATE_SRC */
#define ROW_PAGES_AT  5 /* its block table */
#define ROW_SNAPSHOTS 6 /* number of states kept inside a prefill row, at most ROW_SNAPSHOTS_MAX */
#define ROW_INTS      16

/* Snapshot i: the number of the row's tokens before it (a multiple of 64, less than ROW_COUNT), and its slot. */
#define ROW_SNAPSHOT_TOKENS(i) (7 + 2 * (i))
#define ROW_SNAPSHOT_SLOT(i)   (8 + 2 * (i))

#define ROW_SPLITS_AT 15 /* number of its first split in its batch */

#define ROW_SNAPSHOTS_MAX 4
#define ROW_STATE_ZERO	  (-1) /* the state is zero: the sequence begins; or the model has no states */

/* ---- a page copy (generic/copy_pages.cl) ---- */

#define COPY_FROM 0
#define COPY_TO	  1
#define COPY_INTS 2

/* ---- a tile: consecutive tokens of a row that attention takes together ---- */

#define QUERY_TILE_ROW	 0
#define QUERY_TILE_TOKEN 1 /* its first token in the step */
#define QUERY_TILE_COUNT 2 /* number of its tokens */
#define QUERY_TILE_INTS	 3

/* ---- a split: up to SPLIT_TOKENS keys of a row that generates (generic/attention_decode.cl) ---- */

#define SPLIT_ROW    0
#define SPLIT_NUMBER 1 /* its first key is at position (this number) * SPLIT_TOKENS */
#define SPLIT_INTS   2

#define SPLIT_TOKENS 128

/* ---- a draw: the parameters of drawing one token ---- */

#define DRAW_LOGITS	  0 /* row of logits; draws from the same row of the step share one */
#define DRAW_TEMPERATURE  1 /* float; 0: the likeliest token */
#define DRAW_TOP_K	  2 /* 0: all */
#define DRAW_TOP_P	  3 /* float */
#define DRAW_MIN_P	  4 /* float */
#define DRAW_PRESENCE	  5 /* penalty, float */
#define DRAW_FREQUENCY	  6 /* penalty, float */
#define DRAW_REPETITION	  7 /* penalty, float */
#define DRAW_SEED_LOW	  8
#define DRAW_SEED_HIGH	  9
#define DRAW_CHOICE	  10 /* number of the choice in its request */
#define DRAW_POSITION	  11 /* tokens that the choice generated before */
#define DRAW_SEAT	  12 /* row of the counts that penalties read; -1: no penalties */
#define DRAW_TOP	  13 /* best tokens that the report lists */
#define DRAW_BANNED_AT	  14 /* ids that must not be drawn */
#define DRAW_BANNED_COUNT 15
#define DRAW_REPORT_AT	  16 /* offset of the report in the result; 0: no report */
#define DRAW_MASK_AT	  17 /* its token mask; DRAW_MASK_NONE: every token may be drawn */
#define DRAW_BIASES_AT	  18 /* numbers that are added to its logits */
#define DRAW_BIAS_COUNT	  19
#define DRAW_INTS	  20

/* A token mask is [ceil(vocabulary / 32)] ints. It has a bit for each token, 1: the token may be drawn. */
#define DRAW_MASK_NONE (-1)

#define BIAS_TOKEN 0 /* rising */
#define BIAS_VALUE 1 /* float */
#define BIAS_INTS  2

/* ---- a score: how likely a given token was ---- */

#define SCORE_TOKEN	0
#define SCORE_TOP	1 /* best tokens that the report lists */
#define SCORE_RESULT_AT 2 /* offset of its result in the result */
#define SCORE_INTS	3

/* ---- a pooling: consecutive tokens whose hidden states are added, one after the other ---- */

#define POOLING_TOKEN  0 /* the first of them in the step */
#define POOLING_COUNT  1
#define POOLING_SEAT   2 /* row of the sums that they are added to */
#define POOLING_BEGINS 3 /* 1: the sum is 0 before; 0: it goes on */
#define POOLING_RESULT_AT \
	4 /* offset of the finished sum in the result; -1: the sum is not finished */
#define POOLING_INTS 5

/* ---- the result ---- */

/* Not 0: a step in one launch was given up, since `late` of its groups did not come to the end of a phase (from 1;
 * nvidia/step_barrier.clh). So pages and states that it was to write may be half written. No kernel sets the number
 * back to 0: it also tells of a step before. */
#define RESULT_GIVEN_UP		 0
#define GIVEN_UP(phase, late)	 ((phase) | (late) << 16)
#define GIVEN_UP_PHASE(given_up) ((given_up)&0xffff)
#define GIVEN_UP_LATE(given_up)	 ((given_up) >> 16)
#define RESULT_IDS		 1 /* the drawn ids */

/* ---- in the result: a report of a token and the `top` best ones ---- */

#define REPORT_LOGPROB		   0	     /* float */
#define REPORT_TOP_ID(i)	   (1 + (i)) /* id of best token i (from 0); -1: there are fewer */
#define REPORT_TOP_LOGPROB(i, top) (1 + (top) + (i)) /* float */
#define REPORT_INTS(top)	   (1 + 2 * (top))

/* The result of a score: the token's rank (1: the best), then its report. */
#define SCORE_RANK	       0
#define SCORE_REPORT	       1
#define SCORE_RESULT_INTS(top) (SCORE_REPORT + REPORT_INTS(top))

/* ---- a seat reset ---- */

#define RESET_SEAT	      0
#define RESET_PROMPT_AT	      1
#define RESET_PROMPT_COUNT    2
#define RESET_GENERATED_AT    3
#define RESET_GENERATED_COUNT 4
#define RESET_INTS	      5

/*
 * ---- the work list: a step without prefill rows, as one launch (decode_step.cl) ----
 *
 * [WORK_INTS] | phases [n][PHASE_INTS], the last of them OP_END. The two counters, WORK_NEXT and WORK_DONE, are 0 when
 * the step begins. They are a cache line apart.
 */
#define WORK_NEXT	   0 /* the next ticket */
#define WORK_DONE	   16 /* tickets done; on a GPU the phases that each group has done, added up */
#define WORK_TOKENS	   32
#define WORK_LOGITS	   33 /* rows of logits */
#define WORK_TOKENS_AT	   34
#define WORK_POSITIONS_AT  35
#define WORK_TOKEN_ROWS_AT 36
#define WORK_ROWS_AT	   37
#define WORK_TILES_AT	   38
#define WORK_LOGITS_AT	   39
#define WORK_SPLITS_AT	   40 /* on a GPU; all splits are in one batch */
#define WORK_SPLITS	   41 /* number of splits */
#define WORK_RING_ROWS_AT  42
#define WORK_INTS	   43

/* A phase is one operation on one layer, or on the embedding or the head. It is divided into parts, which stand in
 * columns and rows. The groups that run take tickets, which are numbered through all phases. A ticket is up to
 * PHASE_TAKE neighbouring parts of one row. On a GPU there are no tickets: a group's share of a phase follows from the
 * group's number (nvidia/decode_step.cl), and each phase is one part. */
#define PHASE_OP      0
#define PHASE_LAYER   1
#define PHASE_FIRST   2 /* its first ticket */
#define PHASE_COLUMNS 3
#define PHASE_TAKE    4
#define PHASE_INTS    5

/* Operations, each with [columns, rows] of its parts. A column group and a row block are the columns and the rows of a
 * part, which kernels_decode_cut returns. */
#define OP_END		0
#define OP_EMBED	1 /* embedding and first norm [1, tokens] */
#define OP_ATTENTION_IN 2 /* input projection [column groups, row blocks] */
#define OP_ATTENTION	3 /* norm, rotation, KV pages, attention [KV heads, tokens] */
/* The output projection goes onto the residual stream, or into AT_Y if outputs are normed. */
#define OP_ATTENTION_OUT     4	/* output projection [column groups, row blocks] */
#define OP_DELTA_IN	     5	/* as OP_ATTENTION_IN */
#define OP_DELTA	     6	/* convolution, state, gated norm [value heads, tokens] */
#define OP_DELTA_OUT	     7	/* as OP_ATTENTION_OUT */
#define OP_ROUTER	     8	/* norm and router logits [groups of router columns, tokens] */
#define OP_TOPK		     9	/* choice of the experts [1, tokens] */
#define OP_SORT		     10 /* rows by expert [1, 1] */
#define OP_TOPK_SORT	     11 /* OP_TOPK of all tokens, then OP_SORT [1, 1] */
#define OP_GATE_UP	     12 /* the experts' gate and up projections [column groups, MoE tasks] */
#define OP_DOWN		     13 /* the experts' down projections [column groups, MoE tasks] */
#define OP_COMBINE	     14 /* sum of the experts, next norm [1, tokens] */
#define OP_LAST_NORM	     15 /* norm of the rows that want logits [1, rows] */
#define OP_LOGITS	     16 /* [column groups, row blocks] */
#define OP_ATTENTION_COMBINE 17 /* sum of a row's splits; on a GPU */
#define OP_SLIDING	     18 /* as OP_ATTENTION, in a layer with a sliding window; on a CPU */
#define OP_ADD_NORM	     19 /* norm of a mixer's output, sum, next norm [1, tokens]; on a CPU */

/* On a GPU there are fewer operations, and some do more. OP_ATTENTION_IN, OP_DELTA_IN, OP_ROUTER and OP_LOGITS norm
 * their rows for themselves, so OP_EMBED norms none, and there is no OP_LAST_NORM. OP_GATE_UP chooses the experts, and
 * OP_DOWN adds their sum to the residual stream: OP_TOPK, OP_SORT, OP_TOPK_SORT and OP_COMBINE are of a CPU.
 * OP_ATTENTION leaves the sum of a row's splits to OP_ATTENTION_COMBINE. */

/* ---- beside the table ----
 *
 * The numbers of buffers. A step in one launch finds the addresses of its buffers in one array: [AT_LAYERS] of the
 * model, then [AT_LAYER_COUNT] for each layer. engine/layers/layer.h has their shapes. */
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
#define AT_PARTIAL	 20
#define AT_STATS	 21
#define AT_LAYERS	 22

#define AT_INPUT_NORM	   0
#define AT_POST_NORM	   1
#define AT_NEXT_NORM	   2
#define AT_IN_PROJ	   3
#define AT_OUT_PROJ	   4
#define AT_CONV		   5
#define AT_NEG_A	   6
#define AT_DT_BIAS	   7
#define AT_GATED_NORM	   8
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
#define AT_QKV_BIAS	   20
#define AT_MIXER_NORM	   21
#define AT_MLP_NORM	   22
#define AT_LAYER_COUNT	   23

/* The experts' work (moe_route.cl): number of tasks | tasks [n][TASK_INTS]. A task is up to TASK_ROWS rows of one
 * expert. */
#define TASK_EXPERT 0 /* the expert's number; the shared expert comes after the last */
#define TASK_FIRST  1 /* place of its first row in the list of rows (moe_route.cl) */
#define TASK_COUNT  2 /* its number of rows */
#define TASK_INTS   3
#define TASK_AT(i)  (1 + TASK_INTS * (i)) /* offset of task i in the list */
#define TASK_ROWS   128

#endif
