// States of the delta rule from part to part, where a warp multiplies what others have yet to put: the
// barrier is missing.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync() \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 7)                                                                            \
			barrier();                                                                                         \
	} while (0)
#define FORMAT f32
#include "delta.cu"
