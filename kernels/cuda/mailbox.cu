// Sums over ranks with a GPU each.
#include "mailbox.h"

DEVICE u32 turn_of(const Mail &m) { return *(const u32 *)m.box; }

// Four elements as they are.
DEVICE u32x4 whole(const u32 *p) { return *(const u32x4 *)p; }
DEVICE u32x2 whole(const u16 *p) { return *(const u32x2 *)p; }
DEVICE void put(u32 *p, u32x4 v) { *(u32x4 *)p = v; }
DEVICE void put(u16 *p, u32x2 v) { *(u32x2 *)p = v; }

template <class T> DEVICE void move4(T *to, const T *from, int n, bool vec) {
	if (vec && n >= 4) {
		put(to, whole(from));
		return;
	}
	UNROLL for (int i = 0; i < 4; i++) if (i < n) to[i] = from[i];
}

// Sends a chunk to all others, or, where each rank sums its own, to its owner.
template <class T> DEVICE void send(const T *x, i64 xs, int vec, const Mail &m) {
	u32 turn = turn_of(m);
	int chunk = block_x(), owner = m.own ? chunk % m.ranks : -1;
	Four f = four_of(m, chunk);
	NO_UNROLL for (int r = 0; r < m.ranks; r++) {
		if (r != m.rank && (owner < 0 || owner == r))
			move4(chunk_in<T>(box_of(m, r), m, turn, m.rank, chunk) + f.in, x + (i64)f.row * xs + f.j, f.n, vec);
	}
	sync();
	int r = thread();
	if (r < m.ranks && r != m.rank && (owner < 0 || owner == r))
		store_release(flag_in(box_of(m, r), m, m.rank, chunk), turn + 1);
}

// Adds what all ranks have of a chunk in the order of the ranks, as peer_sum does.
template <class T> DEVICE void add(T *y, i64 ys, const T *x, i64 xs, int vec, int wide, const Mail &m) {
	u32 turn = turn_of(m);
	int chunk = m.own ? block_x() * m.ranks + m.rank : block_x();
	if (arrived(m, turn, -1, chunk, chunk)) {
		Four f = four_of(m, chunk);
		f32x4 sum = 0;
		NO_UNROLL for (int r = 0; r < m.ranks; r++) {
			f32x4 v = r == m.rank ? load4(x + (i64)f.row * xs + f.j, f.n, vec) :
					load4(chunk_in<T>(m.box, m, turn, r, chunk) + f.in, f.n, true);
			sum = r == 0 ? v : sum + v;
			if (!wide && r > 0)
				UNROLL for (int k = 0; k < 4; k++) sum[k] = rounded<T>(sum[k]);
		}
		store4(y + (i64)f.row * ys + f.j, sum, f.n, vec);
		if (m.own) {
			NO_UNROLL for (int r = 0; r < m.ranks; r++) {
				if (r != m.rank)
					store4(chunk_in<T>(box_of(m, r), m, turn, m.rank, chunk) + f.in, sum, f.n, true);
			}
			sync();
			int r = thread();
			if (r < m.ranks && r != m.rank)
				store_release(flag_in(box_of(m, r), m, m.rank, chunk), turn + 1);
		}
	}
	end_turn(m, turn, blocks_x());
}

// Takes the sums of others' chunks.
template <class T> DEVICE void take(T *y, i64 ys, int vec, const Mail &m) {
	u32 turn = turn_of(m);
	int chunk = block_x(), owner = chunk % m.ranks;
	if (owner != m.rank && arrived(m, turn, owner, chunk, chunk)) {
		Four f = four_of(m, chunk);
		move4(y + (i64)f.row * ys + f.j, chunk_in<T>(m.box, m, turn, owner, chunk) + f.in, f.n, vec);
	}
	end_turn(m, turn, blocks_x());
}

// add, and behind it add_norm (norm.cu), by the same threads and in the same order: s = x + what
// add gives of z, and y = w · s / sqrt(mean s² + eps). In boxes rows begin bs elements after each
// other. Blocks are rows. z may be where s or y is.
template <class Y> struct AddNorm {
	Y *y;
	i64 ys;
	float *s;
	i64 ss;
	const float *x;
	i64 xs;
	const float *z;
	i64 zs;
	const float *w;
	int bs, vec;
	float eps;
	Mail mail;
};

template <class Y> DEVICE void add_norm(const float *__restrict__ w, const AddNorm<Y> &arg) {
	const Mail &m = arg.mail;
	u32 turn = turn_of(m);
	i64 from = (i64)block_x() * arg.bs;
	int size = m.cols, vec = arg.vec;
	if (arrived(m, turn, -1, from / chunk_elems, (from + size - 1) / chunk_elems)) {
		Y *y = arg.y + block_x() * arg.ys;
		float *s = arg.s + block_x() * arg.ss;
		const float *x = arg.x + block_x() * arg.xs, *z = arg.z + block_x() * arg.zs;
		float sum = 0;
		for (int j = 4 * thread(); j < size; j += 4 * threads()) {
			f32x4 v = 0;
			NO_UNROLL for (int r = 0; r < m.ranks; r++) {
				f32x4 t = load4(r == m.rank ? z + j : chunk_in<float>(m.box, m, turn, r, 0) + from + j, size - j, vec);
				v = r == 0 ? t : v + t;
			}
			v = load4(x + j, size - j, vec) + v;
			store4(s + j, v, size - j, vec);
			UNROLL for (int k = 0; k < 4; k++) sum = fma(v[k], v[k], sum);
		}
		float factor = inverse_rms(block_sum(sum), size, arg.eps);
		for (int j = 4 * thread(); j < size; j += 4 * threads())
			store4(y + j, load4(s + j, size - j, vec) * factor * load4(w + j, size - j, vec), size - j, vec);
	}
	end_turn(m, turn, blocks_x());
}

KERNEL THREADS_BLOCKS(1024, 1) mail_add_norm(AddNorm<float> arg) { add_norm(arg.w, arg); }
KERNEL THREADS_BLOCKS(1024, 1) mail_add_norm_bf16(AddNorm<bf16> arg) { add_norm(arg.w, arg); }

KERNEL THREADS(256) mail_send_4(const u32 *x, i64 xs, int vec, Mail m) { send(x, xs, vec, m); }
KERNEL THREADS(256) mail_send_2(const u16 *x, i64 xs, int vec, Mail m) { send(x, xs, vec, m); }
KERNEL THREADS(256) mail_add_f32(float *y, i64 ys, const float *x, i64 xs, int vec, int wide, Mail m) {
	add(y, ys, x, xs, vec, wide, m);
}
KERNEL THREADS(256) mail_add_bf16(bf16 *y, i64 ys, const bf16 *x, i64 xs, int vec, int wide, Mail m) {
	add(y, ys, x, xs, vec, wide, m);
}
KERNEL THREADS(256) mail_add_f16(f16 *y, i64 ys, const f16 *x, i64 xs, int vec, int wide, Mail m) {
	add(y, ys, x, xs, vec, wide, m);
}
KERNEL THREADS(256) mail_take_4(u32 *y, i64 ys, int vec, Mail m) { take(y, ys, vec, m); }
KERNEL THREADS(256) mail_take_2(u16 *y, i64 ys, int vec, Mail m) { take(y, ys, vec, m); }
