package transfer_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// One model prefills prompts on one rank; another, usually in another process, decodes on two.
func Example() {
	reads, err := krait.Embedded(krait.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer reads.Close()
	server, err := prefill.NewServer(reads.Session(), transfer.ServerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l)

	writes, err := krait.Embedded(krait.Options{Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer writes.Close()
	from, err := prefill.New(writes.Session(), prefill.Options{Address: l.Addr().String()})
	if err != nil {
		log.Fatal(err)
	}
	defer from.Close()
	out, err := writes.Generate(context.Background(), "In the beginning", krait.Generate{MaxTokens: 20, Prefill: from})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q: %d tokens were read there\n", out.Text, out.Remote.Tokens)
	// Output:
	// " of the children of ": 15 tokens were read there
}
