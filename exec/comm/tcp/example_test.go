package tcp_test

import (
	"context"
	"log"
	"os"
	"strconv"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/comm/tcp"
)

// Each of two processes runs a rank of a model: that of rank 0 has it, the other follows.
func Example() {
	ctx := context.Background()
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		log.Fatal(err)
	}
	link, err := tcp.Join(ctx, tcp.Options{Rank: rank, World: 2, ID: "tcp:127.0.0.1:7777"})
	if err != nil {
		log.Fatal(err)
	}
	all := comm.Connect(link, comm.Options{})
	m, err := krait.Embedded(krait.Options{Processes: all})
	if err != nil {
		log.Fatal(err)
	}
	if rank > 0 {
		err = m.Follow(ctx)
	} else {
		_, err = m.Generate(ctx, "In the beginning", krait.Generate{})
	}
	m.Close()
	if err := all.Close(err); err != nil {
		log.Fatal(err)
	}
}
