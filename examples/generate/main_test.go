package main

func Example() {
	main()
	// Output:
	// of the children of Israel, and the children of Israel to th
	// after "Ame", the logit of 'n' is 9.64
}
