// Package bail lets recursive parsers and evaluators stop at their first error by a panic, as
// text/template does, so that no level passes it up by hand. Only functions that call [Catch] can
// be called from outside; they return the error.
package bail

import (
	"fmt"
	"runtime"
)

// Catch, deferred, sets err to the error with which the function panicked. Other panics, and those
// of the runtime, go on.
func Catch(err *error) {
	switch e := recover().(type) {
	case nil:
	case runtime.Error:
		panic(e)
	case error:
		*err = e
	default:
		panic(e)
	}
}

// If panics with err unless it is nil.
func If(err error) {
	if err != nil {
		panic(err)
	}
}

// Of is v; it panics with err unless that is nil.
func Of[T any](v T, err error) T {
	If(err)
	return v
}

// In, deferred, puts where before the error with which the function panicked.
func In(where func() string) {
	switch e := recover().(type) {
	case nil:
	case runtime.Error:
		panic(e)
	case error:
		panic(fmt.Errorf("%s: %w", where(), e))
	default:
		panic(e)
	}
}
