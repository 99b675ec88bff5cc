package board

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
)

//go:embed page
var files embed.FS

// scripts are put together in this order, in one function.
var scripts = []string{"base.js", "stream.js", "chat.js", "settings.js", "figures.js", "board.js", "start.js"}

// bundle is the page, what may run in it, and its name for caches.
var bundle = sync.OnceValues(func() (page string, header http.Header) {
	script, style := "(() => {\n\"use strict\";\n", file("style.css")
	for _, name := range scripts {
		script += file(name)
	}
	script += "})();\n"
	page = strings.NewReplacer("<!--STYLE-->", "<style>"+style+"</style>", "<!--SCRIPT-->", "<script>"+script+"</script>").Replace(file("page.html"))
	sum := sha256.Sum256([]byte(page))
	header = http.Header{}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8",
		"ETag":         `"` + hex.EncodeToString(sum[:12]) + `"`,
		// What the page may do: run this one script, and ask its own server. Trusted Types
		// let no text become markup, whatever the script does.
		"Content-Security-Policy": "default-src 'none'; script-src " + hash(script) + "; style-src " + hash(style) +
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
	return page, header
})

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
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Page answers with the page, which is the same for all, and needs no key: it asks for one
// where the server does.
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
