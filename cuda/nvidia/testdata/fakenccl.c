/* A stand-in for libnccl.so.2; see fakecuda.c. */
#include "fake.h"
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef void *ncclComm_t, *cudaStream_t;

ncclResult_t ncclGetVersion(int *v) { *v = number("version", 22005); return 0; }
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
	CALL("");
	for (int i = 0; i < 128; i++) id->internal[i] = i + 1;
	return 0;
}
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
	int sum = 0;
	for (int i = 0; i < 128; i++) sum += (i + 1) * id.internal[i];
	CALL("%d of %d, id %d..%d sum %d", rank, ranks, id.internal[0], (unsigned char)id.internal[127], sum);
	while (number("wait", 0)) usleep(1000);
	*comm = (void *)(size_t)(0xcc00 + rank);
	return 0;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) { CALL("%p", c); return 0; }
ncclResult_t ncclCommAbort(ncclComm_t c) { CALL("%p", c); return 0; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e) { CALL("%p", c); *e = number("async", 0); return 0; }
const char *ncclGetLastError(ncclComm_t c) { return "what NCCL says"; }
ncclResult_t ncclGroupStart(void) { CALL(""); return 0; }
ncclResult_t ncclGroupEnd(void) { CALL(""); return 0; }
ncclResult_t ncclAllReduce(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t q) {
	CALL("%p %p %zu %d %d %p %p", s, r, n, t, op, c, q);
	return 0;
}
ncclResult_t ncclReduceScatter(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t q) {
	CALL("%p %p %zu %d %d %p %p", s, r, n, t, op, c, q);
	return 0;
}
ncclResult_t ncclAllGather(const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t q) {
	CALL("%p %p %zu %d %p %p", s, r, n, t, c, q);
	return 0;
}
ncclResult_t ncclBroadcast(const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q) {
	CALL("%p %p %zu %d root %d %p %p", s, r, n, t, root, c, q);
	return 0;
}
ncclResult_t ncclSend(const void *s, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t q) {
	CALL("%p %zu %d to %d %p %p", s, n, t, peer, c, q);
	return 0;
}
ncclResult_t ncclRecv(void *r, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t q) {
	CALL("%p %zu %d from %d %p %p", r, n, t, peer, c, q);
	return 0;
}
