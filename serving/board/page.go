package board

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/krait-ml/krait/internal/webpage"
)

//go:embed page
var files embed.FS

// bundle returns the page, and the headers that it is sent with.
var bundle = sync.OnceValues(func() (text string, header http.Header) {
	page := webpage.Load(files, "base.js", "stream.js", "markdown.js", "chat.js", "settings.js", "figures.js", "board.js", "start.js")
	text = strings.NewReplacer("<!--STYLE-->", "<style>"+page.Style+"</style>", "<!--SCRIPT-->", "<script>"+page.Script+"</script>").Replace(page.HTML)
	sum := sha256.Sum256([]byte(text))
	header = http.Header{}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8",
		"ETag":         `"` + hex.EncodeToString(sum[:12]) + `"`,
		// The page may run this one script, and send requests to its own server. Trusted Types keep
		// the script from turning text into markup.
		"Content-Security-Policy": "default-src 'none'; script-src " + webpage.Hash(page.Script) + "; style-src " + webpage.Hash(page.Style) +
			"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
		"Cache-Control":                "no-cache",
	} {
		header.Set(name, value)
	}
	return text, header
})

// Page serves the page, which is the same for all clients and requires no key. It asks for the
// server's key if there is one.
func Page(w http.ResponseWriter, r *http.Request) {
	page, header := bundle()
	for name, values := range header {
		w.Header()[name] = values
	}
	if strings.Contains(r.Header.Get("If-None-Match"), header.Get("ETag")) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if r.Method != http.MethodHead {
		w.Write([]byte(page))
	}
}
