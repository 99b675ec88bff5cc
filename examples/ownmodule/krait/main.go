// Command krait is krait with a family and an operation of its own: all commands know package
// leaky.
package main

import (
	_ "example.com/ownmodule/leaky"
	"github.com/krait-ml/krait/cli"
)

func main() { cli.Main() }
