package workload

import "math"

// Each kind draws first the texts that sessions share, and then one session per call.

func beginChat(m *maker) func() []turn {
	systems := m.several(4, 200, 1200)
	return func() (turns []turn) {
		for first := true; first || len(turns) < 30 && m.rng.IntN(5) > 0; first = false {
			asked := m.about(40, 1, 2000)
			if first {
				asked = after(m.one(systems), asked)
			}
			turns = append(turns, turn{asked, m.about(200, 0.8, 4000)})
		}
		return turns
	}
}

func beginAgent(m *maker) func() []turn {
	systems := m.several(3, 2000, 6000)
	return func() (turns []turn) {
		asked := after(m.one(systems), m.about(800, 0.6, 8000))
		for range 5 + m.rng.IntN(36) {
			turns = append(turns, turn{asked, m.about(120, 0.7, 2000)})
			asked = m.about(500, 1.1, 8000)
		}
		return turns
	}
}

func beginTools(m *maker) func() []turn {
	system := m.text(1500)
	return func() (turns []turn) {
		asked := after(system, m.about(1500, 1.3, 200_000))
		for first := true; first || m.rng.IntN(8) > 0; first = false {
			turns = append(turns, turn{asked, m.about(120, 0.7, 2000)})
			asked = m.about(400, 1.5, 200_000)
		}
		return turns
	}
}

// The probability of task k is roughly proportional to 1/k.
func beginFewshot(m *maker) func() []turn {
	tasks := m.several(12, 1000, 6000)
	return func() []turn {
		k := int(math.Pow(float64(len(tasks)+1), m.rng.Float64())) - 1
		return []turn{{after(tasks[k], m.about(60, 0.6, 1000)), m.between(1, 64)}}
	}
}

func beginDocs(m *maker) func() []turn {
	documents := m.several(12, 8000, 30000)
	return func() []turn {
		if m.rng.IntN(4) > 0 {
			return []turn{{m.about(1500, 0.7, 20000), m.about(100, 0.7, 2000)}}
		}
		return []turn{{after(m.one(documents), m.about(40, 0.8, 1000)), m.about(100, 0.7, 2000)}}
	}
}
