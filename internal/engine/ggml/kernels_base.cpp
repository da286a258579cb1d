// Kernels for any CPU: vectors of four, which are NEON on ARM and SSE on x86.
#include "kernels.h"

#define NS  base
#define VW  4
#define MR  6
#define MR1 8
#include "kernels_body.hpp"
