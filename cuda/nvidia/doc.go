// Package nvidia implements package driver with NVIDIA's own libraries, opened
// when they are needed, without cgo: libcuda.so.1, which comes with the driver,
// and for matrix products and collectives libcublas.so.13 or .12 and
// libnccl.so.2, which come with CUDA, a package manager, or Python packages.
//
// A library is looked for in the folders of KRAIT_CUDA_PATH (and in lib64, lib
// and */lib beneath them, so that a folder of CUDA and site-packages/nvidia
// both do), then by the system's loader (LD_LIBRARY_PATH, ld.so.conf), then
// where pip and conda put it for the environments that are active and for the
// interpreters on PATH, then in the usual places.
//
// It works on Linux, amd64 and arm64. A program that imports it is linked
// dynamically with the C library, also without cgo.
package nvidia
