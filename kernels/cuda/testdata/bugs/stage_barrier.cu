// Products on tensor cores, where what x is taken apart into is read before it is there: the
// barrier behind is missing.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync() \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 8)                                                                            \
			barrier();                                                                                         \
	} while (0)
#define FORMAT bf16
#include "matmul_mma.cu"
