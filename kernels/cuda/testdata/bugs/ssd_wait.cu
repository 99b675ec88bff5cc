// The scan in f32 on tensor cores, where C is read that has been asked for and not waited for.
#include "krait.h"
template <int n> DEVICE void wait_for_x() { wait_groups<2>(); }
#define wait_groups wait_for_x
#define FORMAT f32
#include "ssd_split.cu"
