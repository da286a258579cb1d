// C face of optim.cpp: the optimizers' arithmetic over one range of values, and
// the orthogonalization of a matrix. The loops of one range run in one thread;
// optim.go cuts the ranges at fixed places.
#pragma once

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

// scale multiplies each gradient, keep is 1 - lr*decay, c1 and c2 are the bias
// corrections 1/(1-beta^t).
typedef struct gg_adamw_params {
    float lr, beta1, beta2, eps, keep, scale, c1, c2;
} gg_adamw_params;

typedef struct gg_sgd_params {
    float lr, momentum, keep, scale;
    bool  nesterov;
} gg_sgd_params;

void   gg_adamw(int64_t n, float * w, const float * g, float * m, float * v, const gg_adamw_params * p);
void   gg_sgd(int64_t n, float * w, const float * g, float * m, const gg_sgd_params * p);
// m = momentum*m + scale*g; out = scale*g + momentum*m
void   gg_muon_momentum(int64_t n, const float * g, float * m, float * out, float momentum, float scale);
// w = keep*w - lr*d
void   gg_descend(int64_t n, float * w, const float * d, float lr, float keep);
double gg_sum_squares(int64_t n, const float * x);

// Newton-Schulz iterations on a matrix of n1 rows of n0 values. new returns NULL on an error.
struct gg_ortho * gg_ortho_new(int64_t n0, int64_t n1, int n_threads, gg_err * err);
bool              gg_ortho_run(struct gg_ortho * o, const float * x, float scale, float * y, gg_err * err);
void              gg_ortho_free(struct gg_ortho * o);

#ifdef __cplusplus
}
#endif
