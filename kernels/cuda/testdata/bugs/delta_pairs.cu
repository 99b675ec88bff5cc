// The delta rule in chunks with a decay per row, where keys and queries get their decays while other
// warps still multiply them with each other: the second barrier in a chunk is missing. The steps have
// the first.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync() \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 2)                                                                            \
			barrier();                                                                                         \
	} while (0)
#define FORMAT f32
#include "delta.cu"
