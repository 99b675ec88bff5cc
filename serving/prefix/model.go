package prefix

import (
	"fmt"
	"math"
)

// Model is what a sequence costs: a·L + b·L² FLOPs to prefill L tokens, bytes of
// attention cache per token, and bytes of the states of all layers.
type Model struct {
	FLOPsPerToken        float64 `json:"flops_per_token"`         // a
	FLOPsPerTokenSquared float64 `json:"flops_per_token_squared"` // b
	CacheBytes           int64   `json:"cache_bytes_per_token"`
	StateBytes           int64   `json:"state_bytes"` // 0: attention only
}

// mostFLOPs per token is as far from overflow as it takes.
const mostFLOPs = 1e100

// MostBytes is the largest capacity. With the limits of [Model.Check], no sum of bytes
// overflows while a request is admitted.
const MostBytes = 1 << 62

// Check is an error where the figures are of no model.
func (m Model) Check() error {
	for _, x := range []float64{m.FLOPsPerToken, m.FLOPsPerTokenSquared} {
		if !(x >= 0 && x <= mostFLOPs) {
			return fmt.Errorf("%g FLOPs per token and %g per token squared: both must be from 0 to %g", m.FLOPsPerToken, m.FLOPsPerTokenSquared, float64(mostFLOPs))
		}
	}
	switch most := int64(math.MaxInt64) / (8 * MaxTokens); {
	case m.CacheBytes < 0 || m.StateBytes < 0:
		return fmt.Errorf("%d cache bytes per token and %d state bytes: neither may be negative", m.CacheBytes, m.StateBytes)
	case m.CacheBytes == 0 && m.StateBytes == 0:
		return fmt.Errorf("0 cache bytes per token and 0 state bytes: there is nothing to keep")
	case m.CacheBytes > most || m.StateBytes > most:
		return fmt.Errorf("%d cache bytes per token and %d state bytes: neither may be over %d", m.CacheBytes, m.StateBytes, most)
	}
	return nil
}

// FLOPs is what it takes to prefill so many tokens. The conversions keep the compiler
// from fusing, so that all machines agree.
func (m Model) FLOPs(tokens int) float64 {
	l := float64(tokens)
	return float64(m.FLOPsPerToken*l) + float64(m.FLOPsPerTokenSquared*float64(l*l))
}

// Bytes is what tokens take, and their state if there is one.
func (m Model) Bytes(tokens int, state bool) int64 {
	b := int64(tokens) * m.CacheBytes
	if state {
		b += m.StateBytes
	}
	return b
}
