package models

// Falcon-Mamba (Zuo et al. 2024, https://arxiv.org/abs/2410.05355, section 3.1)
// is Mamba with a norm, without weights, on dt, B and C.
func readFalconMamba(c *Config) *Model {
	m := readMambaKeys(c)
	m.paramEps = c.Positive("mixer_rms_eps", 1e-6)
	c.Without("use_falcon_mambapy")
	return m.model()
}
