// Single tokens of a block's sequences, where the batch has fewer than a block: the segments behind
// it are read.
#include "krait.h"
#define min(a, b) (a)
#define FORMAT f32
#include "scan.cu"
