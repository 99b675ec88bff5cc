package mpi_test

import (
	"context"
	"log"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/comm/mpi"
)

// Under mpirun each process runs a rank of a model; that of rank 0 has it.
func Example() {
	ctx := context.Background()
	link, err := mpi.Join(ctx)
	if err != nil {
		log.Fatal(err)
	}
	all := comm.Connect(link, comm.Options{})
	m, err := krait.Embedded(krait.Options{Processes: all})
	if err != nil {
		log.Fatal(err)
	}
	if all.Rank() > 0 {
		err = m.Follow(ctx)
	} else {
		_, err = m.Generate(ctx, "In the beginning", krait.Generate{})
	}
	m.Close()
	if err := all.Close(err); err != nil {
		log.Fatal(err)
	}
}
