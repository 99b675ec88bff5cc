package prefix

import "math/bits"

// Classes of nodes. The nodes of a class are expected to be used again alike.
const (
	kinds      = 3 // end of a sequence, mark at the end of a prompt, branch
	fans       = 3 // children: 0, 1, more
	usesKnown  = 4 // uses so far: 0, 1, 2, more
	depthsEach = 8 // tokens: below 128, 512, 2,048, 8,192, and so on
	families   = kinds * fans * usesKnown
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

// waits counts, by age, uses of nodes and the requests for which nodes waited at that age. A node
// waits from its last use to the next, or until it is forgotten.
type waits struct {
	uses, time [ages]float64
	number     float64
}

func (w *waits) add(age int, used bool) {
	last := bucketOf(age)
	for b := range last {
		w.time[b] += ageOf(b+1) - ageOf(b)
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
	density  [families * depthsEach][ages]float64
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
		h.all.uses[b], h.all.time[b] = 0.1, 10*(ageOf(b+1)-ageOf(b))
	}
	h.all.number = 1
	return h
}

// classOf returns the family and the class of a node.
func classOf(n *node) (family, class int) {
	family = (int(n.kind)*fans+min(len(n.children), fans-1))*usesKnown + min(n.uses, usesKnown-1)
	return family, family*depthsEach + min(bits.Len(uint(n.depth/64))/2, depthsEach-1)
}

// count counts the end of a wait of a node, at a request.
func (h *counts) count(n *node, request int, used bool) {
	age := request - n.since
	if n.since = request; age < 1 && !used {
		return
	}
	family, class := classOf(n)
	for _, w := range []*waits{&h.all, &h.family[family], &h.class[class]} {
		w.add(max(age, 1), used)
	}
}

// refresh updates the densities. Nodes that wait count up to now.
func (h *hazard) refresh(waiting []*node, request int) {
	now := h.counts
	for _, n := range waiting {
		since := n.since
		now.count(n, request, false)
		n.since = since
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
