// The scan in chunks, where lanes read the last lane's sum without waiting for it.
#include "krait.h"
#define __nvvm_bar_warp_sync(lanes)
#define FORMAT f32
#include "ssd.cu"
