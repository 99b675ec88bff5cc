// Package webpage puts the files of a page together: one style and one script, which begins with
// what all pages use (common.js).
package webpage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io/fs"
)

//go:embed common.js
var common string

// Page is the parts of a page.
type Page struct{ HTML, Style, Script string }

// Load reads page.html, style.css and scripts from the folder page. The scripts run in one function
// in the order given.
func Load(files fs.FS, scripts ...string) Page {
	read := func(name string) string {
		text, err := fs.ReadFile(files, "page/"+name)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		return string(text)
	}
	script := "(() => {\n\"use strict\";\n" + common
	for _, name := range scripts {
		script += read(name)
	}
	return Page{read("page.html"), read("style.css"), script + "})();\n"}
}

// Hash returns the source expression that lets a Content-Security-Policy run text, and no other.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
