// Command krait runs, checks and draws state-space language models.
package main

import "github.com/krait-ml/krait/cli"

func main() { cli.Main() }
