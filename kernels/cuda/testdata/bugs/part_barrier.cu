// The inputs that a convolution keeps of parts, where a thread overwrites what others still read: the
// barrier before is missing.
#include "parts.h"
#define sync()
#define FORMAT f32
#include "conv.cu"
