package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

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
	switch n := v.(type) {
	case int:
		if x.op == "-" {
			v, err = integers("-", 0, n)
		}
		return v, at(x.line, err)
	case float64:
		if x.op == "-" {
			n = -n
		}
		return n, nil
	}
	return nil, at(x.line, fmt.Errorf("%s has no sign", kindOf(v)))
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
	return slices.Repeat(list, n), nil // of nothing, too, at once
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
	if op == "//" && x == math.MinInt && y == -1 {
		return nil, errLarge
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
