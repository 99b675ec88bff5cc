// The scan in f32 on tensor cores, where a warp puts out what others have not yet given: the
// barrier at the end of a chunk is missing.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync() \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 3)                                                                            \
			barrier();                                                                                         \
	} while (0)
#define FORMAT f32
#include "ssd_split.cu"
