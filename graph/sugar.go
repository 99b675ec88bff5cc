package graph

// One line per operation that models use; each names its result.

func (b *Builder) one(name, op string, a Attrs, args ...*Value) *Value {
	return b.Apply(name, op, a, args...)[0]
}

// Embedding looks up rows ids[t] of table[v d].
func (b *Builder) Embedding(name string, ids, table *Value) *Value {
	return b.one(name, "embedding", nil, ids, table)
}

// SelectRows keeps rows[o] of x[t d].
func (b *Builder) SelectRows(name string, x, rows *Value) *Value {
	return b.one(name, "select_rows", nil, x, rows)
}

// Field is one field of the packed last axis of x[t d].
func (b *Builder) Field(name string, x *Value) *Value {
	return b.one(name, "field", Attrs{"name": name}, x)
}

// Fields is neighbouring fields of the packed last axis of x[t d], "x|B|C".
func (b *Builder) Fields(name, fields string, x *Value) *Value {
	return b.one(name, "field", Attrs{"name": fields}, x)
}

// MatMul is x[t k] times the transpose of w[n k].
func (b *Builder) MatMul(name string, x, w *Value) *Value { return b.one(name, "matmul", nil, x, w) }

// Bias adds v[n] to every row of x[t n].
func (b *Builder) Bias(name string, x, v *Value) *Value { return b.one(name, "bias", nil, x, v) }

// Scale multiplies x[t h·p] by v[h], one factor for each p neighbours.
func (b *Builder) Scale(name string, x, v *Value) *Value { return b.one(name, "scale", nil, x, v) }

// Add is x + y.
func (b *Builder) Add(name string, x, y *Value) *Value { return b.one(name, "add", nil, x, y) }

// Mul is x · y, element by element.
func (b *Builder) Mul(name string, x, y *Value) *Value { return b.one(name, "mul", nil, x, y) }

// Map applies a function of one element: silu, gelu, gelu_tanh, relu, softplus
// or neg_exp.
func (b *Builder) Map(name, function string, x *Value) *Value {
	return b.one(name, function, nil, x)
}

// Clamp limits x to [lo, hi].
func (b *Builder) Clamp(name string, x *Value, lo, hi float64) *Value {
	return b.one(name, "clamp", Attrs{"min": lo, "max": hi}, x)
}

// RMSNorm is w · x / sqrt(mean x² + eps) over the last axis; a nil w is all ones.
func (b *Builder) RMSNorm(name string, x, w *Value, eps float64) *Value {
	if w == nil {
		return b.one(name, "unit_rmsnorm", Attrs{"eps": eps}, x)
	}
	return b.one(name, "rmsnorm", Attrs{"eps": eps}, x, w)
}

// GroupRMSNorm normalises each of groups equal parts of the last axis by itself.
func (b *Builder) GroupRMSNorm(name string, x, w *Value, groups int, eps float64) *Value {
	return b.one(name, "group_rmsnorm", Attrs{"groups": groups, "eps": eps}, x, w)
}

// Conv1D is the causal depthwise convolution of x[t c] with w[c k] over time.
// state[s c k-1] holds the last inputs of each sequence; seg[s 3] the segments.
func (b *Builder) Conv1D(name string, x, w, state, seg *Value) *Value {
	return b.one(name, "conv1d", nil, x, w, state, seg)
}

// SelectiveScan is h = exp(dt A) h + dt u B, y = C h per channel, with u and
// dt[t d], A[d n], B and C[t g·n], state h[s d n].
func (b *Builder) SelectiveScan(name string, u, dt, a, bb, c, state, seg *Value) *Value {
	return b.one(name, "selective_scan", nil, u, dt, a, bb, c, state, seg)
}

// SSDScan is the scan with one A per head, with x[t h·p], dt[t h], A[h], B and
// C[t g·n], state[s h p n].
func (b *Builder) SSDScan(name string, x, dt, a, bb, c, state, seg *Value) *Value {
	return b.one(name, "ssd_scan", nil, x, dt, a, bb, c, state, seg)
}
