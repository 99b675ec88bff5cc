// Package mpi joins the processes that an MPI launcher has started, by its library, which
// is loaded when it is asked for: Open MPI, MPICH, and what has MPICH's binary interface.
package mpi
