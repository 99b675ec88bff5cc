// Where sums reach a goal is found several times: what is found next overwrites what warps
// still read of the last. The barrier between is missing.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync() \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 7)                                                                            \
			barrier();                                                                                         \
	} while (0)
#include "sampling.cu"
