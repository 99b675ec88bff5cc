/* A stand-in for libcuda.so.1, of the calls that package gorgoniacu leads to: each
   hands its name and its arguments to a function that the test gives (fake_test.go).
   cuInit comes before that, when the program starts. */
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t word;
static int (*answer)(const char *call, const word *args);

void krait_answer(int (*f)(const char *, const word *)) { answer = f; }

/* CALL is the answer to the call that it stands in; 3 is not initialized. */
#define CALL(...) return answer ? answer(__func__, (word[]){__VA_ARGS__}) : 3

int cuInit(unsigned flags) { return flags; }
int cuDriverGetVersion(word v) { CALL(v); }

int cuDeviceGetCount(word n) { CALL(n); }
int cuDeviceGet(word d, int i) { CALL(d, i); }
int cuDeviceGetName(word s, int n, int d) { CALL(s, n, d); }
int cuDeviceTotalMem_v2(word n, int d) { CALL(n, d); }
int cuDeviceGetAttribute(word n, int a, int d) { CALL(n, a, d); }
int cuDeviceCanAccessPeer(word n, int d, int peer) { CALL(n, d, peer); }
int cuDeviceGetP2PAttribute(word n, int a, int d, int peer) { CALL(n, a, d, peer); }
int cuDevicePrimaryCtxRetain(word c, int d) { CALL(c, d); }
int cuDevicePrimaryCtxRelease_v2(int d) { CALL(d); }

int cuCtxSetCurrent(word c) { CALL(c); }
int cuCtxSynchronize(void) { CALL(0); }
int cuCtxEnablePeerAccess(word c, unsigned flags) { CALL(c, flags); }

int cuMemGetInfo_v2(word free, word total) { CALL(free, total); }
int cuMemAlloc_v2(word p, size_t n) { CALL(p, n); }
int cuMemFree_v2(word p) { CALL(p); }
int cuMemcpyHtoDAsync_v2(word d, word s, size_t n, word q) { CALL(d, s, n, q); }
int cuMemcpyDtoHAsync_v2(word d, word s, size_t n, word q) { CALL(d, s, n, q); }
int cuMemcpyDtoDAsync_v2(word d, word s, size_t n, word q) { CALL(d, s, n, q); }
int cuMemcpyPeerAsync(word d, word dc, word s, word sc, size_t n, word q) { CALL(d, dc, s, sc, n, q); }
int cuMemsetD8Async(word d, unsigned char v, size_t n, word q) { CALL(d, v, n, q); }

int cuStreamCreate(word q, unsigned flags) { CALL(q, flags); }
int cuStreamDestroy_v2(word q) { CALL(q); }
int cuStreamSynchronize(word q) { CALL(q); }
int cuStreamQuery(word q) { CALL(q); }
int cuStreamWaitEvent(word q, word e, unsigned flags) { CALL(q, e, flags); }

int cuEventCreate(word e, unsigned flags) { CALL(e, flags); }
int cuEventDestroy_v2(word e) { CALL(e); }
int cuEventRecord(word e, word q) { CALL(e, q); }
int cuEventSynchronize(word e) { CALL(e); }
int cuEventElapsedTime(word ms, word start, word end) { CALL(ms, start, end); }

int cuModuleLoadDataEx(word m, word image, unsigned n, word options, word values) { CALL(m, image, n, options, values); }
int cuModuleUnload(word m) { CALL(m); }
int cuModuleGetFunction(word f, word m, word name) { CALL(f, m, name); }
int cuFuncGetAttribute(word n, int a, word f) { CALL(n, a, f); }

int cuLaunchKernel(word f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, word q, word params, word extra) {
	CALL(f, gx, gy, gz, bx, by, bz, shared, q, params, extra);
}
