// Package ptx runs PTX, the assembly of NVIDIA's GPUs, on a machine that has none: for real,
// slowly, exactly and strictly. Every kernel is tested in it.
//
// Parse reads a module as clang writes it and decodes its kernels; what it does not know is an
// error there, with the line, and never one at run. A Memory is a device's global memory. Entry.Run
// runs a grid in it and stops at the first fault, which names the kernel, the line of PTX, the
// block and the thread. The same launch with the same seed gives the same result and the same
// fault.
//
// # Execution
//
// Blocks run one after the other, in natural order or in one that Launch.Seed shuffles; the warps
// of a block run by slices between barriers. Each lane of a warp has a place of its own in the
// code; lanes at the same place run together and of several places the one furthest behind has
// precedence, but in the end all get on, so that lanes and warps may wait for each other in loops.
// Blocks cannot: a kernel whose blocks wait for later ones is TooLong.
//
// Warp-wide instructions (shfl.sync, vote.sync, match.sync, redux.sync, elect.sync, bar.warp.sync,
// ldmatrix, movmatrix, mma.sync) wait until all lanes that the mask names, and that have not
// exited, are at that very instruction. It is a fault if they never come, if a lane is not in its
// own mask, if named lanes name others, or if a shuffle's source does not take part. Those that are
// .aligned need a full warp. A barrier of the block needs all its threads, those that have exited
// too, which is more than hardware asks, and all at the same line. Counted barriers and bar.arrive
// count whole warps.
//
// Calls are expanded at Parse. Registers that are not written hold all ones, predicates false.
//
// # Numbers
//
// Arithmetic is bit-exact where PTX defines it: f16, bf16, f32 and f64, with all rounding modes,
// .ftz and .sat. A NaN result is PTX's: 0x7fff, 0x7fffffff and, for f64, which preserves payloads
// on hardware, 0x7ff8000000000000. The .approx and .full forms are computed in float64 and rounded
// once, which is within the errors that PTX documents for them, and better than hardware. mma.sync
// aligns and truncates products and accumulator as tensor cores of Launch.Capability do
// (tensorCore): what a kernel loses by it on a GPU, it loses here.
//
// # Checked memory
//
// Every access is checked for bounds, for natural alignment of the whole vector, and, if it reads,
// for bytes that were never written. Global allocations lie in gaps of a mebibyte; freed addresses
// are not used again. Shared memory is unwritten at the start of every block, local memory too.
// cp.async reads at once; the destination is unwritten until its thread has waited for it. Shared
// memory is one piece: an overrun from one variable into the next is seen only as a read of
// unwritten bytes or as a race. Where a barrier is missing, the reader may come before the writer
// and find bytes that are Unwritten instead of a race.
//
// A load of data that is said to stay the same (ld.global.nc, ldu) is a fault of kind ReadOnly
// where the launch has written any of its bytes before, be it in order: hardware may serve it from
// a cache that does not know of the write. Code of clang says so of what it reads through const
// pointers that are __restrict__.
//
// # Races
//
// Two threads race if they touch the same byte, one of them writes, not both accesses are strong,
// and nothing orders them. Strong are atom, red, ld and st with .volatile, .relaxed, .acquire or
// .release. A race in shared memory is a SharedRace, one in global memory a GlobalRace. What orders
// the accesses of two threads:
//
//   - of one block: a barrier of all threads of the block between them; a
//     counted barrier at which the warps of both arrived.
//   - of one warp: also a bar.warp.sync that named both. Shuffles, votes and
//     mma.sync order nothing. Two lanes that write the same address in the same
//     instruction race if the values differ.
//   - of different blocks: a release by the first block and an acquire by the
//     second. A release is an atomic or strong store, in global memory, that
//     comes after a fence of .gl, .gpu or .sys; it releases what the fence's
//     thread did before the fence, what the block did before the last barrier
//     before it, and the warp before its last bar.warp.sync; or, if a barrier
//     lies between the fence and the atomic, what each thread did before its
//     own fence. Atomics and stores that are .release or .acq_rel, but not
//     .cta, have a fence of their own. An acquire is an atomic or strong load
//     of the same address; it counts for its thread at once and for the block
//     after the next barrier, and needs no fence, as is usual in CUDA. So a
//     block that sees by a counter that it is the last may read what the others
//     wrote and fenced; without the fence it is a GlobalRace.
//   - of different launches: always ordered. So is what the host does.
//
// A plain access of a location that others update atomically is a race, unless the accessing block
// has itself updated it since, and a barrier lies between if it was another thread.
//
// No thread may write in the launch, before or after, what ld.global.nc reads, not even the same
// one: the cache that it may come from does not see it.
//
// All this is tracked byte by byte, for the accesses that happen. Simplifications may miss a race,
// but make up none: of several blocks that have read a byte only the last is kept, and a later
// write by another block is taken as ordered if it has acquired from all blocks before; of the
// atomics on a byte only the last is kept; strong loads are not kept, so that a plain write that
// comes after one is not seen as a race. On the other hand, the order that releases carry does not
// pass on from one location to another, and threads of one block that order themselves by flags or
// locks instead of barriers are reported as racing.
//
// # What is not modelled
//
// Instructions of sm_90 for tensor memory and clusters (wgmma, cp.async.bulk, mbarrier, mapa,
// barrier.cluster), FP8 and integer matrices, textures, surfaces, video instructions, mul24, set to
// f16, vectors of 256 bits, indirect and recursive calls, cooperative launches and fns: all are
// errors at Parse, by their names. Launches run one after the other; of one that is said to overlap
// with the one before ([Launch].Dependent), each thread must execute griddepcontrol.wait before it
// touches global memory, and before it ends, and may not load by .nc. vprintf and __assertfail end
// the kernel with Trap. Registers are as many as a kernel uses: whether a block fits a
// multiprocessor is known where Launch says how many, and what spills only ptxas knows. Caches,
// prefetches and time have no effect; %clock counts the warp's instructions; %smid and its like do
// not exist.
package ptx
