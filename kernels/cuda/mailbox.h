// Ranks with a GPU each, which write into each other's memory.
#pragma once
#include "krait.h"

// A rank's box is memory of its GPU that all ranks write to:
//
//	turn, done, stop    u32 each; the addresses of all ranks' boxes at 64; 256 bytes
//	flags               u32, for each rank that sends, and each chunk: the turn that is there
//	data                twice, for turns that are even and odd, for each rank that sends: its chunks
//
// A collective of ranks is a turn. A rank puts a chunk into a box, and then its flag there
// (release.sys); who needs the chunk waits for the flag (acquire.sys). A rank that puts in what is
// of turn n + 2 has had what all others sent in turn n + 1, which they sent after they had read all
// of turn n: so two are enough, and no rank waits until others have read.
const int chunk_elems = 1024, box_table = 64, box_head = 256;

struct Mail {
	char *box;            // the rank's own
	int ranks, rank;      // how many, and which is this
	int chunks;           // with a flag each, of each rank that sends
	int slot;             // bytes for what a rank sends in a turn, where its chunks begin: data
	int data;
	int first, at;        // where the operand begins: its chunk, and byte
	int cols;             // of the operand, whose chunks do not go on in the next row
	int own;              // each rank sums the chunks that are its own, and hands them to all
	int ends;             // the launch is the turn's last
};

DEVICE u32 load_acquire(const u32 *p) {
	u32 v;
	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

DEVICE u32 load_relaxed(const u32 *p) {
	u32 v;
	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

DEVICE void store_release(u32 *p, u32 v) {
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// What *p was before it counts on, from last back to 0.
DEVICE u32 count_on(u32 *p, u32 last) {
	u32 v;
	asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(v) : "l"(p), "r"(last) : "memory");
	return v;
}

DEVICE char *box_of(const Mail &m, int rank) { return ((char *const *)(m.box + box_table))[rank]; }

DEVICE u32 *flag_in(char *box, const Mail &m, int from, int chunk) {
	return (u32 *)(box + box_head) + from * m.chunks + m.first + chunk;
}

// Where what a rank sends of a chunk lies in a box.
template <class T> DEVICE T *chunk_in(char *box, const Mail &m, u32 turn, int from, int chunk) {
	i64 slot = (i64)(turn & 1) * m.ranks + from;
	return (T *)(box + m.data + slot * m.slot + m.at) + (i64)chunk * chunk_elems;
}

// A thread's four neighbours in a chunk of the operand: the row, the first column, how many there
// are, and the place in the chunk.
struct Four {
	int row, j, n, in;
};

DEVICE Four four_of(const Mail &m, int chunk) {
	int per_row = ceil_div(m.cols, chunk_elems), in = 4 * thread();
	int j = chunk % per_row * chunk_elems + in;
	return Four{chunk / per_row, j, m.cols - j, in};
}

// Waits for chunks of one rank, or with from < 0 of all others. It is false where the wait was
// stopped.
DEVICE bool arrived(const Mail &m, u32 turn, int from, int first, int last) {
	SHARED static int stopped;
	if (warp() == 0) {
		int r = lane();
		bool gone = false;
		if (r < m.ranks && r != m.rank && (from < 0 || r == from)) {
			for (int c = first; c <= last && !gone; c++) {
				const u32 *flag = flag_in(m.box, m, r, c);
				// A sender may be a turn ahead; what is older came long ago.
				while (load_acquire(flag) - (turn + 1) > 1u) {
					gone = load_relaxed((const u32 *)m.box + 2) != 0;
					if (gone)
						break;
				}
			}
		}
		u32 any = ballot(gone);
		if (lane() == 0)
			stopped = any != 0;
	}
	sync();
	return !stopped;
}

// Ends the turn when all blocks of its last launch have come here.
DEVICE void end_turn(const Mail &m, u32 turn, int blocks) {
	if (!m.ends)
		return;
	sync();
	u32 *head = (u32 *)m.box;
	if (thread() == 0 && count_on(head + 1, blocks - 1) == (u32)blocks - 1)
		*head = turn + 1;
}
