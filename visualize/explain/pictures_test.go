package explain_test

import (
	"os"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/chromium"
)

// TestPictures takes pictures of a page, to look at and for docs: of KRAIT_PAGE, in the
// views of KRAIT_VIEWS (addresses, with blanks between), to files that begin as
// KRAIT_PICTURES says. KRAIT_WINDOW has 800 or 390 for a narrow window, and dark.
func TestPictures(t *testing.T) {
	page, views := os.Getenv("KRAIT_PAGE"), strings.Fields(os.Getenv("KRAIT_VIEWS"))
	if page == "" {
		t.Skip("takes pictures of KRAIT_PAGE")
	}
	width, height := 1440, 900
	if strings.Contains(os.Getenv("KRAIT_WINDOW"), "800") {
		width = 800
	}
	if strings.Contains(os.Getenv("KRAIT_WINDOW"), "390") {
		width = 390
	}
	b := chromium.Open(t, "file://"+page, width, height)
	if strings.Contains(os.Getenv("KRAIT_WINDOW"), "dark") {
		b.Press("t")
	}
	t.Logf("it opens in %.0f ms", b.Number(`performance.getEntriesByType("navigation")[0].domComplete`))
	for i, v := range views {
		address, keys, _ := strings.Cut(v, "+") // and then keys
		b.Eval("location.hash = '#"+address+"'", nil)
		b.Until("document.getElementById('main').children.length > 0")
		b.Eval("new Promise((r) => setTimeout(r, 200))", nil)
		b.Write(keys)
		b.Eval("new Promise((r) => setTimeout(r, 200))", nil)
		b.Shoot(os.Getenv("KRAIT_PICTURES") + string(rune('a'+i)) + ".png")
	}
	b.Quiet("file://" + page)
}
