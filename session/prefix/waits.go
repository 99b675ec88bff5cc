package prefix

import "math/bits"

// Classes of nodes. The nodes of a class are expected to be used again alike.
const (
	kinds      = 3 // end of a sequence, mark at the end of a prompt, branch
	fans       = 3 // children: 0, 1, more
	usesKnown  = 4 // uses so far: 0, 1, 2, more
	depthsEach = 8 // tokens: below 128, 512, 2,048, 8,192, and so on
	families   = kinds * fans * usesKnown
	idle       = families * depthsEach // of nodes that cannot be hit
)

const (
	ages = 44 // buckets of ages in requests: two per power of two
	// prior is the number of waits in the average class of all depths, and in that of all nodes, by
	// which a class is extended, so that few waits decide nothing.
	prior = 100
	// refreshed is the number of requests between two updates of the densities, and faded what
	// remains of the counts after it: half of them come from the last 4,400 requests.
	refreshed = 64
	faded     = 0.99
)

// bucketOf returns the bucket of an age, at least 1.
func bucketOf(age int) int {
	octave := bits.Len(uint(age)) - 1
	half := age << 1 >> octave & 1
	return min(2*octave+half, ages-1)
}

// ageOf returns the least age of a bucket.
func ageOf(bucket int) float64 {
	return [2]float64{1, 1.5}[bucket%2] * float64(int(1)<<(bucket/2))
}

// widths are the numbers of ages of the buckets before the last.
var widths = func() (w [ages - 1]float64) {
	for b := range w {
		w[b] = ageOf(b+1) - ageOf(b)
	}
	return w
}()

// waits counts, by age, uses of nodes and the requests for which nodes waited at that age. A node
// waits from its last use to the next, or until it is forgotten.
type waits struct {
	uses, time [ages]float64
	number     float64
}

func (w *waits) add(age int, used bool) {
	last := bucketOf(age)
	for b, width := range widths[:last] {
		w.time[b] += width
	}
	w.time[last] += float64(age) - ageOf(last) + 1
	if used {
		w.uses[last]++
	}
	w.number++
}

func (w *waits) scale(f float64) {
	if w.number == 0 {
		return
	}
	for b := range ages {
		w.uses[b] = float64(w.uses[b] * f)
		w.time[b] = float64(w.time[b] * f)
	}
	w.number *= f
}

// blend adds the waits of a wider class as if they were at most prior in number.
func (w *waits) blend(wider *waits) {
	f := prior / max(wider.number, prior)
	for b := range ages {
		w.uses[b] += float64(f * wider.uses[b])
		w.time[b] += float64(f * wider.time[b])
	}
	w.number += prior
}

// densities returns, by age, the most uses per request of waiting that a node can be kept for: the
// horizon is the best one from that age on (Gittins' index).
func (w *waits) densities() (index [ages]float64) {
	for b := range ages {
		uses, time := 0.0, 0.0
		for end := b; end < ages; end++ {
			uses += w.uses[end]
			time += w.time[end]
			if time > 0 && uses/time > index[b] {
				index[b] = uses / time
			}
		}
	}
	return index
}

// hazard learns how soon nodes of a tree are used again, by their class. Its clock are requests.
type hazard struct {
	counts
	density  [idle + 1][ages]float64
	computed int // the request of the last update
}

// counts are the waits of all nodes, of each family and of each class.
type counts struct {
	all    waits
	family [families]waits
	class  [families * depthsEach]waits
}

// newHazard expects uses with a density of about 1/age before any are counted.
func newHazard() *hazard {
	h := &hazard{}
	for b := range ages - 1 {
		h.all.uses[b], h.all.time[b] = 0.1, 10*widths[b]
	}
	h.all.number = 1
	return h
}

// classOf returns the class of a node, of depthsEach in each family.
func classOf(n *node) int {
	family := (int(n.kind)*fans+min(n.fan, fans-1))*usesKnown + min(n.uses, usesKnown-1)
	return family*depthsEach + min(bits.Len(uint(n.depth/64))/2, depthsEach-1)
}

// count counts the end of a wait of a node, at a request.
func (h *counts) count(n *node, request int, used bool) {
	age := request - n.since
	if n.since = request; age < 1 && !used {
		return
	}
	h.add(classOf(n), max(age, 1), used)
}

// add counts the end of a wait in a class.
func (h *counts) add(class, age int, used bool) {
	h.all.add(age, used)
	h.family[class/depthsEach].add(age, used)
	h.class[class].add(age, used)
}

// refresh updates the densities. Nodes that wait count up to now.
func (h *hazard) refresh(waiting []claim, request int) {
	now := h.counts
	for _, c := range waiting {
		if age := request - c.since; c.class != idle && age > 0 {
			now.add(int(c.class), age, false)
		}
	}
	unseen := -1 // the first class of a family without waits
	for f := range now.family {
		own := -1 // the first class of this family without waits
		like := &own
		if now.family[f].number == 0 {
			like = &unseen
		}
		now.family[f].blend(&now.all)
		for c := f * depthsEach; c < (f+1)*depthsEach; c++ {
			if now.class[c].number == 0 {
				if *like >= 0 { // most classes are alike
					h.density[c] = h.density[*like]
					continue
				}
				*like = c
			}
			now.class[c].blend(&now.family[f])
			h.density[c] = now.class[c].densities()
		}
	}
	h.all.scale(faded)
	for f := range h.family {
		h.family[f].scale(faded)
	}
	for c := range h.class {
		h.class[c].scale(faded)
	}
	h.computed = request
}

// of returns the density of a class at an age.
func (h *hazard) of(class, age int) float64 { return h.density[class][bucketOf(max(age, 1))] }
