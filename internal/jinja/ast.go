package jinja

// node is a statement.
type node interface {
	run(*state)
}

// expr is an expression.
type expr interface {
	eval(*state) any
}

// Statements.
type (
	textNode struct{ text string }
	outNode  struct {
		x    expr
		line int
	}
	ifNode struct {
		line  int
		conds []expr // one for each body but the last, which may be for else
		body  [][]node
	}
	forNode struct {
		line      int
		targets   []target
		in        expr
		filter    expr // may be nil
		body      []node
		orElse    []node
		recursive bool
	}
	setNode struct {
		line    int
		targets []target
		x       expr
	}
	setBlock struct {
		line    int
		to      target
		filters []filterCall
		body    []node
	}
	macroNode struct{ *macroDef }
	callNode  struct {
		line int
		call *callExpr
		def  *macroDef
	}
	filterNode struct {
		line    int
		filters []filterCall
		body    []node
	}
	withNode struct {
		line  int
		names []string
		xs    []expr
		body  []node
	}
	jumpNode struct{ word string }
)

// target is what a value is set to: a variable, or a field of a namespace.
type target struct{ name, field string }

// macroDef is a macro, or what a call block gives.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last parameters
	body     []node
	// More arguments than parameters are for who asks for them.
	varargs, kwargs bool
}

// Expressions.
type (
	literal   struct{ v any }
	variable  struct{ name string }
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
	attrExpr  struct {
		of   expr
		name string
		line int
	}
	itemExpr struct {
		of, key expr
		line    int
	}
	sliceExpr struct {
		of             expr
		from, to, step expr // may be nil
		line           int
	}
	callExpr struct {
		f    expr
		args arguments
		line int
	}
	filterCall struct {
		name string
		f    filter
		args arguments
		line int
	}
	filterExpr struct {
		of expr
		filterCall
	}
	testExpr struct {
		of     expr
		name   string
		f      test
		args   arguments
		negate bool
		line   int
	}
	unaryExpr struct {
		op   string
		x    expr
		line int
	}
	binaryExpr struct {
		op   string
		a, b expr
		line int
	}
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
		line  int
	}
	logicExpr struct {
		or   bool
		a, b expr
	}
	condExpr   struct{ cond, then, other expr } // other may be nil
	concatExpr struct {
		items []expr
		line  int
	}
)

// arguments are those of a call.
type arguments struct {
	args  []expr
	names []string // of the last ones
	list  []expr   // whose items follow those without names: *x
	dict  []expr   // whose items follow those with names: **x
}
