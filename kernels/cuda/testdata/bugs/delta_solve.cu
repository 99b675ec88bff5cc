// The delta rule in chunks, where tokens read what a warp has yet to solve for: the barrier before
// that is missing. The steps have the first.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync() \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 5)                                                                            \
			barrier();                                                                                         \
	} while (0)
#define FORMAT f32
#include "delta.cu"
