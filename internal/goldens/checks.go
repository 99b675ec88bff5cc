package goldens

import "flag"

// Checks says how many cases a property test of the package draws, where the command
// line does not say it and All does not hold. It is called by TestMain.
func Checks(n string) {
	flag.Parse()
	given := All()
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if given {
		return
	}
	if err := flag.Set("rapid.checks", n); err != nil {
		panic(err)
	}
}
