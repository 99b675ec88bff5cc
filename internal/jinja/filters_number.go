package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

func absolute(_ *state, v any, a call) (any, error) {
	if n, ok := v.(int); ok && n != math.MinInt {
		return max(n, -n), a.want("")
	}
	f, ok := numeric(v)
	if !ok {
		return nil, fmt.Errorf("%s has no absolute value", kindOf(v))
	}
	return math.Abs(f), a.want("")
}

func toFloat(_ *state, v any, a call) (any, error) {
	var def any = 0.0
	if err := a.want("default", &def); err != nil {
		return nil, err
	}
	if f, ok := numeric(v); ok {
		return f, nil
	}
	if t, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(t), 64); err == nil {
			return f, nil
		}
	}
	return def, nil
}

func toInt(_ *state, v any, a call) (any, error) {
	var def, base any = 0, 10
	if err := a.want("default base", &def, &base); err != nil {
		return nil, err
	}
	switch n := v.(type) {
	case int:
		return n, nil
	case string:
		b, _ := base.(int)
		if b < 2 || b > 36 {
			return nil, errors.New("its base is 2 to 36")
		}
		t := strings.TrimSpace(n)
		if i, err := strconv.ParseInt(t, b, 64); err == nil {
			return int(i), nil
		}
		if f, err := strconv.ParseFloat(t, 64); err == nil && math.Abs(f) < 1<<53 {
			return int(f), nil
		}
		return def, nil
	}
	if f, ok := numeric(v); ok && math.Abs(f) < 1<<62 {
		return int(f), nil
	}
	return def, nil
}

func round(_ *state, v any, a call) (any, error) {
	var precision, how any = 0, "common"
	if err := a.want("precision method", &precision, &how); err != nil {
		return nil, err
	}
	f, ok := numeric(v)
	n, ok2 := precision.(int)
	if !ok || !ok2 || n < -300 || n > 300 {
		return nil, fmt.Errorf("%s cannot be rounded so", kindOf(v))
	}
	by := math.Pow(10, float64(n))
	switch how {
	case "common":
		if n >= 0 {
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', n, 64), 64)
			return f, nil
		}
		return math.RoundToEven(f*by) / by, nil
	case "ceil":
		return math.Ceil(f*by) / by, nil
	case "floor":
		return math.Floor(f*by) / by, nil
	}
	return nil, errors.New("its method is common, ceil or floor")
}
