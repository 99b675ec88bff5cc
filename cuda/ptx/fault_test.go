package ptx

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// faultKernel has a (256 zeros), b (256 bytes that are not written) and n, in
// %d1, %d2 and %r1; the thread's number is in %r0, the block's in %r2.
const faultParams = ".param .u64 a, .param .u64 b, .param .u32 n"

const faultStart = `ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u32 %r1, [n]; mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x;
mad.wide.u32 %d3, %r0, 4, %d1; mad.wide.u32 %d4, %r0, 4, %d2; mul.lo.u32 %r4, %r0, 4; mad.wide.u32 %d5, %r2, 4, %d2; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r2, 0;
`

// runFault runs a body, whose first line is number 2 after those above.
func runFault(t *testing.T, body string, blocks, threads int, n uint32) error {
	t.Helper()
	r := newRig(t)
	e := entry(t, parse(t, kernel(faultParams, faultStart+body)), "k")
	return r.run(e, blocks, threads, r.put(make([]uint32, 64)), r.alloc(256), n)
}

// TestFaults: one of each kind, by its line, block and thread. Lines of bodies
// count from 2.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		body            string
		blocks, threads int
		n               uint32
		want            wantFault
	}{
		"load past the end": {"add.u32 %r5, %r0, 1;\nld.global.f32 %r3, [%d3];", 1, 70, 0,
			wantFault{OutOfBounds, 3, 0, 64, "ld.global.f32 %r3, [%d3]), block (0,0,0) thread (64,0,0): reads 4 bytes at 0x7f0000000100, 0 bytes past the end of the allocation of 256 bytes at 0x7f0000000000"}},
		"vector past the end": {"mad.wide.u32 %d5, %r2, 128, %d1;\nld.global.v4.f32 {%r3, %r4, %r5, %r6}, [%d5];", 3, 1, 0,
			wantFault{OutOfBounds, 3, 2, 0, "reads 16 bytes at 0x7f0000000100, 0 bytes past the end"}},
		"store before the start": {"sub.u64 %d3, %d3, 4;\nst.global.u32 [%d3], 0;", 2, 4, 0,
			wantFault{OutOfBounds, 3, 0, 0, "writes 4 bytes at 0x7efffffffffc, 4 bytes before the allocation of 256 bytes"}},
		"between allocations": {"st.global.u32 [%d1+400], 0;", 1, 1, 0,
			wantFault{OutOfBounds, 2, 0, 0, "writes 4 bytes at 0x7f0000000190, 144 bytes past the end"}},
		"null":                 {"ld.global.u8 %r3, [0];", 1, 1, 0, wantFault{OutOfBounds, 2, 0, 0, "reads 1 bytes at 0x0, where nothing is allocated"}},
		"atomic out of bounds": {"atom.global.add.u32 %r3, [%d3+192], 1;", 1, 32, 0, wantFault{OutOfBounds, 2, 0, 16, "updates 4 bytes at"}},
		"shared":               {".shared .b8 s[64];\nmov.u32 %r3, s;\nadd.u32 %r3, %r3, %r4;\nst.shared.u32 [%r3], 0;", 1, 32, 0, wantFault{OutOfBounds, 5, 0, 16, "writes 4 bytes at shared address 0x40, 0 bytes past the end of 64 bytes of shared memory"}},
		"shared, negative":     {".shared .b8 s[64];\nmov.u32 %r3, s;\nst.shared.u32 [%r3+-4], 0;", 1, 1, 0, wantFault{OutOfBounds, 4, 0, 0, "writes 4 bytes at shared address 0xfffffffc"}},
		"local":                {".local .b8 l[16];\nmov.u64 %d5, l;\nst.local.u64 [%d5+16], %d5;", 1, 1, 0, wantFault{OutOfBounds, 4, 0, 0, "writes 8 bytes at local address 0x10"}},
		"parameters":           {"mov.b64 %d5, n;\nld.param.u32 %r3, [%d5+4];", 1, 1, 0, wantFault{OutOfBounds, 3, 0, 0, "reads 4 bytes at param address 0x14"}},
		"store to parameters":  {"cvta.param.u64 %d5, n;\nst.u32 [%d5], 1;", 1, 1, 0, wantFault{OutOfBounds, 3, 0, 0, "which cannot be written"}},
		"freed window":         {"mov.u64 %d5, 0x7e0000000000;\nld.u32 %r3, [%d5];", 1, 1, 0, wantFault{OutOfBounds, 3, 0, 0, "where nothing is allocated"}},
		"cp.async source": {".shared .align 16 .b8 s[16];\ncp.async.cg.shared.global [s], [%d1+256], 16;", 1, 1, 0,
			wantFault{OutOfBounds, 3, 0, 0, "reads 16 bytes at 0x7f0000000100"}},

		"misaligned":        {"mad.wide.u32 %d5, %r0, 2, %d1;\nld.global.u32 %r3, [%d5];", 1, 8, 0, wantFault{Misaligned, 3, 0, 1, "reads 4 bytes at 0x7f0000000002, which is not a multiple of 4"}},
		"misaligned vector": {"ld.global.v4.f32 {%r3, %r4, %r5, %r6}, [%d1+8];", 1, 8, 0, wantFault{Misaligned, 2, 0, 0, "which is not a multiple of 16"}},
		"misaligned shared": {".shared .align 8 .b8 s[16];\nst.shared.u64 [s+4], %d1;", 1, 8, 0, wantFault{Misaligned, 3, 0, 0, "shared address 0x4"}},
		"misaligned local":  {".local .align 8 .b8 l[16];\nst.local.u64 [l+4], %d1;", 1, 8, 0, wantFault{Misaligned, 3, 0, 0, "local address 0x4"}},

		"unwritten":            {"setp.gt.u32 %p3, %r0, 4;\n@!%p3 st.global.u32 [%d4], 1;\nld.global.u32 %r3, [%d4];", 1, 32, 0, wantFault{Unwritten, 4, 0, 5, "reads 4 bytes at 0x7f0000200014, of which byte 0 has not been written"}},
		"unwritten byte":       {"st.global.u16 [%d4], 1; st.global.u8 [%d4+2], 1;\nld.global.u32 %r3, [%d4];", 1, 32, 0, wantFault{Unwritten, 3, 0, 0, "of which byte 3 has not been written"}},
		"unwritten shared":     {".shared .align 4 .b8 s[64];\nst.shared.u32 [s], 1;\nld.shared.u32 %r3, [s+4];", 1, 1, 0, wantFault{Unwritten, 4, 0, 0, "shared address 0x4"}},
		"unwritten in block 1": {".shared .align 4 .b8 s[64];\n@%p2 st.shared.u32 [s], 1;\nld.shared.u32 %r3, [s];", 2, 1, 0, wantFault{Unwritten, 4, 1, 0, "shared address 0x0"}},
		"unwritten local":      {".local .align 4 .b8 l[64];\n@%p1 st.local.u32 [l], 1;\nld.local.u32 %r3, [l];", 1, 2, 0, wantFault{Unwritten, 4, 0, 1, "local address 0x0"}},
		"unwritten atomic":     {"red.global.add.u32 [%d2], 1;", 1, 1, 0, wantFault{Unwritten, 2, 0, 0, "has not been written"}},
		"cp.async in flight": {".shared .align 16 .b8 s[16];\ncp.async.cg.shared.global [s], [%d1], 16;\ncp.async.commit_group;\nld.shared.u32 %r3, [s+12];", 1, 1, 0,
			wantFault{Unwritten, 5, 0, 0, "of which byte 0 a cp.async in flight is writing"}},
		"cp.async, group not waited for": {".shared .align 16 .b8 s[32];\ncp.async.cg.shared.global [s], [%d1], 16;\ncp.async.commit_group;\ncp.async.ca.shared.global [s+16], [%d1], 8;\ncp.async.commit_group;\ncp.async.wait_group 1;\nld.shared.u32 %r3, [s];\nld.shared.u32 %r3, [s+16];", 1, 1, 0,
			wantFault{Unwritten, 9, 0, 0, "in flight"}},
		"cp.async of unwritten bytes": {".shared .align 16 .b8 s[16];\ncp.async.cg.shared.global [s], [%d2], 16;", 1, 1, 0, wantFault{Unwritten, 3, 0, 0, "reads 16 bytes at 0x7f0000200000"}},

		"trap":             {"@%p1 bra OUT;\ntrap;\nOUT:", 1, 8, 0, wantFault{Trap, 3, 0, 1, "executes trap"}},
		"division by zero": {"sub.s32 %r3, %r0, 7;\nrem.s32 %r3, %r0, %r3;", 1, 32, 0, wantFault{Undefined, 3, 0, 7, "divides by zero"}},
		"table":            {"bra GO; T: .branchtargets A, B;\nGO: brx.idx %r0, T;\nA: B:", 1, 4, 0, wantFault{Undefined, 3, 0, 2, "branches to entry 2 of 2"}},
		"barrier 16":       {"bar.sync 16;", 1, 4, 0, wantFault{Undefined, 2, 0, 0, "barrier 16"}},
		"barrier of 33":    {"bar.sync 1, 33;", 1, 64, 0, wantFault{Undefined, 2, 0, 0, "barrier 1 of 33 threads"}},
		"not in its mask":  {"shfl.sync.idx.b32 %r3, %r0, 0, 31, 0xffff;", 1, 32, 0, wantFault{Undefined, 2, 0, 16, "is executed by lane 16, which its mask 0xffff does not name"}},
		"shuffle from outside": {"shfl.sync.down.b32 %r3, %r0, 8, 31, -1;", 1, 48, 0,
			wantFault{Undefined, 2, 0, 40, "shuffles from lane 16, which has exited or never was"}},
		"masks that differ": {"setp.lt.u32 %p3, %r0, 3; selp.b32 %r3, 0xff, 0x3f, %p3;\nshfl.sync.idx.b32 %r3, %r0, 0, 31, %r3;", 1, 6, 0,
			wantFault{Undefined, 3, 0, 0, "names the lanes 0xff, but lane 3, one of them, names 0x3f"}},

		"exited before a barrier": {"setp.ge.u32 %p3, %r0, 40;\n@%p3 exit;\nbar.sync 0;", 2, 64, 0,
			wantFault{DivergentBarrier, 4, 0, 0, "waits at barrier 0 for all threads, of which 40 have arrived; 24 have exited"}},
		"two barriers": {"setp.ge.u32 %p3, %r0, 32;\n@%p3 bra B;\nbar.sync 0;\nbra OUT;\nB: bar.sync 0;\nOUT:", 1, 64, 0,
			wantFault{DivergentBarrier, 6, 0, 32, "waits at barrier 0, for which thread (0,0,0) waits at line 11 (bar.sync 0)"}},
		"two barriers in a warp": {"@%p1 bra B;\nbar.sync 0;\nbra OUT;\nB: bar.sync 0;\nOUT:", 1, 32, 0,
			wantFault{DivergentBarrier, 5, 0, 0, "waits at barrier 0, for which thread (1,0,0) waits at line 10 (bar.sync 0)"}},
		"counts that differ": {"setp.ge.u32 %p3, %r0, 32; selp.u32 %r3, 64, 96, %p3;\nbar.sync 1, %r3;", 1, 64, 0,
			wantFault{DivergentBarrier, 3, 0, 32, "arrives at barrier 1 for 64 threads, at which others have arrived for 96 threads"}},
		"ids that differ": {"and.b32 %r3, %r0, 1;\nbar.sync %r3;", 1, 32, 0, wantFault{DivergentBarrier, 3, 0, 1, "arrives at barrier 1"}},
		"part of a warp at mma": {"setp.ge.u32 %p3, %r0, 31;\n@%p3 exit;\nmovmatrix.sync.aligned.m8n8.trans.b16 %r3, %r0;", 1, 32, 0,
			wantFault{DivergentBarrier, 4, 0, 0, "needs all 32 lanes of the warp, of which 31 are there"}},
		"another barrier": {"setp.ge.u32 %p3, %r0, 32; selp.u32 %r3, 1, 0, %p3;\nbar.sync %r3;", 1, 64, 0,
			wantFault{Deadlock, 3, 0, 0, "waits at barrier 0 for all threads, of which 32 have arrived; 0 have exited and 32 wait elsewhere"}},
		"barrier for more": {"bar.sync 1, 96;", 1, 64, 0, wantFault{Deadlock, 2, 0, 0, "for 96 threads, of which 64 have arrived"}},
		"lanes that do not come": {"@%p1 bra A;\nbar.sync 0;\nA: shfl.sync.idx.b32 %r3, %r0, 0, 31, -1;", 1, 32, 0,
			wantFault{Deadlock, 4, 0, 0, "waits for the lanes 0xfffffffe of its warp, which wait at line 10 (bar.sync 0)"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := c.want
			want.check(t, runFault(t, c.body, c.blocks, c.threads, c.n))
		})
	}
}

// TestRaces: each with a twin, in which the instruction in capitals is there.
func TestRaces(t *testing.T) {
	const shared = ".shared .align 4 .b8 s[512]; mov.u32 %r5, s; add.u32 %r6, %r5, %r4;\n"
	for name, c := range map[string]struct {
		body            string // with #…# for what the clean twin has and ! for what it has not
		blocks, threads int
		want            wantFault
	}{
		"write and read": {shared + "st.shared.u32 [%r6], %r0;\n#bar.sync 0;#\nxor.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r5;\nld.shared.u32 %r8, [%r7];", 1, 64,
			wantFault{SharedRace, 6, 0, 0, "reads 4 bytes at shared address 0x4, which thread (1,0,0) has written with no barrier since"}},
		"across warps, with a warp's barrier": {shared + "st.shared.u32 [%r6], %r0;\nbar.warp.sync -1; #bar.sync 0;#\nxor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; setp.ge.u32 %p3, %r0, 32;\n@%p3 ld.shared.u32 %r8, [%r7];", 1, 64,
			wantFault{SharedRace, 6, 0, 32, "reads 4 bytes at shared address 0x0, which thread (0,0,0) has written with no barrier since"}},
		"in a warp": {shared + "st.shared.u32 [%r6], %r0;\n#bar.warp.sync -1;#\nxor.b32 %r7, %r4, 8; add.u32 %r7, %r7, %r5;\nld.shared.u32 %r8, [%r7];", 1, 32,
			wantFault{SharedRace, 6, 0, 0, "which thread (2,0,0) has written"}},
		"in half a warp": {shared + "st.shared.u32 [%r6], %r0;\nsetp.ge.u32 %p3, %r0, 16; @%p3 exit;\n#bar.warp.sync 0xffff;#\nxor.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r5;\nld.shared.u32 %r8, [%r7];", 1, 32,
			wantFault{SharedRace, 7, 0, 0, "which thread (1,0,0) has written"}},
		"shuffles do not order": {shared + "st.shared.u32 [%r6], %r0;\nshfl.sync.idx.b32 %r8, %r0, 0, 31, -1; #bar.warp.sync -1;#\nxor.b32 %r7, %r4, 4; add.u32 %r7, %r7, %r5;\nld.shared.u32 %r8, [%r7];", 1, 32,
			wantFault{SharedRace, 6, 0, 0, "which thread (1,0,0) has written"}},
		"read and write": {shared + "st.shared.u32 [%r6], %r0;\nbar.sync 0;\nld.shared.u32 %r8, [s];\n#bar.sync 0;#\n@%p1 st.shared.u32 [s], 7;", 1, 64,
			wantFault{SharedRace, 7, 0, 0, "writes 4 bytes at shared address 0x0, which thread (31,0,0) has read"}},
		"one other reader": {shared + "st.shared.u32 [%r6], %r0;\nbar.sync 0;\nsetp.eq.u32 %p3, %r0, 40; @%p3 ld.shared.u32 %r8, [s];\n#bar.sync 0;#\nsetp.eq.u32 %p4, %r0, 50; @%p4 st.shared.u32 [s], 7;", 1, 64,
			wantFault{SharedRace, 7, 0, 50, "which thread (40,0,0) has read"}},
		"two values": {shared + "#setp.eq.u32 %p3, %r0, 5; @%p3# st.shared.u32 [s], %r0;", 1, 32,
			wantFault{SharedRace, 3, 0, 1, "writes 4 bytes at shared address 0x0, which thread (0,0,0) has written"}},
		"the same value by two warps": {shared + "#setp.lt.u32 %p3, %r0, 32; @%p3# st.shared.u32 [s], 3;", 1, 64,
			wantFault{SharedRace, 3, 0, 32, "which thread (31,0,0) has written"}},
		"parts of a word": {shared + "mad.lo.u32 %r6, %r0, 2, %r5;\nst.shared.u16 [%r6], 1;\n#bar.sync 0;#\nld.shared.u32 %r8, [s];", 1, 2,
			wantFault{SharedRace, 6, 0, 0, "reads 4 bytes at shared address 0x0, which thread (1,0,0) has written"}},
		"a part of the block": {shared + "setp.ge.u32 %p3, %r0, 64; @%p3 exit;\nst.shared.u32 [%r6], %r0;\n#bar.sync 1, 64;#\nxor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; setp.ge.u32 %p4, %r0, 32;\n@%p4 ld.shared.u32 %r8, [%r7];", 1, 96,
			wantFault{SharedRace, 7, 0, 32, "reads 4 bytes at shared address 0x0, which thread (0,0,0) has written"}},
		"atomic and read": {shared + "@%p1 st.shared.u32 [s], 0;\nbar.sync 0;\nred.shared.add.u32 [s], 1;\n#bar.sync 0;#\nld.shared.u32 %r8, [s];", 1, 64,
			wantFault{SharedRace, 7, 0, 32, "reads 4 bytes at shared address 0x0, which thread (63,0,0) has updated atomically"}},
		"write and atomic": {shared + "@%p1 st.shared.u32 [s], 0;\n#bar.sync 0;#\nred.shared.add.u32 [s], 1;", 1, 32,
			wantFault{SharedRace, 5, 0, 1, "updates 4 bytes at shared address 0x0, which thread (0,0,0) has written"}},
		"cp.async and no barrier": {shared + "cp.async.ca.shared.global [%r6], [%d3], 4;\ncp.async.wait_all; #bar.sync 0;#\nxor.b32 %r7, %r4, 128; add.u32 %r7, %r7, %r5; setp.ge.u32 %p3, %r0, 32;\n@%p3 ld.shared.u32 %r8, [%r7];", 1, 64,
			wantFault{SharedRace, 6, 0, 32, "reads 4 bytes at shared address 0x0, which thread (0,0,0) has written"}},
		"ldmatrix": {".shared .align 16 .b8 s[512]; mov.u32 %r5, s; mad.lo.u32 %r6, %r0, 16, %r5;\nst.shared.v4.u32 [%r6], {%r0, %r0, %r0, %r0};\n#bar.warp.sync -1;#\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r6];", 1, 32,
			wantFault{SharedRace, 5, 0, 1, "which thread (0,0,0) has written"}},

		"ld.nc and a write": {"ld.global!.nc!.u32 %r3, [%d1];\nst.global.u32 [%d1], 5;", 1, 1,
			wantFault{GlobalRace, 3, 0, 0, "writes 4 bytes at 0x7f0000000000, which thread (0,0,0) has read by ld.nc"}},
		"a write and ld.nc": {"st.global.u32 [%d1], 5;\nld.global!.nc!.u32 %r3, [%d1];", 1, 1,
			wantFault{ReadOnly, 3, 0, 0, "as data that stays the same (.nc)"}},
		"ld.nc and an atomic": {"ld.global!.nc!.u32 %r3, [%d1];\natom.global.add.u32 %r3, [%d1], 1;", 1, 1,
			wantFault{GlobalRace, 3, 0, 0, "updates 4 bytes at 0x7f0000000000, which thread (0,0,0) has read by ld.nc"}},
		"blocks write": {"#@%p2# st.global.u32 [%d2], 5;", 3, 1,
			wantFault{GlobalRace, 2, 1, 0, "writes 4 bytes at 0x7f0000200000, which thread (0,0,0) of block (0,0,0) has written in this launch"}},
		"blocks write and read": {"st.global.u32 [%d5], 5;\n!setp.gt.u32 %p3, %r2, 0; @%p3 sub.u64 %d5, %d5, 4;!\nld.global.u32 %r3, [%d5];", 3, 1,
			wantFault{GlobalRace, 4, 1, 0, "reads 4 bytes at 0x7f0000200000, which thread (0,0,0) of block (0,0,0) has written"}},
		"blocks read and write": {"ld.global.u32 %r3, [%d1];\nsetp.eq.u32 %p3, %r2, 2;\n!@%p3! #setp.eq.u32 %p4, %r2, 5; @%p4# st.global.u32 [%d1], 1;", 3, 1,
			wantFault{GlobalRace, 4, 2, 0, "has read in this launch"}},
		"a later block's read": {"mad.wide.u32 %d6, %r2, 4, %d1;\nst.global.u32 [%d6], 1;\nxor.b32 %r5, %r2, 2; !mad.wide.u32 %d6, %r5, 4, %d1;!\nld.global.u32 %r3, [%d6];", 3, 1,
			wantFault{GlobalRace, 3, 2, 0, "which thread (0,0,0) of block (0,0,0) has read"}},
		"in a block, in global memory": {"st.global.u32 [%d4], %r0;\n#bar.sync 0;#\nxor.b32 %r7, %r0, 1; mad.wide.u32 %d6, %r7, 4, %d2;\nld.global.u32 %r8, [%d6];", 1, 32,
			wantFault{GlobalRace, 5, 0, 0, "which thread (1,0,0) has written with no barrier since"}},
		"a plain start of an atomic sum": {"!@%p2 st.global.u32 [%d1], 0;!\nred.global.add.u32 [%d1], 1;", 2, 1,
			wantFault{GlobalRace, 3, 1, 0, "updates 4 bytes at 0x7f0000000000, which thread (0,0,0) of block (0,0,0) has written"}},
		"an atomic sum read too early": {"red.global.add.u32 [%d1], 1;\n!setp.eq.u32 %p3, %r2, 1; @%p3 ld.global.u32 %r3, [%d1+0];!", 3, 1,
			wantFault{GlobalRace, 2, 2, 0, "updates 4 bytes at 0x7f0000000000, which thread (0,0,0) of block (1,0,0) has read"}},

		"last block, without a fence": {"st.global.u32 [%d5], %r2;\n#membar.gl;#\natom.global.add.u32 %r3, [%d1], 1;\nsetp.ne.u32 %p3, %r3, 3; @%p3 exit;\nld.global.u32 %r4, [%d2+4];", 4, 1,
			wantFault{GlobalRace, 6, 3, 0, "reads 4 bytes at 0x7f0000200004, which thread (0,0,0) of block (1,0,0) has written"}},
		"last block, with a block's fence": {"st.global.u32 [%d5], %r2;\nmembar.cta; #fence.acq_rel.gpu;#\natom.global.add.u32 %r3, [%d1], 1;\nsetp.ne.u32 %p3, %r3, 3; @%p3 exit;\nld.global.u32 %r4, [%d2+4];", 4, 1,
			wantFault{GlobalRace, 6, 3, 0, "has written"}},
		"last block, fence before the write": {"membar.gl;\nst.global.u32 [%d5], %r2;\n#membar.gl;#\natom.global.add.u32 %r3, [%d1], 1;\nsetp.ne.u32 %p3, %r3, 3; @%p3 exit;\nld.global.u32 %r4, [%d2+4];", 4, 1,
			wantFault{GlobalRace, 7, 3, 0, "has written"}},
		"last block, another's atomic": {"st.global.u32 [%d5], %r2;\nmembar.gl;\n!mad.wide.u32 %d1, %r2, 4, %d1;!\natom.global.add.u32 %r3, [%d1], 1;\nsetp.ne.u32 %p3, %r2, 3; @%p3 exit;\nld.global.u32 %r4, [%d2+4];", 4, 1,
			wantFault{GlobalRace, 7, 3, 0, "has written"}},
		"last block, by acq_rel": {"st.global.u32 [%d5], %r2;\n!atom.relaxed.gpu.global.add.u32 %r3, [%d1], 1;! #atom.acq_rel.gpu.global.add.u32 %r3, [%d1], 1;#\nsetp.ne.u32 %p3, %r3, 3; @%p3 exit;\nld.global.u32 %r4, [%d2+4];", 4, 1,
			wantFault{GlobalRace, 5, 3, 0, "has written"}},
		// The block's other threads write; the one with the fence must come
		// after them, and those that read after the one with the atomic.
		"last block, no barrier before the fence": {lastBlock("#bar.sync 0;#", "bar.sync 0;"), 2, 64, wantFault{GlobalRace, 9, 1, 1, "has written"}},
		"last block, fences of all": {"mad.lo.u32 %r5, %r2, 64, %r0; and.b32 %r5, %r5, 63; setp.lt.u32 %p3, %r0, 32;\n@%p3 mad.wide.u32 %d5, %r5, 4, %d2; mad.wide.u32 %d5, %r2, 128, %d4; @%p3 st.global.u32 [%d5], 1;\n#membar.gl;# bar.sync 0;\n@%p1 atom.global.add.u32 %r3, [%d1], 1;\nbar.sync 0; @!%p3 exit; @%p2 exit;\nld.global.u32 %r4, [%d4];", 2, 64,
			wantFault{GlobalRace, 7, 1, 0, "has written"}},
		"last block, by a part of a warp": {"setp.ge.u32 %p3, %r0, 16; @%p3 exit;\nmad.lo.u32 %r5, %r2, 16, %r0; mad.wide.u32 %d6, %r5, 4, %d2; st.global.u32 [%d6], 1;\n#bar.warp.sync 0xffff;#\n@%p1 membar.gl;\n@%p1 atom.global.add.u32 %r3, [%d1], 1;\nbar.warp.sync 0xffff; @%p2 exit;\nld.global.u32 %r4, [%d4];", 2, 32,
			wantFault{GlobalRace, 8, 1, 1, "has written"}},
		"last block resets": {"st.global.u32 [%d5], %r2; ld.global.u32 %r6, [%d1+16];\n#membar.gl;#\natom.global.add.u32 %r3, [%d1], 1;\nsetp.ne.u32 %p3, %r3, 3; @%p3 exit;\nst.global.u32 [%d1+16], 4; st.global.u32 [%d1], 0;", 4, 1,
			wantFault{GlobalRace, 6, 3, 0, "has read in this launch"}},
		"ld.nc of what the thread wrote": {"st.global.u32 [%d5], 7;\n!ld.global.nc.u32 %r3, [%d5];! #ld.global.u32 %r3, [%d5];#", 1, 1,
			wantFault{ReadOnly, 3, 0, 0, "reads 4 bytes at 0x7f0000200000 as data that stays the same (.nc), of which this launch has written some"}},
		"ld.nc after a barrier": {"st.global.u32 [%d4], %r0;\nbar.sync 0;\nxor.b32 %r7, %r0, 1; mad.wide.u32 %d6, %r7, 4, %d2;\n!ld.global.nc.u32 %r8, [%d6];! #ld.global.u32 %r8, [%d6];#", 1, 32,
			wantFault{ReadOnly, 5, 0, 0, "(.nc)"}},
		"ld.nc of a neighbour's byte": {"st.global.u8 [%d1+3], 1;\n#ld.global.nc.u32 %r8, [%d1+4];# !ld.global.nc.u32 %r8, [%d1];!", 1, 1,
			wantFault{ReadOnly, 3, 0, 0, "(.nc)"}},
		"ldu of an atomic sum": {"atom.global.add.u32 %r8, [%d1], 1;\n!ldu.global.u32 %r8, [%d1];! #ldu.global.u32 %r8, [%d1+4];#", 1, 1,
			wantFault{ReadOnly, 3, 0, 0, "reads 4 bytes"}},
		"a flag": {"@%p2 st.global.u32 [%d2], 1;\n@%p2 !st.volatile.global.u32 [%d1], 1;! #st.release.gpu.global.u32 [%d1], 1;#\nld.acquire.gpu.global.u32 %r3, [%d1];\nsetp.eq.u32 %p3, %r3, 1; @%p3 ld.global.u32 %r3, [%d2];", 2, 1,
			wantFault{GlobalRace, 5, 1, 0, "has written"}},
	} {
		t.Run(name, func(t *testing.T) {
			dirty, clean := twins(c.body)
			if err := runFault(t, clean, c.blocks, c.threads, 0); err != nil {
				t.Errorf("the clean twin: %v", err)
			}
			want := c.want
			want.check(t, runFault(t, dirty, c.blocks, c.threads, 0))
		})
	}
}

// lastBlock: all threads of two blocks write, and those of the last one read.
func lastBlock(before, after string) string {
	return `shl.b32 %r5, %r0, 2; and.b32 %r5, %r5, 124; mad.lo.u32 %r5, %r2, 128, %r5; cvt.u64.u32 %d6, %r5; add.u64 %d6, %d6, %d2;
setp.ge.u32 %p3, %r0, 32; @!%p3 st.global.u32 [%d6], %r0;
` + before + `
@%p1 membar.gl;
@%p1 atom.global.add.u32 %r3, [%d1], 1;
` + after + `
@%p2 exit; @%p3 exit;
ld.global.u32 %r7, [%d4];`
}

// twins returns the body without what is between #, and without what is
// between !.
func twins(body string) (dirty, clean string) {
	for i, part := range strings.Split(body, "#") {
		// Text within # is in the clean twin alone.
		for j, inner := range splitMarks(part) {
			switch {
			case i%2 == 1:
				clean += inner
			case j%2 == 1:
				dirty += inner
			default:
				dirty += inner
				clean += inner
			}
		}
	}
	return dirty, clean
}

// splitMarks splits at each !, but not at those of predicates.
func splitMarks(s string) []string {
	const not = "\x00"
	parts := strings.Split(strings.ReplaceAll(s, "@!", not), "!")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], not, "@!")
	}
	return parts
}

// TestSeededOrder: a race is found in every order of the blocks, and the same
// seed gives the same fault.
func TestSeededOrder(t *testing.T) {
	e := entry(t, parse(t, kernel(faultParams, faultStart+"st.global.u32 [%d2], %r2;")), "k")
	seen := map[[3]int]bool{}
	for seed := range uint64(8) {
		var first *Fault
		for range 2 {
			r := newRig(t)
			err := r.launch(e, Launch{Grid: [3]int{9, 1, 1}, Block: [3]int{1, 1, 1}, Seed: seed, Params: params(t, e, r.put(make([]uint32, 64)), r.alloc(256), uint32(0))})
			var f *Fault
			if !errors.As(err, &f) || f.Kind != GlobalRace {
				t.Fatalf("got %v, want a race", err)
			}
			if first != nil && *f != *first {
				t.Errorf("seed %d gives %v, then %v", seed, first, f)
			}
			first = f
		}
		seen[first.Block] = true
	}
	if len(seen) < 3 {
		t.Errorf("eight seeds find the race in blocks %v only", seen)
	}
}

func TestBadLaunches(t *testing.T) {
	plain := kernel(".param .u64 a, .param .u32 n", "ret;")
	large := kernel("", ".shared .b8 s[50000]; st.shared.u8 [s], 1;")
	some := kernel("", ".shared .b8 s[1024]; st.shared.u8 [s], 1;")
	bounded := strings.Replace(kernel("", "ret;"), "\n{", "\n.maxntid 64, 1, 1\n{", 1)
	required := strings.Replace(kernel("", "ret;"), "\n{", "\n.reqntid 8, 2\n{", 1)
	one := [3]int{1, 1, 1}
	for name, c := range map[string]struct {
		text string
		l    Launch
		want string
	}{
		"fine":               {plain, Launch{Grid: one, Block: one, Params: make([]byte, 12)}, ""},
		"no blocks":          {plain, Launch{Grid: [3]int{1, 0, 1}, Block: one, Params: make([]byte, 12)}, "a grid of [1 0 1] blocks"},
		"no threads":         {plain, Launch{Grid: one, Params: make([]byte, 12)}, "of [0 0 0] threads"},
		"many threads":       {plain, Launch{Grid: one, Block: [3]int{32, 33, 1}, Params: make([]byte, 12)}, "at most 1024"},
		"deep block":         {plain, Launch{Grid: one, Block: [3]int{1, 1, 65}, Params: make([]byte, 12)}, "64 in z"},
		"grid in y":          {plain, Launch{Grid: [3]int{1, 65536, 1}, Block: one, Params: make([]byte, 12)}, "65535 in y and z"},
		"parameters":         {plain, Launch{Grid: one, Block: one, Params: make([]byte, 16)}, "16 bytes of parameters for 12"},
		"static shared":      {large, Launch{Grid: one, Block: one}, "50000 bytes of static shared memory"},
		"dynamic shared":     {some, Launch{Grid: one, Block: one, Shared: 227<<10 - 1023}, "on top of 1024 static ones"},
		"all shared":         {some, Launch{Grid: one, Block: one, Shared: 227<<10 - 1024}, ""},
		"negative shared":    {some, Launch{Grid: one, Block: one, Shared: -1}, "-1 bytes of shared memory"},
		".maxntid":           {bounded, Launch{Grid: one, Block: [3]int{65, 1, 1}}, ".maxntid [64 1 1]"},
		".maxntid, reshaped": {bounded, Launch{Grid: one, Block: [3]int{8, 8, 1}}, ""},
		".reqntid":           {required, Launch{Grid: one, Block: [3]int{16, 1, 1}}, ".reqntid [8 2 1]"},
		".reqntid met":       {required, Launch{Grid: one, Block: [3]int{8, 2, 1}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := entry(t, parse(t, c.text), "k").Run(context.Background(), NewMemory(0), c.l)
			var f *Fault
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &f) || f.Kind != BadLaunch || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "kernel k: ")):
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
}

// TestTooLong: an endless loop ends at the limit of steps, or with the
// context.
func TestTooLong(t *testing.T) {
	e := entry(t, parse(t, kernel("", "mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 3;\nAGAIN: @%p1 bra AGAIN;")), "k")
	l := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Steps: 1000}
	wantFault{TooLong, 1, 0, 3, "its warp has executed 1000 instructions"}.check(t, e.Run(context.Background(), NewMemory(0), l))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.Steps = 0
	if err := e.Run(ctx, NewMemory(0), l); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestRuntimeCalls: those of CUDA's runtime end the kernel.
func TestRuntimeCalls(t *testing.T) {
	text := header + `.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func __assertfail (.param .b64 m);
.visible .entry k(.param .u32 n) {
.reg .pred %p<4>; .reg .b64 %d<3>; .reg .b32 %r<3>; .param .b64 m;
ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0;
@!%p1 bra P;
call.uni __assertfail, (m);
P: .param .b32 r; call.uni (r), vprintf, (m, m);
ret; }`
	e := entry(t, parse(t, text), "k")
	for n, want := range []wantFault{{Trap, 10 - bodyLine, 0, 0, "calls __assertfail"}, {Trap, 11 - bodyLine, 0, 0, "calls vprintf"}} {
		want.check(t, newRig(t).run(e, 1, 1, uint32(n)))
	}
}

// TestFreedInKernel: use after free is named as such.
func TestFreedInKernel(t *testing.T) {
	r := newRig(t)
	e := entry(t, parse(t, kernel(".param .u64 a", "ld.param.u64 %d1, [a];\nld.global.u32 %r1, [%d1+8];")), "k")
	a := r.put([]uint32{1, 2, 3})
	r.mustRun(e, 1, 1, a)
	if err := r.mem.Free(a); err != nil {
		t.Fatal(err)
	}
	wantFault{OutOfBounds, 1, 0, 0, "in the allocation of 12 bytes at 0x7f0000000000, which was freed"}.check(t, r.run(e, 1, 1, a))
}

// TestThreadIDs: faults name threads of blocks with three dimensions.
func TestThreadIDs(t *testing.T) {
	r := newRig(t)
	e := entry(t, parse(t, kernel("", "mov.u32 %r1, %tid.z; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %tid.y;\nadd.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; setp.eq.u32 %p1, %r1, 4; @%p1 trap;")), "k")
	err := r.launch(e, Launch{Grid: [3]int{2, 3, 1}, Block: [3]int{3, 2, 4}})
	var f *Fault
	if !errors.As(err, &f) || f.Thread != [3]int{0, 1, 3} || f.Block != [3]int{0, 0, 0} {
		t.Errorf("got %v", err)
	}
}

// TestCoResidency: no block may wait for another one of its launch, since a device need not run
// them at once: one that begins first waits in vain.
func TestCoResidency(t *testing.T) {
	e := entry(t, parse(t, kernel(".param .u64 at", `ld.param.u64 %d1, [at]; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0;
@%p1 bra WAIT;
st.release.gpu.global.u32 [%d1], 1;
ret;
WAIT: ld.acquire.gpu.global.u32 %r2, [%d1]; setp.eq.u32 %p2, %r2, 0;
@%p2 bra WAIT;`)), "k")
	found := 0
	for seed := range uint64(16) {
		m := NewMemory(1 << 10)
		at, err := m.Alloc(4)
		if err == nil {
			err = m.Fill(at, 0, 4)
		}
		if err != nil {
			t.Fatal(err)
		}
		l := Launch{Grid: [3]int{2, 1, 1}, Block: [3]int{1, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, at), Steps: 1000, Seed: seed + 1}
		var f *Fault
		if err := e.Run(context.Background(), m, l); errors.As(err, &f) && f.Kind == TooLong {
			found++
		} else if err != nil {
			t.Error(err)
		}
	}
	if found == 0 {
		t.Error("16 orders did not show that a block waits for another")
	}
}
