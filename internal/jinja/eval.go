package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// eval evaluates an expression.
func (s *state) eval(x expr) (any, error) {
	if s.depth++; s.depth > deepestRun {
		return nil, errDepth
	}
	defer func() { s.depth-- }()
	if err := s.step(1); err != nil {
		return nil, err
	}
	return x.eval(s)
}

// all evaluates several.
func (s *state) all(xs []expr) ([]any, error) {
	out := make([]any, len(xs))
	for i, x := range xs {
		var err error
		if out[i], err = s.eval(x); err != nil {
			return nil, err
		}
	}
	return out, s.makes(16 * len(xs))
}

func (x literal) eval(*state) (any, error) { return x.v, nil }

func (x variable) eval(s *state) (any, error) {
	if v, ok := s.vars.find(x.name); ok {
		return v, nil
	}
	return undefined{x.name}, nil
}

func (x listExpr) eval(s *state) (any, error) {
	list, err := s.all(x.items)
	return list, err
}

func (x tupleExpr) eval(s *state) (any, error) {
	list, err := s.all(x.items)
	return tuple(list), err
}

func (x dictExpr) eval(s *state) (any, error) {
	d := NewDict()
	for i, k := range x.keys {
		key, err := s.eval(k)
		if err == nil {
			key, err = hashable(key)
		}
		if err != nil {
			return nil, err
		}
		v, err := s.eval(x.values[i])
		if err != nil {
			return nil, err
		}
		d.set(key, v)
	}
	return d, s.makes(64 * len(x.keys))
}

func (x attrExpr) eval(s *state) (any, error) {
	of, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	v, err := s.attribute(of, x.name)
	return v, at(x.line, err)
}

// attribute is of.name: a method, or else an item.
func (s *state) attribute(of any, name string) (any, error) {
	if f, ok := method(of, name); ok {
		return f, nil
	}
	switch of := of.(type) {
	case undefined:
		return nil, of.err()
	case *loop:
		if v, ok := of.field(name); ok {
			return v, nil
		}
	case *namespace:
		if v, ok := of.get(name); ok {
			return v, nil
		}
	case *Dict:
		if v, ok := of.get(name); ok {
			return v, nil
		}
	}
	return undefined{fmt.Sprintf("the field %q of %s", name, kindOf(of))}, nil
}

func (x itemExpr) eval(s *state) (any, error) {
	of, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	key, err := s.eval(x.key)
	if err != nil {
		return nil, err
	}
	v, err := s.item(of, key)
	return v, at(x.line, err)
}

// item is of[key]: an item, or else a method.
func (s *state) item(of, key any) (any, error) {
	if u, ok := of.(undefined); ok {
		return nil, u.err()
	}
	if d, ok := of.(*Dict); ok {
		if v, ok := d.get(key); ok {
			return v, nil
		}
	}
	n, isInt := key.(int)
	if list, ok := sequence(of); ok && isInt {
		if n < 0 {
			n += len(list)
		}
		if n >= 0 && n < len(list) {
			return list[n], nil
		}
	}
	if t, ok := of.(string); ok && isInt {
		if err := s.reads(len(t)); err != nil {
			return nil, err
		}
		all := utf8.RuneCountInString(t)
		if n < 0 {
			n += all
		}
		if n >= 0 && n < all {
			return string([]rune(t)[n]), nil
		}
	}
	if name, ok := key.(string); ok {
		if _, isDict := of.(*Dict); !isDict {
			return s.attribute(of, name)
		}
		if f, ok := method(of, name); ok {
			return f, nil
		}
	}
	var w writer
	if err := s.repr(&w, key, 0, true); err != nil {
		return nil, err
	}
	return undefined{fmt.Sprintf("the item %s of %s", cut(w.String()), kindOf(of))}, nil
}

// cut is a text that is short enough for an error.
func cut(t string) string {
	if len(t) > 60 {
		return strings.ToValidUTF8(t[:60], "") + "…"
	}
	return t
}

func (x sliceExpr) eval(s *state) (any, error) {
	of, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int
	for i, e := range []expr{x.from, x.to, x.step} {
		if e == nil {
			continue
		}
		v, err := s.eval(e)
		if err != nil {
			return nil, err
		}
		switch n := v.(type) {
		case nil:
		case int:
			bounds[i] = &n
		default:
			return nil, at(x.line, fmt.Errorf("a slice needs integers, and has %s", kindOf(v)))
		}
	}
	v, err := s.slice(of, bounds)
	return v, at(x.line, err)
}

func (s *state) slice(of any, bounds [3]*int) (any, error) {
	switch of := of.(type) {
	case string:
		runes := []rune(of)
		if err := s.makes(5 * len(of)); err != nil {
			return nil, err
		}
		list, err := cutOut(runes, bounds)
		return string(list), err
	case []any:
		list, err := cutOut(of, bounds)
		return list, errors.Join(err, s.makes(16*len(list)))
	case tuple:
		list, err := cutOut(of, bounds)
		return list, errors.Join(err, s.makes(16*len(list)))
	case undefined:
		return nil, of.err()
	}
	return nil, fmt.Errorf("%s cannot be sliced", kindOf(of))
}

// cutOut is a slice as Python has it.
func cutOut[T any, L ~[]T](list L, bounds [3]*int) (L, error) {
	n, step := len(list), 1
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return nil, errors.New("a slice of step 0")
	}
	lo, hi := 0, n // what bounds are kept within
	if step < 0 {
		lo, hi = -1, n-1
	}
	bound := func(b *int, def int) int {
		if b == nil {
			return def
		}
		i := *b
		if i < 0 {
			i += n
		}
		return max(lo, min(i, hi))
	}
	from, to := bound(bounds[0], lo), bound(bounds[1], hi)
	if step < 0 {
		from, to = bound(bounds[0], hi), bound(bounds[1], lo)
	}
	out := L{}
	for i := from; step > 0 && i < to || step < 0 && i > to; {
		out = append(out, list[i])
		next := i + step
		if (next > i) != (step > 0) { // past the largest integer
			break
		}
		i = next
	}
	return out, nil
}

func (x *callExpr) eval(s *state) (any, error) {
	f, err := s.eval(x.f)
	if err != nil {
		return nil, err
	}
	a, err := s.arguments(x.args)
	if err != nil {
		return nil, err
	}
	v, err := s.call(f, a)
	return v, at(x.line, err)
}

func (s *state) arguments(x arguments) (a call, err error) {
	list, err := s.all(x.args)
	if err != nil {
		return a, err
	}
	n := len(list) - len(x.names)
	a.args = list[:n:n]
	for i, name := range x.names {
		a.named = append(a.named, namedArg{name, list[n+i]})
	}
	return a, s.spread(x, &a)
}

// spread adds the arguments that lists and dictionaries give.
func (s *state) spread(x arguments, a *call) error {
	for _, e := range x.list {
		v, err := s.eval(e)
		if err != nil {
			return err
		}
		items, err := s.items(v)
		if err != nil {
			return err
		}
		a.args = append(a.args, items...)
		if err := s.makes(16 * len(items)); err != nil {
			return err
		}
	}
	for _, e := range x.dict {
		v, err := s.eval(e)
		if err != nil {
			return err
		}
		d, ok := v.(*Dict)
		if !ok {
			return fmt.Errorf("%s follows **, and is no dictionary", kindOf(v))
		}
		for _, k := range d.keys {
			name, ok := k.(string)
			if !ok {
				return fmt.Errorf("%s is no name of an argument", kindOf(k))
			}
			a.named = append(a.named, namedArg{name, d.values[k]})
		}
		if err := s.makes(32 * len(d.keys)); err != nil {
			return err
		}
	}
	return nil
}

func (s *state) call(f any, a call) (any, error) {
	switch f := f.(type) {
	case function:
		v, err := f.call(s, a)
		if err != nil {
			return nil, err
		}
		return v, nil
	case *loop:
		if f.again == nil {
			return nil, errors.New("loop is called, and is not recursive")
		}
		if len(a.args) != 1 || len(a.named) > 0 {
			return nil, errors.New("loop is called with one argument")
		}
		return f.again(a.args[0])
	case undefined:
		return nil, f.err()
	}
	return nil, fmt.Errorf("%s cannot be called", kindOf(f))
}

func (x filterExpr) eval(s *state) (any, error) {
	v, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	return x.apply(s, v)
}

func (f filterCall) apply(s *state, v any) (any, error) {
	a, err := s.arguments(f.args)
	if err == nil {
		v, err = f.f(s, v, a)
	}
	if err != nil {
		return nil, at(f.line, named("filter "+f.name, err))
	}
	return v, nil
}

// named says where an error is from, unless it says so, or is one of limits.
func named(what string, err error) error {
	var e *Error
	var raised *Raised
	if errors.As(err, &e) || errors.As(err, &raised) || limit(err) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

func limit(err error) bool {
	return errors.Is(err, errWork) || errors.Is(err, errMemory) || errors.Is(err, errOutput) || errors.Is(err, errDepth)
}

func (x testExpr) eval(s *state) (any, error) {
	v, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	a, err := s.arguments(x.args)
	if err != nil {
		return nil, err
	}
	ok, err := x.f(s, v, a)
	if err != nil {
		return nil, at(x.line, named("test "+x.name, err))
	}
	return ok != x.negate, nil
}

func (x unaryExpr) eval(s *state) (any, error) {
	v, err := s.eval(x.x)
	if err != nil {
		return nil, err
	}
	if x.op == "not" {
		return !truth(v), nil
	}
	switch n := v.(type) {
	case bool:
		v = map[bool]int{true: 1}[n]
	case undefined:
		return nil, at(x.line, n.err())
	}
	sign := 1
	if x.op == "-" {
		sign = -1
	}
	switch n := v.(type) {
	case int:
		return sign * n, nil
	case float64:
		return float64(sign) * n, nil
	}
	return nil, at(x.line, fmt.Errorf("%s has no sign", kindOf(v)))
}

func (x logicExpr) eval(s *state) (any, error) {
	a, err := s.eval(x.a)
	if err != nil || truth(a) == x.or {
		return a, err
	}
	return s.eval(x.b)
}

func (x condExpr) eval(s *state) (any, error) {
	c, err := s.eval(x.cond)
	switch {
	case err != nil:
		return nil, err
	case truth(c):
		return s.eval(x.then)
	case x.other == nil:
		return undefined{"the value of an if without else"}, nil
	}
	return s.eval(x.other)
}

func (x concatExpr) eval(s *state) (any, error) {
	var b strings.Builder
	for _, item := range x.items {
		v, err := s.eval(item)
		if err != nil {
			return nil, err
		}
		t, err := s.text(v)
		if err == nil {
			err = s.makes(len(t))
		}
		if err != nil {
			return nil, at(x.line, err)
		}
		b.WriteString(t)
	}
	return b.String(), nil
}

func (x compareExpr) eval(s *state) (any, error) {
	a, err := s.eval(x.first)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		b, err := s.eval(x.rest[i])
		if err != nil {
			return nil, err
		}
		ok, err := s.compare(op, a, b)
		if err != nil || !ok {
			return false, at(x.line, err)
		}
		a = b
	}
	return true, nil
}

func (s *state) compare(op string, a, b any) (bool, error) {
	switch op {
	case "==", "!=":
		same, err := s.same(a, b, 0)
		return same == (op == "=="), err
	case "in", "not in":
		in, err := s.in(a, b)
		return in == (op == "in"), err
	}
	c, err := s.order(a, b, 0)
	if err != nil {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

// in reports whether a is in b.
func (s *state) in(a, b any) (bool, error) {
	switch b := b.(type) {
	case string:
		t, ok := a.(string)
		if !ok {
			return false, fmt.Errorf("%s is looked for in a string", kindOf(a))
		}
		return strings.Contains(b, t), s.reads(len(b))
	case *Dict:
		_, ok := b.get(a)
		return ok, nil
	case undefined:
		return false, nil
	}
	list, ok := sequence(b)
	if !ok {
		return false, fmt.Errorf("%s has nothing in it", kindOf(b))
	}
	for _, x := range list {
		if eq, err := s.same(a, x, 0); eq || err != nil {
			return eq, err
		}
	}
	return false, nil
}

func (x binaryExpr) eval(s *state) (any, error) {
	a, err := s.eval(x.a)
	if err != nil {
		return nil, err
	}
	b, err := s.eval(x.b)
	if err != nil {
		return nil, err
	}
	v, err := s.binary(x.op, a, b)
	return v, at(x.line, err)
}

func (s *state) binary(op string, a, b any) (any, error) {
	for _, v := range []any{a, b} {
		if u, ok := v.(undefined); ok {
			return nil, u.err()
		}
	}
	switch t := a.(type) {
	case string:
		switch op {
		case "+":
			if u, ok := b.(string); ok {
				return t + u, s.makes(len(t) + len(u))
			}
		case "*":
			if n, ok := b.(int); ok {
				return s.repeat(t, n)
			}
		case "%":
			return s.format(t, b)
		}
	case []any:
		if u, ok := b.([]any); ok && op == "+" {
			return append(append(make([]any, 0, len(t)+len(u)), t...), u...), s.makes(16 * (len(t) + len(u)))
		}
		if n, ok := b.(int); ok && op == "*" {
			return s.repeatList(t, n)
		}
	case tuple:
		if u, ok := b.(tuple); ok && op == "+" {
			return append(append(make(tuple, 0, len(t)+len(u)), t...), u...), s.makes(16 * (len(t) + len(u)))
		}
	case int:
		if u, ok := b.(string); ok && op == "*" {
			return s.repeat(u, t)
		}
	}
	x, ok1 := numeric(a)
	y, ok2 := numeric(b)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s %s %s cannot be computed", kindOf(a), op, kindOf(b))
	}
	_, float1 := a.(float64)
	_, float2 := b.(float64)
	if float1 || float2 || op == "/" {
		return floats(op, x, y)
	}
	return integers(op, asInt(a), asInt(b))
}

// asInt is an integer or a boolean as an integer.
func asInt(v any) int {
	if b, ok := v.(bool); ok {
		return map[bool]int{true: 1}[b]
	}
	return v.(int)
}

func (s *state) repeat(t string, n int) (any, error) {
	n = max(n, 0)
	if len(t) > 0 && n > s.limits.Memory/len(t) {
		return nil, errMemory
	}
	if err := s.makes(len(t) * n); err != nil {
		return nil, err
	}
	return strings.Repeat(t, n), nil
}

func (s *state) repeatList(list []any, n int) (any, error) {
	n = max(n, 0)
	if len(list) > 0 && n > s.limits.Memory/(16*len(list)) {
		return nil, errMemory
	}
	if err := s.makes(16 * len(list) * n); err != nil {
		return nil, err
	}
	out := make([]any, 0, len(list)*n)
	for range n {
		out = append(out, list...)
	}
	return out, nil
}

var errZero = errors.New("a division by zero")

func floats(op string, x, y float64) (any, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return math.Pow(x, y), nil
	}
	if y == 0 {
		return nil, errZero
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	r := math.Mod(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r, nil
}

var errLarge = errors.New("an integer is too large")

func integers(op string, x, y int) (any, error) {
	switch op {
	case "+":
		if r := x + y; (r > x) == (y > 0) {
			return r, nil
		}
		return nil, errLarge
	case "-":
		if r := x - y; (r < x) == (y > 0) {
			return r, nil
		}
		return nil, errLarge
	case "*":
		return product(x, y)
	case "**":
		return power(x, y)
	}
	if y == 0 {
		return nil, errZero
	}
	q, r := x/y, x%y
	if r != 0 && (r < 0) != (y < 0) { // Python rounds down
		q, r = q-1, r+y
	}
	if op == "//" {
		return q, nil
	}
	return r, nil
}

func product(x, y int) (int, error) {
	abs := func(n int) uint64 {
		if n < 0 {
			return -uint64(n)
		}
		return uint64(n)
	}
	hi, lo := bits.Mul64(abs(x), abs(y))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, errLarge
	}
	return x * y, nil
}

func power(x, y int) (any, error) {
	if y < 0 {
		if x == 0 {
			return nil, errZero
		}
		return math.Pow(float64(x), float64(y)), nil
	}
	if x >= -1 && x <= 1 { // which no exponent makes large
		return int(math.Pow(float64(x), float64(y%2+2*min(y, 1)))), nil
	}
	r := 1
	for range y {
		var err error
		if r, err = product(r, x); err != nil {
			return nil, err
		}
	}
	return r, nil
}
