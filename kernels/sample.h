/* The blocks of tokens into which sample.cl divides a vocabulary, and the scratch of a draw, [SAMPLE_FLOATS] float, and
 * of a score, [SCORE_FLOATS]. One text for the kernel and for its launcher: macros alone.
 *
 * The scratch: lists with a number for each block, [SAMPLE_LIST] each, one behind the other; then a bit for each token,
 * 1: it is banned; then the logits of some blocks, in whose place their weights are written. A score uses only the
 * lists BEST, SUM and MASS; its MASS is the number of better tokens in each block. */
#ifndef KERNELS_SAMPLE_H
#define KERNELS_SAMPLE_H

#define SAMPLE_BLOCK	     128
#define SAMPLE_BLOCKS(vocab) (((vocab) + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK)
#define SAMPLE_LIST(vocab)   ((SAMPLE_BLOCKS(vocab) + 15) / 16 * 16)

/* Of each block: its best logit, and the sum of exp((logit - best) / temperature) over its tokens. */
#define SAMPLE_BEST(vocab) (0 * SAMPLE_LIST(vocab))
#define SAMPLE_SUM(vocab)  (1 * SAMPLE_LIST(vocab))
/* The same lists for the raw logits: before biases, penalties and bans, at temperature 1. */
#define SAMPLE_RAW_BEST(vocab) (2 * SAMPLE_LIST(vocab))
#define SAMPLE_RAW_SUM(vocab)  (3 * SAMPLE_LIST(vocab))
#define SAMPLE_MASS(vocab)     (4 * SAMPLE_LIST(vocab)) /* weights of blocks, by which one is chosen */
#define SCORE_FLOATS(vocab)    (5 * SAMPLE_LIST(vocab)) /* the whole scratch of a score */
#define SAMPLE_LISTED(vocab)   (5 * SAMPLE_LIST(vocab)) /* int: numbers of blocks, ascending */
#define SAMPLE_BANNED(vocab)   (6 * SAMPLE_LIST(vocab)) /* uint: a bit a token */
#define SAMPLE_LOGITS(vocab)   (SAMPLE_BANNED(vocab) + SAMPLE_LIST(vocab) * (SAMPLE_BLOCK / 32))
#define SAMPLE_FLOATS(vocab)   (SAMPLE_LOGITS(vocab) + SAMPLE_BLOCKS(vocab) * SAMPLE_BLOCK)

#endif
