//go:build !amd64

package cpu

var instructionSets = []instructionSet{{name: "avx2"}, {name: "avx512"}}
