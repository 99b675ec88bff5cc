// Package ucx transfers bytes between the memories of two processes by UCX: by RDMA if available,
// by shared memory on one host, otherwise over TCP. It is a sender and a receiver for package
// transport, which sends requests on its own connection. The library, libucp.so.0, is opened on
// first use, without cgo.
//
// Each part is a message with a tag. Within a host UCX brings it straight from where it is to where
// it belongs, if the system allows it; to others it goes through buffers of UCX. Memory that only a
// device reaches goes through buffers of the host, a few parts at a time.
package ucx
