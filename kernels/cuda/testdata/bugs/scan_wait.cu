// The scan in chunks, where what is copied to shared memory is waited for too late: one
// group of copies more may be in flight.
#include "krait.h"
template <int n> DEVICE void wait_too_late() { wait_groups<n + 1>(); }
#define wait_groups wait_too_late
#define FORMAT f32
#include "scan.cu"
