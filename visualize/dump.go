package visualize

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
)

// DumpTo returns a function that writes a graph after a pass to a folder, as text and drawing:
// 05-partition.ir and 05-partition.dot. It fits Sharding.Dump of package passes.
func DumpTo(folder string) func(step int, pass string, g *graph.Graph) error {
	return func(step int, pass string, g *graph.Graph) error {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		base := filepath.Join(folder, fmt.Sprintf("%02d-%s", step, pass))
		if err := files.Write(base+".ir", []byte(graph.Print(g))); err != nil {
			return err
		}
		var drawing bytes.Buffer
		if err := Dot(&drawing, g, Options{}); err != nil {
			return err
		}
		return files.Write(base+".dot", drawing.Bytes())
	}
}
