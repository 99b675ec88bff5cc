// Sums over a block, of which the second overwrites what warps still read for the
// first: the second barrier is missing.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync()                                                                                                             \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 1)                                                                            \
			barrier();                                                                                         \
	} while (0)
#include "sampling.cu"
