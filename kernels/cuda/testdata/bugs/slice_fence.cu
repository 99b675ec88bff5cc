// The last of the blocks of a tile reads what those of other slices have summed up, which no fence
// has made visible to it.
#include "krait.h"
#define fence() ((void)0)
#define FORMAT bf16
#include "matmul_mma.cu"
