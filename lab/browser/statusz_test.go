package browser

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the screenshots into docs/images")

// The screens: a phone, and a desktop.
var screens = map[string]screen{
	"phone":         {width: 390, height: 844, scale: 1.5, mobile: true},
	"phone-dark":    {width: 390, height: 844, scale: 1.5, mobile: true, dark: true},
	"desktop":       {width: 1280, height: 800, scale: 1},
	"desktop-dark":  {width: 1280, height: 800, scale: 1, dark: true},
	"narrow-window": {width: 320, height: 600, scale: 1},
}

// pictures are the screenshots in docs/images, by page and screen.
var pictures = map[string]string{
	"writer desktop": "writer-desktop", "service desktop": "writer-alone-desktop", "writer phone-dark": "writer-phone-dark",
	"inventory desktop": "inventory-desktop", "inventory phone-dark": "inventory-phone-dark",
}

// contrast finds the least contrast of any text on the page with what is behind it, by WCAG 2.
const contrast = `(() => {
	const parse = c => { const n = c.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n };
	const lum = ([r, g, b]) => [r, g, b].map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 })
		.reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] == 1) return c } return [255, 255, 255, 1] };
	document.querySelectorAll('details').forEach(d => d.open = true);
	let least = { ratio: 99, text: '' }, n = 0;
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const t = walk.currentNode.textContent.trim(), e = walk.currentNode.parentElement;
		if (!t) continue;
		n++;
		const a = lum(parse(getComputedStyle(e).color)), b = lum(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < least.ratio) least = { ratio, text: t.slice(0, 80) };
	}
	return { ...least, n };
})()`

// TestPagesCanBeReadOnAnyScreen shows the examples that the tests of package report write.
func TestPagesCanBeReadOnAnyScreen(t *testing.T) {
	if os.Getenv("SLICEFEED_VERIFY") == "" {
		t.Skip("part of make verify")
	}
	chromium := start(t)
	server := httptest.NewServer(http.FileServer(http.Dir("../../services/internal/report/testdata")))
	defer server.Close()
	ctx, cancel := context.WithTimeout(chromium, 3*time.Minute)
	defer cancel()
	for _, page := range []string{"writer", "service", "inventory", "node"} {
		for kind, screen := range screens {
			t.Run(page+" "+kind, func(t *testing.T) { look(ctx, t, page+" "+kind, server.URL+"/"+page+".html", screen) })
		}
	}
}

// look loads a page and checks it.
func look(ctx context.Context, t *testing.T, name, url string, on screen) {
	tab := load(ctx, t, url, on)
	if *update && pictures[name] != "" {
		picture(tab, t, on, pictures[name])
	}
	type fit struct{ Scroll, Client, Scripts int64 }
	const measure = `({scroll: document.documentElement.scrollWidth, client: document.documentElement.clientWidth, scripts: document.scripts.length})`
	if has := evaluate[fit](tab, t, measure); has.Scroll > has.Client || has.Client != on.width || has.Scripts != 0 {
		t.Errorf("it has %+v", has)
	}
	least := evaluate[struct {
		Ratio float64
		Text  string
		N     int
	}](tab, t, contrast)
	if least.Ratio < 4.5 || least.N < 30 {
		t.Errorf("of %d texts the least contrast is %.2f, of %q", least.N, least.Ratio, least.Text)
	}
	// Now that everything is unfolded.
	if has := evaluate[fit](tab, t, measure); has.Scroll > has.Client {
		t.Errorf("unfolded it has %+v", has)
	}
	titles := map[string]string{
		"writer.html": "ERROR · slicefeed-writer", "service.html": "WARN · slicefeed-writer · web/shop",
		"inventory.html": "ERROR · slicefeed-inventory", "node.html": "ERROR · slicefeed-inventory · standardnodes-late1",
	}
	if title := evaluate[string](tab, t, "document.title"); title != titles[filepath.Base(url)] {
		t.Errorf("its title is %q", title)
	}
	links := evaluate[[]string](tab, t, `[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))`)
	if want := "?filter=web/shop"; filepath.Base(url) == "writer.html" && !slices.Contains(links, want) {
		t.Errorf("its links are %q, want %q", links, want)
	}
}

// picture writes a screenshot into docs/images.
func picture(tab context.Context, t *testing.T, on screen, name string) {
	t.Helper()
	png, err := fewColours(shoot(tab, t, on, map[bool]float64{true: 1500, false: 1600}[on.mobile]))
	if err != nil {
		t.Fatal(err)
	}
	if len(png) > 200<<10 {
		t.Errorf("%s has %d bytes", name, len(png))
	}
	if err := os.WriteFile("../../docs/images/statusz-"+name+".png", png, 0o644); err != nil {
		t.Fatal(err)
	}
}
