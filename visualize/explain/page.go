package explain

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

//go:embed page
var files embed.FS

// scripts are put together in this order, in one function.
var scripts = []string{"base.js", "overview.js", "passes.js", "drawing.js", "collectives.js", "timeline.js", "memory.js", "certificate.js", "search.js", "start.js"}

// Page is the page, as HTML.
func Page(w io.Writer, in *Input) error {
	d, err := assemble(in)
	if err != nil {
		return err
	}
	data, err := json.Marshal(d) // which escapes what would end the element
	if err != nil {
		return err
	}
	script, style := "(() => {\n\"use strict\";\n", file("style.css")
	for _, name := range scripts {
		script += file(name)
	}
	script += "})();\n"
	var out bytes.Buffer
	frame := strings.NewReplacer("TITLE", html.EscapeString(d.Title), "STYLE-HASH", hash(style), "SCRIPT-HASH", hash(script))
	head, body, _ := strings.Cut(file("page.html"), "CONTENT")
	out.WriteString(frame.Replace(head))
	fmt.Fprintf(&out, "<style>%s</style>\n", style)
	out.WriteString(frame.Replace(body))
	fmt.Fprintf(&out, "<script type=\"application/json\" id=\"data\">%s</script>\n<script>%s</script>\n</body>\n</html>\n", data, script)
	_, err = w.Write(out.Bytes())
	return err
}

func file(name string) string {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(text)
}

// hash lets this text run, and no other.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
