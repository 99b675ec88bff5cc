/* A stand-in for libcuda.so.1. With -DREAL_HEADERS it is compiled against
   cuda.h, which proves the signatures. */
#include "fake.h"
#ifdef REAL_HEADERS
#include <cuda.h>
#else
#include <stdint.h>
typedef int CUresult, CUdevice, CUdevice_attribute, CUdevice_P2PAttribute, CUfunction_attribute, CUjit_option;
typedef int CUstreamCaptureMode, CUstreamCaptureStatus;
typedef unsigned long long CUdeviceptr;
typedef struct { int id; char pad[4]; union { char pad[64]; void *align; int programmaticStreamSerializationAllowed; } value; } CUlaunchAttribute;
typedef struct {
	unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
	void *hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;
typedef void *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUgraph, *CUgraphExec, *CUgraphNode;
#endif

static char memory[1 << 16] __attribute__((aligned(4096)));
static size_t used;
static int made; /* handles */
static int capturing[4096];
static __thread CUcontext current;

static void *handle(int kind) { return (void *)(size_t)(kind + made++ % 256); }

/* Device memory is in memory, or nowhere if it is large. */
static int real(CUdeviceptr p) { return p >= (CUdeviceptr)memory && p < (CUdeviceptr)memory + sizeof memory; }
static long at(CUdeviceptr p) { return real(p) ? (long)(p - (CUdeviceptr)memory) : (long)p; }

static char loading[16]; /* CUDA_MODULE_LOADING as cuInit found it */
const char *fake_loading(void) { return loading; }

CUresult cuInit(unsigned int flags) { CALL("%u", flags); snprintf(loading, sizeof loading, "%s", getenv("CUDA_MODULE_LOADING")); used = made = 0; memset(capturing, 0, sizeof capturing); return 0; }
CUresult cuDriverGetVersion(int *v) { CALL(""); *v = number("version", 12040); return 0; }
CUresult cuGetErrorName(CUresult e, const char **p) { CALL("%d", e); *p = "CUDA_ERROR_NEW"; return 0; }
CUresult cuGetErrorString(CUresult e, const char **p) { CALL("%d", e); *p = "something new"; return 0; }

CUresult cuDeviceGetCount(int *n) { CALL(""); *n = number("devices", 2); return 0; }
CUresult cuDeviceGet(CUdevice *d, int i) { CALL("%d", i); *d = 10 + i; return 0; }
CUresult cuDeviceGetName(char *s, int n, CUdevice d) { CALL("%d %d", n, d); snprintf(s, n, "Fake %d", d); return 0; }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { CALL("%d", d); *n = 80000000000; return 0; }
CUresult cuDeviceGetAttribute(int *n, CUdevice_attribute a, CUdevice d) { CALL("%d %d", a, d); *n = a == 75 ? 9 : a == 76 ? 0 : 1000 + a; return 0; }
CUresult cuDeviceGetPCIBusId(char *s, int n, CUdevice d) { CALL("%d %d", n, d); snprintf(s, n, "0000:%02x:00.0", d); return 0; }
CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) { CALL("%d %d", d, peer); *can = 1; return 0; }
CUresult cuDeviceGetP2PAttribute(int *n, CUdevice_P2PAttribute a, CUdevice d, CUdevice peer) { CALL("%d %d %d", a, d, peer); *n = a == 3; return 0; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { CALL("%d", d); *c = (CUcontext)(size_t)(0xc000 + d); return 0; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) { CALL("%d", d); return 0; }
CUresult cuCtxSetCurrent(CUcontext c) { CALL("%p", c); current = c; return 0; }
CUresult cuCtxGetCurrent(CUcontext *c) { *c = current; return 0; }
CUresult cuCtxSynchronize(void) { CALL(""); return 0; }
CUresult cuCtxEnablePeerAccess(CUcontext c, unsigned int flags) { CALL("%p %u", c, flags); return 0; }

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 1200000000; *total = 80000000000; return 0; }
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	CALL("%zu", n);
	if (n > sizeof memory - used) {
		*p = 0x700000000000;
		return 0;
	}
	*p = (CUdeviceptr)memory + used;
	used += (n + 255) / 256 * 256;
	return 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) { CALL("%#lx", at(p)); return 0; }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned int flags) { CALL("%zu %u", n, flags); *p = malloc(n); return 0; }
CUresult cuMemFreeHost(void *p) { CALL(""); free(p); return 0; }

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *s, size_t n, CUstream q) {
	CALL("%#lx %zu %p", at(d), n, q);
	if (real(d)) memcpy((void *)(size_t)d, s, n);
	return 0;
}
CUresult cuMemcpyDtoHAsync_v2(void *d, CUdeviceptr s, size_t n, CUstream q) {
	CALL("%#lx %zu %p", at(s), n, q);
	if (real(s)) memcpy(d, (void *)(size_t)s, n);
	return 0;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream q) { CALL("%#lx %#lx %zu %p", at(d), at(s), n, q); return 0; }
CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream q) {
	CALL("%#lx %p %#lx %p %zu %p", at(d), dc, at(s), sc, n, q);
	return 0;
}
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream q) { CALL("%#lx %d %zu %p", at(d), v, n, q); return 0; }

CUresult cuStreamCreate(CUstream *q, unsigned int flags) { CALL("%u", flags); *q = handle(0x100); return 0; }
CUresult cuStreamDestroy_v2(CUstream q) { CALL("%p", q); return 0; }
CUresult cuStreamSynchronize(CUstream q) { CALL("%p", q); return 0; }
CUresult cuStreamQuery(CUstream q) { CALL("%p", q); return 0; }
CUresult cuStreamWaitEvent(CUstream q, CUevent e, unsigned int flags) { CALL("%p %p %u", q, e, flags); return 0; }
CUresult cuStreamIsCapturing(CUstream q, CUstreamCaptureStatus *s) { *s = capturing[(size_t)q]; return 0; }
CUresult cuStreamBeginCapture_v2(CUstream q, CUstreamCaptureMode mode) { CALL("%p %d", q, mode); capturing[(size_t)q] = 1; return 0; }
CUresult cuStreamEndCapture(CUstream q, CUgraph *g) { capturing[(size_t)q] = 0; CALL("%p", q); *g = handle(0x600); return 0; }

CUresult cuEventCreate(CUevent *e, unsigned int flags) { CALL("%u", flags); *e = handle(0x200); return 0; }
CUresult cuEventDestroy_v2(CUevent e) { CALL("%p", e); return 0; }
CUresult cuEventRecord(CUevent e, CUstream q) { CALL("%p %p", e, q); return 0; }
CUresult cuEventSynchronize(CUevent e) { CALL("%p", e); return 0; }
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) { CALL("%p %p", start, end); *ms = 1.5f; return 0; }

CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned int n, CUjit_option *options, void **values) {
	CALL("%zu bytes, %u options %d %d %d %d, logs of %zu and %zu", strlen(image), n, options[0], options[1], options[2], options[3], (size_t)values[1], (size_t)values[3]);
	if (strstr(image, "BAD")) {
		snprintf(values[2], (size_t)values[3], "ptxas application ptx input, line 1; error : BAD");
		return 218;
	}
	*m = handle(0x300);
	return 0;
}
CUresult cuModuleUnload(CUmodule m) { CALL("%p", m); return 0; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	CALL("%p %s", m, name);
	if (!strcmp(name, "none")) return 500;
	*f = handle(0x400);
	return 0;
}
CUresult cuFuncGetAttribute(int *n, CUfunction_attribute a, CUfunction f) { CALL("%d %p", a, f); *n = 10 + a; return 0; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int n) { CALL("%p %d %d", f, a, n); return 0; }

static const char *hex(void **extra, char *block) {
	for (int i = 0; extra && extra[i]; i += 2) {
		if (extra[i] == (void *)1) {
			size_t n = *(size_t *)extra[3], k = 0;
			for (size_t j = 0; j < n; j++) k += sprintf(block + k, "%02x", ((unsigned char *)extra[i + 1])[j]);
		} else if (extra[i] != (void *)2) {
			return NULL;
		}
	}
	return extra ? block : "null";
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
	char block[512] = "", attributes[256] = "";
	const char *bytes = hex(extra, block);
	if (!bytes) return 1;
	for (unsigned int i = 0, k = 0; i < c->numAttrs; i++) k += sprintf(attributes + k, " %d %d", c->attrs[i].id, c->attrs[i].value.programmaticStreamSerializationAllowed);
	CALL("%p grid %u %u %u block %u %u %u shared %u stream %p params %s extra %s attributes%s", f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
		c->sharedMemBytes, c->hStream, params ? "set" : "null", bytes, attributes);
	return 0;
}
CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
	unsigned int shared, CUstream q, void **params, void **extra) {
	char block[512] = "";
	const char *bytes = hex(extra, block);
	if (!bytes) return 1;
	CALL("%p grid %u %u %u block %u %u %u shared %u stream %p params %s extra %s", f, gx, gy, gz, bx, by, bz, shared, q, params ? "set" : "null", bytes);
	return 0;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long flags) { CALL("%p %llu", g, flags); *x = handle(0x700); return 0; }
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n) { CALL("%p %s", g, nodes ? "nodes" : "null"); *n = 7; return 0; }
CUresult cuGraphDestroy(CUgraph g) { CALL("%p", g); return 0; }
CUresult cuGraphExecDestroy(CUgraphExec x) { CALL("%p", x); return 0; }
#ifndef WITHOUT_GRAPHS
CUresult cuGraphLaunch(CUgraphExec x, CUstream q) { CALL("%p %p", x, q); return 0; }
#endif
