// What the kernels here need of CUDA's headers, which clang does not bring.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
#define KERNEL extern "C" __global__ void

struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
typedef unsigned short u16;

static __device__ inline int tid() { return __nvvm_read_ptx_sreg_tid_x(); }
static __device__ inline int ntid() { return __nvvm_read_ptx_sreg_ntid_x(); }
static __device__ inline int ctaid() { return __nvvm_read_ptx_sreg_ctaid_x(); }
static __device__ inline int nctaid() { return __nvvm_read_ptx_sreg_nctaid_x(); }

const unsigned all = 0xffffffffu;
static __device__ inline float shfl_down(float v, int d) { return __nvvm_shfl_sync_down_f32(all, v, d, 31); }
static __device__ inline float shfl_xor(float v, int d) { return __nvvm_shfl_sync_bfly_f32(all, v, d, 31); }
static __device__ inline int shfl_idx(int v, int l) { return __nvvm_shfl_sync_idx_i32(all, v, l, 31); }
static __device__ inline void sync_warp() { __nvvm_bar_warp_sync(all); }

static __device__ inline float warp_sum(float v) {
  for (int d = 16; d; d >>= 1) v += shfl_xor(v, d);
  return v;
}
static __device__ inline float exp_(float x) { return __nvvm_ex2_approx_ftz_f(x * 1.4426950408889634f); }
static __device__ inline float bf2f(u16 v) { return __builtin_bit_cast(float, (unsigned)v << 16); }
static __device__ inline u16 f2bf(float v) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v)); return r; }
static __device__ inline float h2f(u16 v) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v)); return r; }
static __device__ inline u16 f2h(float v) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v)); return r; }

template <class T> static __device__ inline unsigned shared_address(T *p) {
  return (unsigned)(unsigned long)(__attribute__((address_space(3))) T *)p;
}
