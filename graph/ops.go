package graph

// The operations. Letters: t tokens, d c k n widths, v vocabulary, h heads, p head size, g groups,
// s sequences, f the columns of %seg, l cached tokens, e experts, i hidden units, b words of bits.
//
// Operations that look across time read the batch's segments, an i32[s 3] of
// (first token, number of tokens, state slot) per sequence, so that prefill,
// decode and mixed batches are one program. Those that need positions read
// %past, an i32[s] of the tokens that each sequence had before the batch.
var table = []*Op{
	// Leaves.
	{Name: "input", Doc: "a tensor that the caller gives with every batch", Class: Leaf},
	{Name: "param", Doc: "a tensor of the checkpoint", Class: Leaf},
	{Name: "state", Doc: "what a sequence keeps between steps, a row per sequence", Class: Leaf},

	// Views.
	{Name: "field", Doc: "a field of a packed axis, or neighbouring ones: x, or x|B|C", Class: View, Operands: "a", Linear: [][]int{{0}},
		Attrs: []Attr{{"name", StringAttr, nil, anything}, {"axis", IntAttr, 1, anything}}, infer: inferField},

	// Rows in and out.
	{Name: "embedding", Doc: "row ids[t] of a table", Class: Compute, Rule: rule("t, v d -> t d"), Operands: "iw", cost: costEmbedding},
	{Name: "select_rows", Doc: "the rows of a value that are listed", Class: Compute, Rule: rule("t! d, o! -> o! d"),
		Operands: "ai", Linear: [][]int{{0}}, cost: costSelect},

	// Linear algebra. Weights are [out, in] as in checkpoints.
	{Name: "matmul", Doc: "x wᵀ", Class: Compute, Rule: rule("t k, n k -> t n"), Operands: "aw", Linear: [][]int{{0}}, Work: []string{"2 t k n"}},
	{Name: "bias", Doc: "x + b, b per channel", Class: Compute, Rule: rule("t n, n -> t n"), Operands: "af", InPlace: []int{0}, Linear: [][]int{{0, 1}}, Work: []string{"1 t n"}},
	{Name: "scale", Doc: "x · d, d per channel or head", Class: Compute, Rule: rule("t (h p!), h -> t (h p!)"), Operands: "af", InPlace: []int{0}, Linear: [][]int{{0}}, Work: []string{"1 t h p"}},
	{Name: "add", Doc: "x + y", Class: Compute, Rule: rule("*, * -> *"), Operands: "aa", Commutes: true, InPlace: []int{0, 1}, Linear: [][]int{{0, 1}}, Work: []string{"1"}},
	{Name: "mul", Doc: "x · y, element by element", Class: Compute, Rule: rule("*, * -> *"), Operands: "aa", Commutes: true, InPlace: []int{0, 1}, Linear: [][]int{{0}, {1}}, Work: []string{"1"}},

	{Name: "times", Doc: "x · by", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Linear: [][]int{{0}},
		Attrs: []Attr{{"by", FloatAttr, nil, anything}}, Work: []string{"1"}},
	{Name: "plus", Doc: "x + by", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0},
		Attrs: []Attr{{"by", FloatAttr, nil, anything}}, Work: []string{"1"}},
	// A matrix per head: from its channels to a few values, and back.
	{Name: "head_down", Doc: "each head's channels times the head's own matrix, to n values per head", Class: Compute,
		Rule: rule("t (h k), (h n!) k -> t (h n!)"), Operands: "aw", Linear: [][]int{{0}}, Work: []string{"2 t h k n"}},
	{Name: "head_up", Doc: "each head's few values times the head's own matrix, to n channels per head", Class: Compute,
		Rule: rule("t (h k!), (h n) k! -> t (h n)"), Operands: "aw", Linear: [][]int{{0}}, Work: []string{"2 t h k n"}},
	{Name: "concat", Doc: "values side by side, as fields of one axis with the names given: h|e", Class: Compute,
		Attrs: []Attr{{"names", StringAttr, nil, anything}}, rows: true, infer: inferConcat, cost: costCopy},

	// Functions of one element.
	{Name: "silu", Doc: "x / (1 + exp(-x))", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"4"}},
	{Name: "gelu", Doc: "x Φ(x), by erf", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"8"}},
	{Name: "gelu_tanh", Doc: "x Φ(x), by the tanh approximation", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"8"}},
	{Name: "relu", Doc: "max(x, 0)", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"1"}},
	{Name: "relu2", Doc: "max(x, 0)² (So et al. 2021)", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"2"}},
	{Name: "sigmoid", Doc: "1 / (1 + exp(-x))", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"3"}},
	{Name: "tanh", Doc: "(exp(x) - exp(-x)) / (exp(x) + exp(-x))", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"5"}},
	{Name: "softplus", Doc: "log(1 + exp(x))", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"4"}},
	{Name: "neg_exp", Doc: "-exp(x), at least the lowest f32: the A of A_log", Class: Compute, Rule: rule("* -> *"), Operands: "a", Work: []string{"2"}},
	{Name: "clamp", Doc: "min(max(x, min), max)", Class: Compute, Rule: rule("* -> *"), Operands: "a", InPlace: []int{0}, Work: []string{"2"},
		Attrs: []Attr{{"min", FloatAttr, nil, anything}, {"max", FloatAttr, nil, anything}}},

	// Norms (Zhang and Sennrich 2019).
	{Name: "rmsnorm", Doc: "w · x / sqrt(mean x² + eps)", Class: Compute, Rule: rule("t d!, d! -> t d!"), Operands: "af",
		Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"4 t d"}},
	{Name: "unit_rmsnorm", Doc: "x / sqrt(mean x² + eps), without a weight", Class: Compute, Rule: rule("t d! -> t d!"), Operands: "a",
		Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"3 t d"}},
	{Name: "group_rmsnorm", Doc: "rmsnorm of each of equal consecutive groups of channels", Class: Compute, Rule: rule("t (g e!), (g e!) -> t (g e!)"), Operands: "af",
		Attrs: []Attr{{"groups", IntAttr, nil, atLeast(1)}, {"eps", FloatAttr, nil, atLeast(0)}}, Sizes: map[byte]string{'g': "groups"}, Work: []string{"4 t g e"}},

	// Norms of heads, which ranks own.
	{Name: "head_rmsnorm", Doc: "rmsnorm of each head, with one weight for all heads", Class: Compute, Rule: rule("t (h p!), p! -> t (h p!)"), Operands: "af",
		Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"4 t h p"}},
	{Name: "head_l2norm", Doc: "x / sqrt(Σ x² + eps) of each head", Class: Compute, Rule: rule("t (h p!) -> t (h p!)"), Operands: "a",
		Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"3 t h p"}, check: checkHeadNorm},

	// A norm in two parts, so that its axis can be split: the sum is reduced in between.
	{Name: "sumsq", Doc: "Σ x² of each row", Class: Compute, Rule: rule("t d -> t"), Operands: "a", Statistic: true, Work: []string{"2 t d"}},
	{Name: "rms_scale", Doc: "w · x / sqrt(sum / width + eps), with the sum of squares of the whole row", Class: Compute,
		Rule: rule("t d, t, d -> t d"), Operands: "aaf", InPlace: []int{0}, Linear: [][]int{{0}}, Attrs: []Attr{{"width", IntAttr, nil, atLeast(1)}, {"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"3 t d"}},
	// Not linear in x by intent: x and the sum are to be whole at the same time.
	{Name: "rms_rows", Doc: "x / sqrt(sum / width + eps), with the sum of squares of another row per row of x", Class: Compute,
		Rule: rule("t d, t -> t d"), Operands: "aa", InPlace: []int{0}, Attrs: []Attr{{"width", IntAttr, nil, atLeast(1)}, {"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"1 t d"}},

	{Name: "group_sumsq", Doc: "Σ x² of each of equal consecutive groups of channels", Class: Compute, Rule: rule("t (g e) -> t g"), Operands: "a", Statistic: true,
		Attrs: []Attr{{"groups", IntAttr, nil, atLeast(1)}}, Sizes: map[byte]string{'g': "groups"}, Work: []string{"2 t g e"}},
	{Name: "group_rms_scale", Doc: "w · x / sqrt(sum / width + eps), with the sums of squares of the groups, of width channels each", Class: Compute,
		Rule: rule("t (g e), t g, (g e) -> t (g e)"), Operands: "aaf", InPlace: []int{0}, Linear: [][]int{{0}},
		Attrs: []Attr{{"width", IntAttr, nil, atLeast(1)}, {"eps", FloatAttr, nil, atLeast(0)}}, Sizes: map[byte]string{'e': "width"}, Work: []string{"3 t g e"}},

	// State-space models.
	{Name: "conv1d", Doc: "causal depthwise convolution over time; the state is the last width-1 inputs, oldest first", Class: Compute,
		Rule: rule("t! c, c w!, s! c m!, s! f! -> t! c, s! c m!"), Operands: "afsi", States: []StatePair{{2, 1, ConvState}}, Work: []string{"2 t c w"}, check: checkConv1D(3)},
	{Name: "selective_scan", Doc: "h = exp(dt A) h + dt u B, y = C h (Gu and Dao 2023, eq. 2): u dt A B C h seg", Class: Compute,
		Rule:     rule("t! (g q), t! (g q), (g q) n!, t! (g n!), t! (g n!), s! (g q) n!, s! f! -> t! (g q), s! (g q) n!"),
		Operands: "aafaasi", InPlace: []int{1}, States: []StatePair{{5, 1, SSMState}}, Work: []string{"7 t g q n"}, check: checkSegments(6)},
	{Name: "ssd_scan", Doc: "the scan with one A per head (Dao and Gu 2024, eq. 2): x dt A B C h seg", Class: Compute,
		Rule:     rule("t! (g q p!), t! (g q), (g q), t! (g n!), t! (g n!), s! (g q) p! n!, s! f! -> t! (g q p!), s! (g q) p! n!"),
		Operands: "aafaasi", States: []StatePair{{5, 1, SSMState}}, Work: []string{"6 t g q p n"}, check: checkSegments(6)},
	// A head has r decays: one, or one for each row of its state (Kimi Team 2025).
	{Name: "delta_scan", Doc: "the gated delta rule, S = exp(g) S, S = S + k · beta (v - Sᵀk), y = scale · Sᵀq (Yang et al. 2024): q k v g beta S seg", Class: Compute,
		Rule:     rule("t! (g n!), t! (g n!), t! (g q p!), t! (g q r!), t! (g q), s! (g q) n! p!, s! f! -> t! (g q p!), s! (g q) n! p!"),
		Operands: "aaaaasi", States: []StatePair{{5, 1, SSMState}}, Attrs: []Attr{{"scale", FloatAttr, nil, anything}}, Work: []string{"7 t g q n p"}, check: checkDelta},

	// Recurrences over parts of sequences; see parts.go. Letter z is the parts of all sequences.
	{Name: "parts", Doc: "the segments of the parts of sequences that ranks have, all first parts before all second; slots=1: with the slots of the sequences: x seg", Class: Compute, Parts: true, Operands: "ai",
		Attrs: []Attr{{"parts", IntAttr, nil, severalParts}, {"slots", IntAttr, 0, zeroOrOne}}, Gives: I32, infer: inferParts, cost: costSegments},
	{Name: "zeros", Doc: "a row of zeros, of the axes dims, for each row of x; diagonal=1: with ones where the last two axes are equal", Class: Compute, Parts: true,
		Attrs: []Attr{{"dims", StringAttr, nil, anything}, {"diagonal", IntAttr, 0, zeroOrOne}}, infer: inferZeros, cost: costZeros},
	{Name: "segment_sums", Doc: "the sum of the rows of each segment: x seg", Class: Compute, Parts: true, Rule: rule("t! d, s! f! -> s! d"), Operands: "ai", Work: []string{"1 t d"}, check: checkSegments(1)},
	{Name: "conv_states", Doc: "the last inputs before each part, and after all: those after each part from zero, the state, the segments: u h seg", Class: Compute, Parts: true,
		Rule: rule("z! c m!, s! c m!, s! f! -> z! c m!, s! c m!"), Operands: "fsi", States: []StatePair{{1, 1, ConvState}}, Work: []string{"1 z c m"}, check: checkStatesOfParts(2)},
	{Name: "selective_states", Doc: "h before each part, and after all, where a part makes exp(A Σdt) h + u of it: Σdt u A h seg", Class: Compute, Parts: true,
		Rule: rule("z! d, z! d n!, d n!, s! d n!, s! f! -> z! d n!, s! d n!"), Operands: "fffsi", States: []StatePair{{3, 1, SSMState}}, Work: []string{"4 z d n"}, check: checkStatesOfParts(4)},
	{Name: "ssd_states", Doc: "selective_states with one A per head: Σdt u A h seg", Class: Compute, Parts: true,
		Rule: rule("z! h, z! h p! n!, h, s! h p! n!, s! f! -> z! h p! n!, s! h p! n!"), Operands: "fffsi", States: []StatePair{{3, 1, SSMState}}, Work: []string{"2 z h p n"}, check: checkStatesOfParts(4)},
	{Name: "delta_states", Doc: "S before each part, and after all, where a part makes M S + u of it: M u S seg", Class: Compute, Parts: true,
		Rule: rule("z! h n! m!, z! h n! p!, s! h m! p!, s! f! -> z! h n! p!, s! h m! p!"), Operands: "ffsi", States: []StatePair{{2, 1, SSMState}}, Work: []string{"2 z h n m p"}, check: checkDeltaStates},

	// The selective scan in steps that leave their results in memory, as without
	// one kernel for all of it: the pass unfuse-scan writes it. A prefix scan is not in
	// place, since neighbours are read at every level (Blelloch 1990).
	{Name: "scan_terms", Doc: "exp(dt A) and dt u B, by which h' = decay h + input: u dt A B", Class: Compute,
		Rule: rule("t! (g q), t! (g q), (g q) n!, t! (g n!) -> t! (g q) n!, t! (g q) n!"), Operands: "aafa", Work: []string{"4 t g q n"}},
	{Name: "scan_prefix", Doc: "what all tokens of a segment so far make of h: the products of decays, and h from 0: decay input seg", Class: Compute,
		Rule: rule("t! d n!, t! d n!, s! f! -> t! d n!, t! d n!"), Operands: "aai", Work: []string{"3 t d n"}, check: checkSegments(2)},
	{Name: "scan_output", Doc: "y = C (products h + sums), and the last h: products sums C h seg", Class: Compute,
		Rule:     rule("t! (g q) n!, t! (g q) n!, t! (g n!), s! (g q) n!, s! f! -> t! (g q), s! (g q) n!"),
		Operands: "aaasi", States: []StatePair{{3, 1, SSMState}}, Work: []string{"4 t g q n"}, check: checkSegments(4)},

	// Transformers.
	{Name: "rotary", Doc: "rotates pairs (j, j+dims/2) of the first dims of each head by position · theta^(-2j/dims) (Su et al. 2021): x seg past", Class: Compute,
		Rule: rule("t (h p!), s! f!, s! -> t (h p!)"), Operands: "aii", Attrs: []Attr{{"theta", FloatAttr, nil, above0}, {"dims", IntAttr, nil, evenPart}},
		Work: []string{"4 t h p"}, check: checkRotary},
	// Letters t and u are the same tokens. Queries may be some of them, keys and values not.
	{Name: "attention", Doc: "causal attention, softmax(scale · q kᵀ) v, over the tokens so far (Vaswani et al. 2017; groups share keys, Ainslie et al. 2023): q k v keys values seg past", Class: Compute,
		Rule:     rule("t (g q p!), u! (g p!), u! (g p!), s! l! (g p!), s! l! (g p!), s! f!, s! -> t (g q p!), s! l! (g p!), s! l! (g p!)"),
		Operands: "aaassii", States: []StatePair{{3, 1, CacheState}, {4, 2, CacheState}}, Attrs: []Attr{{"scale", FloatAttr, nil, anything}}, check: checkAttention, cost: costAttention},
	{Name: "router", Doc: "softmax over the experts, of which the top stay and others are 0; norm=1 makes those that stay sum to 1", Class: Compute,
		Rule: rule("t e! -> t e!"), Operands: "a", Attrs: []Attr{{"top", IntAttr, nil, someExperts}, {"norm", IntAttr, 0, zeroOrOne}}, Work: []string{"8 t e"}},
	{Name: "experts", Doc: "Σ over experts of weight · down (act(gate x) · up x), for the top weights that are not 0: x weights gate up down", Class: Compute,
		Rule: rule("t k!, t e!, e! i k!, e! i k!, e! n i -> t n"), Operands: "aawww",
		Attrs: []Attr{{"act", StringAttr, "silu", gateActivation}, {"top", IntAttr, nil, someExperts}}, cost: costExperts},
	{Name: "sigmoid_router", Doc: "the sigmoid of the scores of the experts that have the top of it plus a bias, 0 for others; only experts of the kept groups are chosen, which have the largest sums of two; norm=1 divides by the sum of those chosen plus eps (DeepSeek-AI 2024): x bias", Class: Compute,
		Rule: rule("t (g! e!), (g! e!) -> t (g! e!)"), Operands: "af", Sizes: map[byte]string{'g': "groups"},
		Attrs: []Attr{{"top", IntAttr, nil, someExperts}, {"norm", IntAttr, 0, zeroOrOne}, {"groups", IntAttr, 1, fewGroups}, {"kept", IntAttr, 1, someGroups}, {"eps", FloatAttr, 1e-20, atLeast(0)}}, Work: []string{"8 t g e"}},
	{Name: "ungated_experts", Doc: "Σ over experts of weight · down act(up x), for the top weights that are not 0: x weights up down", Class: Compute,
		Rule: rule("t k!, t e!, e! i k!, e! n i -> t n"), Operands: "aaww",
		Attrs: []Attr{{"act", StringAttr, "relu2", gateActivation}, {"top", IntAttr, nil, someExperts}}, cost: costExperts},

	// Tokens. Steps and their order are those of Hugging Face's generate: repetition
	// penalty, temperature, top-k, top-p, draw.
	{Name: "choose", Doc: "a token of each row of logits, drawn as choice says, with the penalty on the tokens seen; below 0 if no token can be chosen: logits choice seen", Class: Compute,
		Rule: rule("o! v!, o! c!, o! b! -> o!"), Operands: "ffi", Gives: I32, Work: []string{"8 o v"}, check: checkChoose},

	// Fused: what the pass fuse makes of neighbours. Each may be partial where the
	// operations that it stands for may.
	{Name: "add_rmsnorm", Doc: "x + y, and w · (x + y) / sqrt(mean (x + y)² + eps): add and rmsnorm", Class: Compute,
		Stands: "x y w -> s n: s = add x y; n = rmsnorm s w",
		Rule:   rule("t d!, t d!, d! -> t d!, t d!"), Operands: "aaf", InPlace: []int{0, 1}, Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"5 t d"}},
	{Name: "conv1d_silu", Doc: "silu(conv1d(x) + b): conv1d, bias and silu: x w b state seg", Class: Compute,
		Stands: "x w b h seg -> y new: c(y) new = conv1d x w h seg; d(y) = bias c b; y = silu d",
		Rule:   rule("t! c, c w!, c, s! c m!, s! f! -> t! c, s! c m!"), Operands: "affsi", States: []StatePair{{3, 1, ConvState}}, Work: []string{"2 t c w", "5 t c"}, check: checkConv1D(4)},
	{Name: "unbiased_conv1d_silu", Doc: "silu(conv1d(x)): conv1d and silu: x w state seg", Class: Compute,
		Stands: "x w h seg -> y new: c(y) new = conv1d x w h seg; y = silu c",
		Rule:   rule("t! c, c w!, s! c m!, s! f! -> t! c, s! c m!"), Operands: "afsi", States: []StatePair{{2, 1, ConvState}}, Work: []string{"2 t c w", "4 t c"}, check: checkConv1D(3)},
	{Name: "silu_mul", Doc: "silu(x) · y: silu and mul", Class: Compute, Stands: "x y -> z: g(x) = silu x; z = mul g y",
		Rule: rule("*, * -> *"), Operands: "aa", InPlace: []int{0, 1}, Linear: [][]int{{1}}, Work: []string{"5"}},
	{Name: "bias_softplus", Doc: "softplus(x + b), b per channel: bias and softplus", Class: Compute, Stands: "x b -> y: c(x) = bias x b; y = softplus c",
		Rule: rule("t n, n -> t n"), Operands: "af", InPlace: []int{0}, Work: []string{"5 t n"}},
	{Name: "add_scaled", Doc: "y + x · d, d per channel or head: scale and add", Class: Compute, Stands: "y x d -> z: c(x) = scale x d; z = add y c",
		Rule: rule("t (h p!), t (h p!), h -> t (h p!)"), Operands: "aaf", InPlace: []int{0, 1}, Linear: [][]int{{0, 1}}, Work: []string{"2 t h p"}},

	// Fused for devices where launches cost.
	{Name: "matmul_add", Doc: "x wᵀ + y: matmul and add: x w y", Class: Compute, Launches: true, Stands: "x w y -> z: c(z) = matmul x w; z = add c y",
		Rule: rule("t k!, n k!, t n -> t n"), Operands: "awa", InPlace: []int{2}, Linear: [][]int{{0, 2}}, Work: []string{"2 t k n", "1 t n"}},
	{Name: "norm_matmul", Doc: "(g · x / sqrt(mean x² + eps)) wᵀ: rmsnorm and matmul: x g w", Class: Compute, Launches: true,
		Stands: "x g w -> z: c(x) = rmsnorm x g; z = matmul c w",
		Rule:   rule("t k!, k!, n k! -> t n"), Operands: "afw", Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"4 t k", "2 t k n"}},
	{Name: "norm_matmul_add", Doc: "(g · x / sqrt(mean x² + eps)) wᵀ + y: rmsnorm, matmul and add: x g w y", Class: Compute, Launches: true,
		Stands: "x g w y -> z: c(x) = rmsnorm x g; z = matmul_add c w y",
		Rule:   rule("t k!, k!, n k!, t n -> t n"), Operands: "afwa", InPlace: []int{3}, Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"4 t k", "2 t k n", "1 t n"}},
	{Name: "gated_matmul", Doc: "silu(x wᵀ) · (x vᵀ): two matmuls and silu_mul: x w v", Class: Compute, Launches: true,
		Stands: "x w v -> y: g(y) = matmul x w; u(y) = matmul x v; y = silu_mul g u",
		Rule:   rule("t k!, n k!, n k! -> t n"), Operands: "aww", Work: []string{"4 t k n", "5 t n"}},
	{Name: "norm_gated_matmul", Doc: "gated_matmul of g · x / sqrt(mean x² + eps): rmsnorm, two matmuls and silu_mul: x g w v", Class: Compute, Launches: true,
		Stands: "x g w v -> y: n(x) = rmsnorm x g; y = gated_matmul n w v",
		Rule:   rule("t k!, k!, n k!, n k! -> t n"), Operands: "afww", Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"4 t k", "4 t k n", "5 t n"}},
	{Name: "norm_router", Doc: "n = g · x / sqrt(mean x² + eps), and the router of n wᵀ: rmsnorm, matmul and router: x g w", Class: Compute, Launches: true,
		Stands: "x g w -> n p: n = rmsnorm x g; s(p) = matmul n w; p = router s",
		Rule:   rule("t k!, k!, e! k! -> t k!, t e!"), Operands: "afw", Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}, {"top", IntAttr, nil, someExperts}, {"norm", IntAttr, 0, zeroOrOne}},
		Work: []string{"4 t k", "2 t k e", "8 t e"}},
	{Name: "add_experts", Doc: "experts and add: x weights gate up down y", Class: Compute, Launches: true,
		Stands: "x p u v w y -> z: c(z) = experts x p u v w; z = add c y",
		Rule:   rule("t k!, t e!, e! i! k!, e! i! k!, e! n i!, t n -> t n"), Operands: "aawwwa", InPlace: []int{5},
		Attrs: []Attr{{"act", StringAttr, "silu", gateActivation}, {"top", IntAttr, nil, someExperts}}, cost: costExperts},
	{Name: "add_ungated_experts", Doc: "ungated_experts and add: x weights up down y", Class: Compute, Launches: true,
		Stands: "x p v w y -> z: c(z) = ungated_experts x p v w; z = add c y",
		Rule:   rule("t k!, t e!, e! i! k!, e! n i!, t n -> t n"), Operands: "aawwa", InPlace: []int{4},
		Attrs: []Attr{{"act", StringAttr, "relu2", gateActivation}, {"top", IntAttr, nil, someExperts}}, cost: costExperts},
	{Name: "selective_scan_gated", Doc: "silu(z) · (selective_scan + u D), with steps softplus(dt + b): u dt b A B C D z h seg", Class: Compute, Launches: true,
		Stands:   "u dt b A B C D z h seg -> y new: d(dt) = bias_softplus dt b; s(y) new = selective_scan u d A B C h seg; a(y) = add_scaled s u D; y = silu_mul z a",
		Rule:     rule("t! (g q), t! (g q), (g q), (g q) n!, t! (g n!), t! (g n!), (g q), t! (g q), s! (g q) n!, s! f! -> t! (g q), s! (g q) n!"),
		Operands: "aaffaafasi", InPlace: []int{1}, States: []StatePair{{8, 1, SSMState}}, Work: []string{"7 t g q n", "12 t g q"}, check: checkSegments(9)},
	{Name: "selective_scan_projected", Doc: "selective_scan_gated with dt = x wᵀ: u x w b A B C D z h seg", Class: Compute, Launches: true,
		Stands:   "u x w b A B C D z h seg -> y new: dt(u) = matmul x w; y new = selective_scan_gated u dt b A B C D z h seg",
		Rule:     rule("t! (g q), t! k!, (g q) k!, (g q), (g q) n!, t! (g n!), t! (g n!), (g q), t! (g q), s! (g q) n!, s! f! -> t! (g q), s! (g q) n!"),
		Operands: "aawffaafasi", States: []StatePair{{9, 1, SSMState}}, Work: []string{"2 t k g q", "7 t g q n", "12 t g q"}, check: checkSegments(10)},
	// The norms of what a scan reads: by themselves where it has several tokens.
	{Name: "rmsnorm_each", Doc: "rmsnorm of each of three values: x v y w z u", Class: Compute, Launches: true,
		Stands: "x v y w z u -> a b c: a = rmsnorm x v; b = rmsnorm y w; c = rmsnorm z u",
		Rule:   rule("t k!, k!, t m!, m!, t n!, n! -> t k!, t m!, t n!"), Operands: "afafaf", Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"4 t k", "4 t m", "4 t n"}},
	{Name: "unit_rmsnorm_each", Doc: "unit_rmsnorm of each of three values: x y z", Class: Compute, Launches: true,
		Stands: "x y z -> a b c: a = unit_rmsnorm x; b = unit_rmsnorm y; c = unit_rmsnorm z",
		Rule:   rule("t k!, t m!, t n! -> t k!, t m!, t n!"), Operands: "aaa", Attrs: []Attr{{"eps", FloatAttr, nil, atLeast(0)}}, Work: []string{"3 t k", "3 t m", "3 t n"}},
	{Name: "selective_scan_normed", Doc: "selective_scan_projected with rmsnorms of x, B and C, which all channels share: u x v w b A B p C q D z h seg", Class: Compute, Launches: true,
		Stands:   "u x v w b A B p C q D z h seg -> y new: e(x) f(B) g(C) = rmsnorm_each x v B p C q; y new = selective_scan_projected u e w b A f g D z h seg",
		Rule:     rule("t! d, t! k!, k!, d k!, d, d n!, t! n!, n!, t! n!, n!, d, t! d, s! d n!, s! f! -> t! d, s! d n!"),
		Attrs:    []Attr{{"eps", FloatAttr, nil, atLeast(0)}},
		Operands: "aafwffafaffasi", States: []StatePair{{12, 1, SSMState}}, Work: []string{"4 t k", "8 t n", "2 t k d", "7 t d n", "12 t d"}, check: checkSegments(13)},
	{Name: "selective_scan_unit_normed", Doc: "selective_scan_projected with unit_rmsnorms of x, B and C, which all channels share: u x w b A B C D z h seg", Class: Compute, Launches: true,
		Stands:   "u x w b A B C D z h seg -> y new: e(x) f(B) g(C) = unit_rmsnorm_each x B C; y new = selective_scan_projected u e w b A f g D z h seg",
		Rule:     rule("t! d, t! k!, d k!, d, d n!, t! n!, t! n!, d, t! d, s! d n!, s! f! -> t! d, s! d n!"),
		Attrs:    []Attr{{"eps", FloatAttr, nil, atLeast(0)}},
		Operands: "aawffaafasi", States: []StatePair{{9, 1, SSMState}}, Work: []string{"3 t k", "6 t n", "2 t k d", "7 t d n", "12 t d"}, check: checkSegments(10)},
	{Name: "ssd_scan_gated", Doc: "silu(z) · (ssd_scan + x D), with steps softplus(dt + b) from min to max: x dt b A B C D z h seg", Class: Compute, Launches: true,
		Stands:   "x dt b A B C D z h seg -> y new: e(dt) = bias_softplus dt b; d(dt) = clamp e; s(y) new = ssd_scan x d A B C h seg; a(y) = add_scaled s x D; y = silu_mul z a",
		Rule:     rule("t! (g q p!), t! (g q), (g q), (g q), t! (g n!), t! (g n!), (g q), t! (g q p!), s! (g q) p! n!, s! f! -> t! (g q p!), s! (g q) p! n!"),
		Attrs:    []Attr{{"min", FloatAttr, nil, anything}, {"max", FloatAttr, nil, anything}},
		Operands: "aaffaafasi", States: []StatePair{{8, 1, SSMState}}, Work: []string{"6 t g q p n", "7 t g q p", "7 t g q"}, check: checkSegments(9)},

	// Layouts. Where the graph's mesh has two axes, along is the one whose ranks take part.
	{Name: "all_reduce", Doc: "the sum over ranks, on every rank, of each operand; acc=f32 adds in f32 whatever travels; then=add_rmsnorm: a device may do that norm, which alone takes the sum, in the same launch", Class: Collective, From: Partial, To: Replicated, Variadic: true,
		Attrs: []Attr{{"acc", StringAttr, "", accumulator}, {"then", StringAttr, "", joinable}, {"along", StringAttr, "", meshAxis}}, infer: inferExchange},
	{Name: "all_gather", Doc: "the parts of all ranks, on every rank, of each operand; several share out the same rows of the batch", Class: Collective, From: Sharded, To: Replicated, Variadic: true,
		Attrs: []Attr{{"along", StringAttr, "", meshAxis}}, infer: inferExchange},
	{Name: "reduce_scatter", Doc: "the sum over ranks, split over an axis, of each operand; of several, over the same rows of the batch; acc as in all_reduce", Class: Collective, From: Partial, To: Sharded, Variadic: true,
		Attrs: []Attr{{"axis", IntAttr, 1, anything}, {"place", StringAttr, "", anything}, {"acc", StringAttr, "", accumulator}, {"along", StringAttr, "", meshAxis}}, infer: inferExchange},
	{Name: "shard", Doc: "each rank keeps its part of a value that all hold", Class: Relayout, From: Replicated, To: Sharded,
		Attrs: []Attr{{"axis", IntAttr, 1, anything}, {"place", StringAttr, "", anything}, {"along", StringAttr, "", meshAxis}}, infer: inferExchange},
	{Name: "quantize", Doc: "x rounded to a smaller format for transport; only a collective may take it", Class: Compute, Rule: rule("* -> *"), Operands: "a",
		Linear: [][]int{{0}}, Attrs: []Attr{{"to", StringAttr, nil, transport}}, Work: []string{"1"}, infer: inferConvert},
	{Name: "dequantize", Doc: "what a collective brought, in f32 again", Class: Compute, Rule: rule("* -> *"), Operands: "a",
		Linear: [][]int{{0}}, Attrs: []Attr{{"to", StringAttr, "f32", widened}}, Work: []string{"1"}, infer: inferConvert},
	{Name: "term", Doc: "a value that all hold as a summand: rank 0 keeps it, the others have zeros", Class: Relayout, From: Replicated, To: Partial, Operands: "a",
		Attrs: []Attr{{"along", StringAttr, "", meshAxis}}, infer: inferExchange},
}
