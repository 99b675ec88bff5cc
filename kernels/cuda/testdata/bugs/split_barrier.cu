// Products of numbers that are taken apart, where the first step is read before it is there:
// the first barrier is missing.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync()                                                                                                             \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 0)                                                                            \
			barrier();                                                                                         \
	} while (0)
#define FORMAT bf16
#include "matmul_split.cu"
