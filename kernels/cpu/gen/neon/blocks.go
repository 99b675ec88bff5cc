package main

// blocks generates what widens weights in blocks of 32 whole numbers of 8 bits, with a scale in f16
// before them. The products are exact.
func blocks(f *file) {
	g := f.function("widenBlocks", "(to *float32, from *byte, n int)", "widens n blocks, at least one, of a scale in f16 and 32 numbers of 8 bits.")
	to, from, n := g.param("to"), g.param("from"), g.param("n")
	g.at("next")
	scale := g.widened(f16, g.load16(from), 0)
	for range 2 {
		bytes := g.load(from, 16)
		for _, widen := range []string{"sshll 8h 8b #0", "sshll2 8h 16b #0"} {
			words := g.new()
			g.arm(widen, words, bytes)
			for _, widen := range []string{"sshll 4s 4h #0", "sshll2 4s 8h #0"} {
				v := g.new()
				g.arm(widen, v, words)
				g.arm("scvtf 4s 4s", v, v)
				g.arm("fmul 4s 4s s[0]", v, v, scale)
				g.put(v, to, 16)
			}
		}
	}
	g.countdown(n, 1, "BNE", "next")
}
