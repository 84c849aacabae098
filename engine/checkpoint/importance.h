/* How much an error of each column of a matrix counts: the mean of the squares of the numbers that the column is multiplied
 * with, over the tokens of a text. Programs of llama.cpp call this an importance matrix. With it the sum of squares that
 * quantising minimises (types/fit.h) is an estimate of the squares by which the matrix' outputs change.
 *
 * Matrices that read the same rows share their squares, and an expert has the rows of its own tokens alone. */
#pragma once

#include <stdbool.h>

#include "engine/checkpoint/weight.h"

struct importance;

/* Returns squares without a row; NULL: out of memory. */
struct importance *importance_new(uint32_t n_layers);
void importance_free(struct importance *m);

/* Adds a row of inputs [cols] of a matrix, that of one of `experts` experts (1: none). All rows of a matrix have equally
 * many columns and experts. Lack of memory is kept (importance_failed). */
void importance_add(struct importance *m, enum weight_role role, uint32_t layer, uint32_t experts,
		    uint32_t expert, const float *row, uint32_t cols);
void importance_fail(struct importance *m);
bool importance_failed(const struct importance *m);

/* Writes the means of sums over `rows` rows to out [cols]. No mean is less than a millionth of their own mean, so that no
 * column is free to have any number. False: there are none, or they are zeros or not finite. */
bool importance_means(const double *sums, double rows, uint64_t cols, float *out);

/* Writes the means of a matrix, or of the one of an expert, to out [cols]. False: no row was added, or all are zeros, or
 * the matrix has other columns. */
bool importance_of(const struct importance *m, enum weight_role role, uint32_t layer,
		   uint32_t expert, uint64_t cols, float *out);
