// Package mpi joins the processes that an MPI launcher has started, by its library, which it loads
// at run time: Open MPI, MPICH, or one with MPICH's binary interface.
package mpi
