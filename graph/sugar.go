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

// Part is one field of an axis of x, or neighbouring ones.
func (b *Builder) Part(name, fields string, x *Value, axis int) *Value {
	return b.one(name, "field", Attrs{"name": fields, "axis": axis}, x)
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

// Times is x · by.
func (b *Builder) Times(name string, x *Value, by float64) *Value {
	return b.one(name, "times", Attrs{"by": by}, x)
}

// Plus is x + by.
func (b *Builder) Plus(name string, x *Value, by float64) *Value {
	return b.one(name, "plus", Attrs{"by": by}, x)
}

// HeadDown is x[t h·k] times w[h·n k], a matrix per head: t h·n.
func (b *Builder) HeadDown(name string, x, w *Value) *Value {
	return b.one(name, "head_down", nil, x, w)
}

// HeadUp is x[t h·k] times w[h·n k], a matrix per head, whose results are
// channels that ranks own: t h·n.
func (b *Builder) HeadUp(name string, x, w *Value) *Value { return b.one(name, "head_up", nil, x, w) }

// Concat joins values along their last axis; names are those of the fields, "h|e".
func (b *Builder) Concat(name, names string, values ...*Value) *Value {
	return b.one(name, "concat", Attrs{"names": names}, values...)
}

// Rotary rotates the first dims channels of each head of x[t h·p] by the position
// of the token: seg[s 3] and past[s] tell it.
func (b *Builder) Rotary(name string, x, seg, past *Value, theta float64, dims int) *Value {
	return b.one(name, "rotary", Attrs{"theta": theta, "dims": dims}, x, seg, past)
}

// Attention is causal attention of q[t g·q·p] over keys and values k and v[t g·p]
// and those in the caches[s c g·p], which it extends.
func (b *Builder) Attention(name string, q, k, v, keys, values, seg, past *Value, scale float64) *Value {
	return b.one(name, "attention", Attrs{"scale": scale}, q, k, v, keys, values, seg, past)
}

// Router turns scores x[t e] into the weights of the top experts, 0 for others.
// With norm the weights of a token sum to 1.
func (b *Builder) Router(name string, x *Value, top int, norm bool) *Value {
	a := Attrs{"top": top}
	if norm {
		a["norm"] = 1
	}
	return b.one(name, "router", a, x)
}

// Experts is a gated MLP per expert, with gate and up[e i k] and down[e n i],
// summed with the weights[t e], of which top are not 0.
func (b *Builder) Experts(name, act string, x, weights, gate, up, down *Value, top int) *Value {
	return b.one(name, "experts", Attrs{"act": act, "top": top}, x, weights, gate, up, down)
}

// SigmoidRouter turns scores x[t e] into the sigmoids of the top experts by sigmoid plus
// bias[e], 0 for others. The attributes are those of the row: top, norm, groups, kept, eps.
func (b *Builder) SigmoidRouter(name string, x, bias *Value, attrs Attrs) *Value {
	return b.one(name, "sigmoid_router", attrs, x, bias)
}

// UngatedExperts is an MLP per expert, down act(up x), with up[e i k] and down[e n i],
// summed with the weights[t e], of which top are not 0.
func (b *Builder) UngatedExperts(name, act string, x, weights, up, down *Value, top int) *Value {
	return b.one(name, "ungated_experts", Attrs{"act": act, "top": top}, x, weights, up, down)
}

// Choose is a token for each row of logits[o v], drawn as choice[o …] says
// ([ChoiceType]), with the repetition penalty on the tokens of seen[o words]
// ([SeenType]): i32[o], below 0 if no token can be chosen ([BrokenLogits]).
func (b *Builder) Choose(name string, logits, choice, seen *Value) *Value {
	return b.one(name, "choose", nil, logits, choice, seen)
}

// Map applies a function of one element: silu, gelu, gelu_tanh, relu, relu2, sigmoid,
// tanh, softplus or neg_exp; or one that was registered ([RegisterOp]).
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

// HeadRMSNorm is w · x / sqrt(mean x² + eps) of each head of x[t h·p], with w[p].
func (b *Builder) HeadRMSNorm(name string, x, w *Value, eps float64) *Value {
	return b.one(name, "head_rmsnorm", Attrs{"eps": eps}, x, w)
}

// HeadL2Norm is x / sqrt(Σ x² + eps) of each head of x[t h·p], whose units are heads.
func (b *Builder) HeadL2Norm(name string, x *Value, eps float64) *Value {
	return b.one(name, "head_l2norm", Attrs{"eps": eps}, x)
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

// DeltaScan is the gated delta rule per head: S = exp(g) S, S = S + k · beta (v - Sᵀk),
// y = scale · Sᵀq, with q and k[t g·n], v[t h·p], log decays g[t h] or [t h·n], beta[t h],
// state S[s h n p]. Each head of q and k serves h/g neighbouring heads of v.
func (b *Builder) DeltaScan(name string, q, k, v, g, beta, state, seg *Value, scale float64) *Value {
	return b.one(name, "delta_scan", Attrs{"scale": scale}, q, k, v, g, beta, state, seg)
}
