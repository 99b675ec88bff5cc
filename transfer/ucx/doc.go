// Package ucx carries bytes from the memory of one process to that of another by UCX: by RDMA
// where there is some, by shared memory on one host, over TCP otherwise. It is a sender and a
// receiver for package transport, which asks, on a connection of its own. The library,
// libucp.so.0, is opened when it is first needed, without cgo.
//
// Each part is a message with a tag. Within a host UCX brings it straight from where it is to where
// it belongs, if the system allows it; to others it goes through buffers of UCX. Memory that only a
// device reaches goes through buffers of the host, a few parts at a time.
package ucx
