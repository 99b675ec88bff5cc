package models

import "github.com/krait-ml/krait/graph"

// Falcon-Mamba (Zuo et al. 2024, https://arxiv.org/abs/2410.05355, section 3.1)
// is Mamba with a norm, without weights, on dt, B and C.
func readFalconMamba(c *Config) *Model {
	m, mix := readMambaKeys(c)
	eps := c.Positive("mixer_rms_eps", 1e-6)
	mix.norm = func(p *parts, name string, v *graph.Value) *graph.Value { return p.RMSNorm(name+"_norm", v, nil, eps) }
	c.Without("use_falcon_mambapy")
	return m.model(m.residual(mix.build))
}
