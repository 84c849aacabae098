/* The shape for which run.py compiles the kernels. It makes options of these lines. */
#pragma once

#define HIDDEN	    256
#define EXPERTS	    4
#define TOPK	    2
#define EXPERT_SIZE 64
#define SHARED_SIZE 96
#define ROW_BLOCK   64
#define LANES	    64

/* Elements of a row of activations. */
#define ACT_LD 96
