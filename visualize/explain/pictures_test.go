package explain_test

import (
	"os"
	"strings"
	"testing"
)

// TestPictures takes pictures of a page, to look at and for docs: of KRAIT_PAGE, in the
// views of KRAIT_VIEWS (addresses, with blanks between), to files that begin as
// KRAIT_PICTURES says. KRAIT_WINDOW is 1440x900, dark or not.
func TestPictures(t *testing.T) {
	page, views := os.Getenv("KRAIT_PAGE"), strings.Fields(os.Getenv("KRAIT_VIEWS"))
	if page == "" {
		t.Skip("takes pictures of KRAIT_PAGE")
	}
	width, height := 1440, 900
	if strings.Contains(os.Getenv("KRAIT_WINDOW"), "800") {
		width = 800
	}
	b := browse(t, "file://"+page, width, height)
	if strings.Contains(os.Getenv("KRAIT_WINDOW"), "dark") {
		b.press("t")
	}
	t.Logf("it opens in %.0f ms", b.number(`performance.getEntriesByType("navigation")[0].domComplete`))
	for i, v := range views {
		address, keys, _ := strings.Cut(v, "+") // and then keys
		b.eval("location.hash = '#"+address+"'", nil)
		b.until("document.getElementById('main').children.length > 0")
		b.eval("new Promise((r) => setTimeout(r, 200))", nil)
		b.write(keys)
		b.eval("new Promise((r) => setTimeout(r, 200))", nil)
		b.shoot(os.Getenv("KRAIT_PICTURES") + string(rune('a'+i)) + ".png")
	}
	b.quiet("file://" + page)
}
