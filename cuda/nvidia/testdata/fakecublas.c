/* A stand-in for libcublas.so; see fakecuda.c. */
#include "fake.h"
#ifdef REAL_HEADERS
#include <cublas_v2.h>
#else
typedef int cublasStatus_t, cublasOperation_t, cudaDataType, cublasComputeType_t, cublasGemmAlgo_t, cublasMath_t, libraryPropertyType;
typedef void *cublasHandle_t, *cudaStream_t;
#endif

cublasStatus_t cublasGetProperty(libraryPropertyType which, int *n) { *n = which == 0 ? 12 : 4; return 0; }
cublasStatus_t cublasCreate_v2(cublasHandle_t *h) { CALL(""); *h = (void *)0xb1a5; return 0; }
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) { CALL("%p", h); return 0; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s) { CALL("%p %p", h, s); return 0; }
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t n) { CALL("%p %p %zu", h, p, n); return 0; }
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m) { CALL("%p %d", h, m); return 0; }
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha,
	const void *A, cudaDataType at, int lda, const void *B, cudaDataType bt, int ldb, const void *beta, void *C, cudaDataType ct, int ldc,
	cublasComputeType_t compute, cublasGemmAlgo_t algo) {
	CALL("%p op %d %d sizes %d %d %d alpha %g A %p %d %d B %p %d %d beta %g C %p %d %d compute %d algo %d", h, ta, tb, m, n, k,
		*(const float *)alpha, A, at, lda, B, bt, ldb, *(const float *)beta, C, ct, ldc, compute, algo);
	return 0;
}
