package validate

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/passes"
)

func TestGolden(t *testing.T) {
	dirs, _ := filepath.Glob("../testdata/golden/*/config.json")
	for _, d := range dirs {
		d = filepath.Dir(d)
		_, g, err := models.Describe(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range passes.Strategies {
			for _, ranks := range []int{2, 3, 4, 8} {
				out, err := passes.Compile(g, passes.Options{Ranks: ranks, Strategy: s})
				if err != nil {
					continue
				}
				t.Run(fmt.Sprint(filepath.Base(d), s.Name, ranks), func(t *testing.T) {
					r, err := Run(context.Background(), g, out, Options{})
					t.Log(r, err)
					if err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}
