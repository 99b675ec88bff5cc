package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

func (x unaryExpr) eval(s *state) any {
	v := s.eval(x.x)
	s.line = x.line
	if x.op == "not" {
		return !truth(v)
	}
	switch n := v.(type) {
	case undefined:
		panic(n.err())
	case bool, int:
		if x.op == "-" {
			return integers("-", 0, asInt(n))
		}
		return asInt(n)
	case float64:
		if x.op == "-" {
			n = -n
		}
		return n
	}
	panic(fmt.Errorf("%s has no sign", kindOf(v)))
}

func (x binaryExpr) eval(s *state) any {
	a, b := s.eval(x.a), s.eval(x.b)
	s.line = x.line
	return s.binary(x.op, a, b)
}

func (s *state) binary(op string, a, b any) any {
	for _, v := range []any{a, b} {
		if u, ok := v.(undefined); ok {
			panic(u.err())
		}
	}
	switch t := a.(type) {
	case string:
		switch op {
		case "+":
			if u, ok := b.(string); ok {
				s.makes(len(t) + len(u))
				return t + u
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
			s.makes(16 * (len(t) + len(u)))
			return append(append(make([]any, 0, len(t)+len(u)), t...), u...)
		}
		if n, ok := b.(int); ok && op == "*" {
			return s.repeatList(t, n)
		}
	case tuple:
		if u, ok := b.(tuple); ok && op == "+" {
			s.makes(16 * (len(t) + len(u)))
			return append(append(make(tuple, 0, len(t)+len(u)), t...), u...)
		}
	case int:
		if u, ok := b.(string); ok && op == "*" {
			return s.repeat(u, t)
		}
	}
	x, ok1 := numeric(a)
	y, ok2 := numeric(b)
	if !ok1 || !ok2 {
		panic(fmt.Errorf("%s %s %s cannot be computed", kindOf(a), op, kindOf(b)))
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

func (s *state) repeat(t string, n int) string {
	n = max(n, 0)
	if len(t) > 0 && n > s.limits.Memory/len(t) {
		panic(errMemory)
	}
	s.makes(len(t) * n)
	return strings.Repeat(t, n)
}

func (s *state) repeatList(list []any, n int) any {
	n = max(n, 0)
	if len(list) > 0 && n > s.limits.Memory/(16*len(list)) {
		panic(errMemory)
	}
	s.makes(16 * len(list) * n)
	return slices.Repeat(list, n) // of nothing, too, at once
}

var errZero = errors.New("a division by zero")

func floats(op string, x, y float64) any {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return math.Pow(x, y)
	}
	if y == 0 {
		panic(errZero)
	}
	switch op {
	case "/":
		return x / y
	case "//":
		return math.Floor(x / y)
	}
	r := math.Mod(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r
}

var errLarge = errors.New("an integer is too large")

func integers(op string, x, y int) any {
	switch op {
	case "+":
		r := x + y
		if (r > x) != (y > 0) {
			panic(errLarge)
		}
		return r
	case "-":
		r := x - y
		if (r < x) != (y > 0) {
			panic(errLarge)
		}
		return r
	case "*":
		return product(x, y)
	case "**":
		return power(x, y)
	}
	if y == 0 {
		panic(errZero)
	}
	if op == "//" && x == math.MinInt && y == -1 {
		panic(errLarge)
	}
	q, r := x/y, x%y
	if r != 0 && (r < 0) != (y < 0) { // Python rounds down
		q, r = q-1, r+y
	}
	if op == "//" {
		return q
	}
	return r
}

func product(x, y int) int {
	abs := func(n int) uint64 {
		if n < 0 {
			return -uint64(n)
		}
		return uint64(n)
	}
	hi, lo := bits.Mul64(abs(x), abs(y))
	if hi != 0 || lo > math.MaxInt64 {
		panic(errLarge)
	}
	return x * y
}

func power(x, y int) any {
	if y < 0 {
		if x == 0 {
			panic(errZero)
		}
		return math.Pow(float64(x), float64(y))
	}
	if x >= -1 && x <= 1 { // which no exponent makes large
		return int(math.Pow(float64(x), float64(y%2+2*min(y, 1))))
	}
	r := 1
	for range y {
		r = product(r, x)
	}
	return r
}
