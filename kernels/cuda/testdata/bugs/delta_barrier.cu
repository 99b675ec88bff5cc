// The delta rule in chunks, where the next keys overwrite those that other warps still carry the
// state past: the last barrier in a chunk is missing. The steps have the first.
#include "krait.h"
DEVICE void barrier() { sync(); }
#define sync() \
	do {                                                                                                               \
		if constexpr (__COUNTER__ != 6)                                                                            \
			barrier();                                                                                         \
	} while (0)
#define FORMAT f32
#include "delta.cu"
