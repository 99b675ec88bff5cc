package explain

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/krait-ml/krait/internal/webpage"
)

//go:embed page
var files embed.FS

// Page writes the page as HTML.
func Page(w io.Writer, in *Input) error {
	d, err := assemble(in)
	if err != nil {
		return err
	}
	all := []*document{d}
	if in.Against != nil {
		other, err := assemble(in.Against)
		if err != nil {
			return err
		}
		all = append(all, other)
	}
	data, err := json.Marshal(all) // escapes < and >, so that it cannot end the element
	if err != nil {
		return err
	}
	page := webpage.Load(files, "base.js", "overview.js", "passes.js", "drawing.js", "collectives.js", "timeline.js",
		"memory.js", "certificate.js", "compare.js", "search.js", "start.js")
	var out bytes.Buffer
	frame := strings.NewReplacer("TITLE", html.EscapeString(d.Title), "STYLE-HASH", webpage.Hash(page.Style), "SCRIPT-HASH", webpage.Hash(page.Script))
	head, body, _ := strings.Cut(page.HTML, "CONTENT")
	out.WriteString(frame.Replace(head))
	fmt.Fprintf(&out, "<style>%s</style>\n", page.Style)
	out.WriteString(frame.Replace(body))
	fmt.Fprintf(&out, "<script type=\"application/json\" id=\"data\">%s</script>\n<script>%s</script>\n</body>\n</html>\n", data, page.Script)
	_, err = w.Write(out.Bytes())
	return err
}
