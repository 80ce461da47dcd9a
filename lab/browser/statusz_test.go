package browser

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/lab/pair"
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

func TestBothPagesCanBeReadOnAnyScreen(t *testing.T) {
	if os.Getenv("SLICEFEED_VERIFY") == "" {
		t.Skip("part of make verify")
	}
	chromium := start(t)
	p := troubled(t)
	leader, err := p.WaitLeading(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	says(
		t,
		leader,
		"Guard shrink",
		"rejected: ",
		"paused, nothing is written",
		"no ready endpoints",
		"ready, held",
		"not listed, would be ready",
		"probe failing",
		">healthy<",
		"~ endpoint 10.0.1.12",
	)
	says(t, p.Inventory, "omitted: ", "not ready at 10.0.1.14", "draining at 10.0.1.13", "excluded: CONTROL_PLANE", pair.WriterSAN)

	ctx, cancel := context.WithTimeout(chromium, patience)
	defer cancel()
	for name, half := range map[string]*pair.Component{"writer": leader, "inventory": p.Inventory} {
		for kind, screen := range screens {
			t.Run(name+" "+kind, func(t *testing.T) { look(ctx, t, name+"-"+kind, statusz(half), screen) })
		}
	}
	t.Run("a link shows one alone", func(t *testing.T) { alone(ctx, t, statusz(leader)+"?filter=web%2Fshop") })
}

// look loads a page and checks it.
func look(ctx context.Context, t *testing.T, name, url string, on screen) {
	tab := load(ctx, t, url, on)
	if *update && (strings.HasSuffix(name, "-desktop") || strings.HasSuffix(name, "-phone-dark")) {
		picture(tab, t, on, name)
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
	if least.Ratio < 4.5 || least.N < 50 {
		t.Errorf("of %d texts the least contrast is %.2f, of %q", least.N, least.Ratio, least.Text)
	}
	// Now that everything is unfolded.
	if has := evaluate[fit](tab, t, measure); has.Scroll > has.Client {
		t.Errorf("unfolded it has %+v", has)
	}
}

// picture writes a screenshot into docs/images.
func picture(tab context.Context, t *testing.T, on screen, name string) {
	t.Helper()
	height := map[bool]float64{true: 1500, false: 1600}[on.mobile]
	png, err := fewColours(shoot(tab, t, on, height))
	if err != nil {
		t.Fatal(err)
	}
	if len(png) > 200<<10 {
		t.Errorf("%s has %d bytes", name, len(png))
	}
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "docs", "images")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "statusz-"+name+".png"), png, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// alone follows no link: it loads what one leads to.
func alone(ctx context.Context, t *testing.T, url string) {
	tab := load(ctx, t, url, screens["desktop"])
	if *update {
		picture(tab, t, screens["desktop"], "writer-alone-desktop")
	}
	seen := evaluate[struct {
		Title  string
		Names  []string
		Closed int
	}](tab, t, `({
		title: document.title, closed: document.querySelectorAll('section:first-of-type > details:not([open])').length,
		names: [...document.querySelectorAll('section:first-of-type > details > summary h3')].map(h => h.textContent)})`)
	if seen.Title != "WARN · slicefeed-writer · web/shop" || len(seen.Names) != 1 || seen.Names[0] != "web/shop" || seen.Closed != 0 {
		t.Errorf("%+v", seen)
	}
}
