// Package gorgoniacu implements package driver with gorgonia.org/cu, for those
// whose programs use that already. Package nvidia does more, and needs nothing.
//
// It is built with the tag gorgonia_cu only, with cgo and the headers of CUDA
// 11.8: gorgonia.org/cu does not compile against those of 12 and newer, but the
// program runs with newer drivers. A program that is built with the tag ends at
// its start if the machine has no GPU: gorgonia.org/cu exits when it cannot
// initialize the driver.
//
// gorgonia.org/cu has no captured graphs, no cuBLAS for mixed formats and no NCCL;
// what needs them returns an error of the kind driver.ErrUnsupported. Memory of the
// host is not pinned, so that copies wait. Kernels get at most 48 KB of shared memory,
// and a parameter of more than 8 bytes must be a kernel's last.
package gorgoniacu
