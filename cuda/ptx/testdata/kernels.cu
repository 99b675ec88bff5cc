// Kernels as a language model has them.
#include "cuda.h"

KERNEL rmsnorm(float *y, const float *__restrict__ x, const float *__restrict__ w, int n, float eps) {
  __shared__ float part[32];
  x += (long)ctaid() * n;
  y += (long)ctaid() * n;
  float s = 0;
  for (int i = tid(); i < n; i += ntid()) s += x[i] * x[i];
  s = warp_sum(s);
  if ((tid() & 31) == 0) part[tid() >> 5] = s;
  __syncthreads();
  if (tid() < 32) {
    s = tid() < (ntid() + 31) / 32 ? part[tid()] : 0;
    s = warp_sum(s);
    sync_warp();
    if (tid() == 0) part[0] = s;
  }
  __syncthreads();
  float r = __nvvm_rsqrt_approx_f(part[0] / n + eps);
  for (int i = tid(); i < n; i += ntid()) y[i] = x[i] * r * w[i];
}

// One warp for each row; weights are bf16, eight to a load.
KERNEL gemv(float *y, const uint4 *__restrict__ w, const float4 *__restrict__ x, int k) {
  int lane = tid() & 31;
  int row = ctaid() * (ntid() >> 5) + (tid() >> 5);
  const uint4 *wr = w + (long)row * (k / 8);
  float s = 0;
  for (int i = lane; i < k / 8; i += 32) {
    uint4 v = wr[i];
    float4 a = x[2 * i], b = x[2 * i + 1];
    s += bf2f(v.x) * a.x + bf2f(v.x >> 16) * a.y + bf2f(v.y) * a.z + bf2f(v.y >> 16) * a.w;
    s += bf2f(v.z) * b.x + bf2f(v.z >> 16) * b.y + bf2f(v.w) * b.z + bf2f(v.w >> 16) * b.w;
  }
  for (int d = 16; d; d >>= 1) s += shfl_down(s, d);
  if (lane == 0) y[row] = s;
}

// Mamba's selective scan: one thread for each channel, its state in registers.
template <int N> static __device__ inline void scan(float *y, float *h, const float *x, const float *dt, const float *A, const float *B, const float *C, int T, int D) {
  int d = ctaid() * ntid() + tid();
  if (d >= D) return;
  float state[N];
  for (int n = 0; n < N; n++) state[n] = h[d * N + n];
  for (int t = 0; t < T; t++) {
    float u = x[t * D + d], delta = dt[t * D + d];
    delta = delta > 20 ? delta : __nvvm_lg2_approx_ftz_f(1 + exp_(delta)) * 0.6931471805599453f;
    float o = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
      state[n] = state[n] * exp_(delta * A[d * N + n]) + delta * B[t * N + n] * u;
      o += state[n] * C[t * N + n];
    }
    y[t * D + d] = o;
  }
  for (int n = 0; n < N; n++) h[d * N + n] = state[n];
}
KERNEL scan16(float *y, float *h, const float *x, const float *dt, const float *A, const float *B, const float *C, int T, int D) {
  scan<16>(y, h, x, dt, A, B, C, T, D);
}

// One block of one warp for each row, kept in dynamic shared memory.
KERNEL softmax(u16 *y, const u16 *x, int n) {
  extern __shared__ float row[];
  float top = -__builtin_inff();
  for (int i = tid(); i < n; i += ntid()) {
    float v = h2f(x[ctaid() * n + i]);
    row[i] = v;
    top = __builtin_fmaxf(top, v);
  }
  for (int d = 16; d; d >>= 1) top = __builtin_fmaxf(top, shfl_xor(top, d));
  float s = 0;
  for (int i = tid(); i < n; i += ntid()) {
    float e = exp_(row[i] - top);
    row[i] = e;
    s += e;
  }
  s = warp_sum(s);
  for (int i = tid(); i < n; i += ntid()) y[ctaid() * n + i] = f2bf(row[i] / s);
}

// A tile of 16 by 8 of A·Bᵀ for each warp, in two stages of shared memory.
KERNEL matmul(float *C, const u16 *A, const u16 *B, int N, int K) {
  __shared__ __attribute__((aligned(16))) u16 sa[2][16 * 16], sb[2][8 * 16];
  int lane = tid(), m = 16 * ctaid(), n = 8 * __nvvm_read_ptx_sreg_ctaid_y();
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  auto load = [&](int k, int stage) {
    const u16 *a = A + (m + lane / 2) * K + k + lane % 2 * 8;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&sa[stage][lane * 8])), "l"(a) : "memory");
    if (lane < 16) {
      const u16 *b = B + (n + lane / 2) * K + k + lane % 2 * 8;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&sb[stage][lane * 8])), "l"(b) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  load(0, 0);
  for (int k = 0, stage = 0; k < K; k += 16, stage ^= 1) {
    if (k + 16 < K) {
      load(k + 16, stage ^ 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    unsigned a0, a1, a2, a3, b0, b1;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3)
                 : "r"(shared_address(&sa[stage][lane % 16 * 16 + lane / 16 * 8])) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(b0), "=r"(b1)
                 : "r"(shared_address(&sb[stage][lane % 8 * 16 + lane / 8 % 2 * 8])) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    __syncthreads();
  }
  int g = lane / 4, t = lane % 4 * 2;
  C[(m + g) * N + n + t] = c0;
  C[(m + g) * N + n + t + 1] = c1;
  C[(m + g + 8) * N + n + t] = c2;
  C[(m + g + 8) * N + n + t + 1] = c3;
}

// Attention of one query for each block over a cache of bf16 keys and values,
// with running maximum and sum.
KERNEL attend(float *y, const float *q, const u16 *keys, const u16 *values, int T, int D) {
  extern __shared__ float s[];
  __shared__ float acc[4][64], top[4], sum[4];
  int lane = tid() & 31, warp = tid() >> 5;
  for (int i = tid(); i < D; i += ntid()) s[i] = q[ctaid() * D + i];
  __syncthreads();
  float m = -__builtin_inff(), z = 0, a0 = 0, a1 = 0;
  for (int t = warp; t < T; t += 4) {
    float dot = s[lane] * bf2f(keys[t * D + lane]) + s[lane + 32] * bf2f(keys[t * D + lane + 32]);
    dot = warp_sum(dot) * 0.125f;
    float next = __builtin_fmaxf(m, dot), keep = exp_(m - next), p = exp_(dot - next);
    z = z * keep + p;
    a0 = a0 * keep + p * bf2f(values[t * D + lane]);
    a1 = a1 * keep + p * bf2f(values[t * D + lane + 32]);
    m = next;
  }
  acc[warp][lane] = a0;
  acc[warp][lane + 32] = a1;
  if (lane == 0) top[warp] = m, sum[warp] = z;
  __syncthreads();
  if (warp) return;
  float best = top[0];
  for (int w = 1; w < 4; w++) best = __builtin_fmaxf(best, top[w]);
  float o0 = 0, o1 = 0, total = 0;
  for (int w = 0; w < 4; w++) {
    float f = exp_(top[w] - best);
    total += f * sum[w];
    o0 += f * acc[w][lane];
    o1 += f * acc[w][lane + 32];
  }
  y[ctaid() * D + lane] = o0 / total;
  y[ctaid() * D + lane + 32] = o1 / total;
}

// A sum over all blocks: the last one to finish adds what the others left.
__device__ unsigned finished;
KERNEL total(float *out, float *part, const float *x, int n) {
  __shared__ float s[128];
  __shared__ bool last;
  float v = 0;
  for (int i = ctaid() * ntid() + tid(); i < n; i += ntid() * nctaid()) v += x[i];
  s[tid()] = v;
  __syncthreads();
  for (int d = ntid() / 2; d; d >>= 1) {
    if (tid() < d) s[tid()] += s[tid() + d];
    __syncthreads();
  }
  if (tid() == 0) {
    part[ctaid()] = s[0];
    __nvvm_membar_gl();
    last = __nvvm_atom_inc_gen_ui(&finished, nctaid() - 1) == nctaid() - 1;
  }
  __syncthreads();
  if (last) {
    float t = 0;
    for (int b = tid(); b < nctaid(); b += ntid()) t += part[b];
    s[tid()] = t;
    __syncthreads();
    if (tid() == 0) {
      t = 0;
      for (int i = 0; i < ntid(); i++) t += s[i];
      *out = t;
    }
  }
}

// What is left of CUDA that the others do not use.
struct Shape { const float *x; int n; float scale[5]; };
__device__ float table[4] = {1, 2, 3, 4};
__constant__ int offsets[3] = {7, 8, 9};
KERNEL byvalue(float *y, const Shape p, bool scaled) {
  int i = tid();
  if (i < p.n) y[i] = scaled ? p.x[i] * p.scale[i % 5] + offsets[i % 3] : p.scale[i & 3] + table[i & 3];
}
__attribute__((noinline)) __device__ float power(float x, int n) {
  float y = 1;
  for (int i = 0; i < n; i++) y *= x;
  return y;
}
KERNEL calls(float *y, int n) {
  float v = y[tid()];
  if (tid() & 1) v = power(v, n);
  y[tid()] = power(v, 2);
}
KERNEL local(float *y, const float *x, int n, int step) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = x[i] * tid();
  for (int i = 0; i < n; i++) a[i * step & 63] += a[i * 5 & 63];
  float s = 0;
  for (int i = 0; i < 64; i++) s += a[i] * i;
  y[tid()] = s;
}
KERNEL choose(int *y, int n) {
  int v = y[tid()];
  switch (v) {
  case 0: v = 11 * n; break;
  case 1: v = n / 3; break;
  case 2: v = n % 5 - 2; break;
  case 3: v = n << 4; break;
  case 4: v = __builtin_popcount(n); break;
  case 5: v = n * n; break;
  case 6: v = __builtin_clz(n); break;
  case 7: v = -n; break;
  default: __builtin_trap();
  }
  y[tid()] = v;
}
// The Collatz steps of each number: loops and ends that diverge.
KERNEL collatz(int *y, int n) {
  int i = ctaid() * ntid() + tid();
  if (i >= n) return;
  unsigned v = i + 1;
  int steps = 0;
  while (v != 1) {
    v = v % 2 ? 3 * v + 1 : v / 2;
    steps++;
  }
  y[i] = steps;
}
// How many threads of the warp have the same value, by ballots and by match.
KERNEL votes(int *y, const int *x) {
  int v = x[tid()];
  unsigned same = all;
  for (int b = 0; b < 8; b++) {
    unsigned set = __nvvm_vote_ballot_sync(all, v >> b & 1);
    same &= v >> b & 1 ? set : ~set;
  }
  unsigned match = __nvvm_match_any_sync_i32(all, v);
  if (match != same) __builtin_trap();
  if (tid() % 32 < 16) {
    int leader = __nvvm_shfl_sync_idx_i32(0xffff, v, 3, 31);
    y[tid()] = __builtin_popcount(same) + 100 * leader;
  } else {
    y[tid()] = __builtin_popcount(same) - 1000 * __nvvm_vote_any_sync(0xffff0000, v == 3);
  }
}
KERNEL count(int *y, const int *x) {
  int v = x[tid()];
  int n = __nvvm_bar0_popc(v), every = __nvvm_bar0_and(v), any = __nvvm_bar0_or(v);
  y[tid()] = n * 4 + (every != 0) * 2 + (any != 0);
}
KERNEL wide(unsigned long *q, const unsigned long *a, const unsigned long *b, double *d, _Float16 *h) {
  int t = tid();
  unsigned __int128 x = (unsigned __int128)a[2 * t + 1] << 64 | a[2 * t], y = (unsigned __int128)b[2 * t + 1] << 64 | b[2 * t];
  unsigned __int128 s = x + y, m = x - y, p = x * y;
  q[6 * t] = s, q[6 * t + 1] = s >> 64, q[6 * t + 2] = m, q[6 * t + 3] = m >> 64, q[6 * t + 4] = p, q[6 * t + 5] = p >> 64;
  d[t] = __builtin_sqrt(d[t]) / 3 + __builtin_floor(d[t]) + (double)a[2 * t] + (int)d[t];
  h[t] = h[t] * h[t] + h[t];
}
