// The scan in chunks, where B and x are read that have been asked for and not waited for.
#include "krait.h"
template <int n> DEVICE void wait_for_c() { wait_groups<1>(); }
#define wait_groups wait_for_c
#define FORMAT f32
#include "ssd.cu"
