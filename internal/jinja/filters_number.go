package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

func absolute(_ *state, v any, a call) any {
	a.want("")
	if n, ok := v.(int); ok && n != math.MinInt {
		return max(n, -n)
	}
	f, ok := numeric(v)
	if !ok {
		panic(fmt.Errorf("%s has no absolute value", kindOf(v)))
	}
	return math.Abs(f)
}

func toFloat(_ *state, v any, a call) any {
	var def any = 0.0
	a.want("default", &def)
	if f, ok := numeric(v); ok {
		return f
	}
	if t, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(t), 64); err == nil {
			return f
		}
	}
	return def
}

func toInt(_ *state, v any, a call) any {
	var def, base any = 0, 10
	a.want("default base", &def, &base)
	switch n := v.(type) {
	case int:
		return n
	case string:
		b, _ := base.(int)
		if b < 2 || b > 36 {
			panic(errors.New("its base is 2 to 36"))
		}
		t := strings.TrimSpace(n)
		if i, err := strconv.ParseInt(t, b, 64); err == nil {
			return int(i)
		}
		if f, err := strconv.ParseFloat(t, 64); err == nil && math.Abs(f) < 1<<53 {
			return int(f)
		}
		return def
	}
	if f, ok := numeric(v); ok && math.Abs(f) < 1<<62 {
		return int(f)
	}
	return def
}

func round(_ *state, v any, a call) any {
	var precision, how any = 0, "common"
	a.want("precision method", &precision, &how)
	f, ok := numeric(v)
	n, ok2 := precision.(int)
	if !ok || !ok2 || n < -300 || n > 300 {
		panic(fmt.Errorf("%s cannot be rounded so", kindOf(v)))
	}
	by := math.Pow(10, float64(n))
	switch how {
	case "common":
		if n >= 0 {
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', n, 64), 64)
			return f
		}
		return math.RoundToEven(f*by) / by
	case "ceil":
		return math.Ceil(f*by) / by
	case "floor":
		return math.Floor(f*by) / by
	}
	panic(errors.New("its method is common, ceil or floor"))
}
