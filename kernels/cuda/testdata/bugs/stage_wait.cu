// Products on tensor cores, where stages are waited for too late: one more may be in flight.
#include "krait.h"
template <int n> DEVICE void wait_too_late() { wait_groups<n + 1>(); }
#define wait_groups wait_too_late
#define FORMAT bf16
#include "matmul_mma.cu"
