package main

// Example has silu of 0, 0.5 and -0.2 for the first token, and of 64, 32.5 and
// -6.6 for the second.
func Example() {
	main()
	// Output:
	// ⎡        0     0.3112   -0.09003⎤
	// ⎣       64       32.5  -0.008966⎦
}
