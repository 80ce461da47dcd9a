package browser

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

var update = flag.Bool("update", false, "write the screenshots and the output of status into docs/")

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
	for name, half := range map[string]*pair.Half{"writer": leader, "inventory": p.Inventory} {
		for kind, screen := range screens {
			t.Run(name+" "+kind, func(t *testing.T) { look(ctx, t, name+"-"+kind, statusz(half), screen) })
		}
	}
	t.Run("a link shows one alone", func(t *testing.T) { alone(ctx, t, statusz(leader)+"?filter=web%2Fshop") })
	t.Run("no page of another site gets anything", func(t *testing.T) { strangers(ctx, t, statusz(leader)) })
	t.Run("status says the same in a terminal", func(t *testing.T) {
		for binary, half := range map[string]*pair.Half{"slicefeed-writer": leader, "slicefeed-inventory": p.Inventory} {
			terminal(ctx, t, binary, half)
		}
	})
}

// look loads a page and judges it.
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

// picture writes what is to be seen into docs/images.
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

// strangers asks as the pages of other sites would.
func strangers(ctx context.Context, t *testing.T, url string) {
	for name, header := range map[string]http.Header{
		"a name that was led to loopback": {"Host": {"rebound.example:6060"}},
		"a script of another site":        {"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Dest": {"empty"}},
	} {
		if text, err := get(ctx, url, header); err == nil {
			t.Errorf("%s gets %.100s", name, text)
		}
	}
}

// terminal runs the status command where the half runs.
func terminal(ctx context.Context, t *testing.T, binary string, half *pair.Half) {
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	run := func(env []string, args ...string) (code int, out, errs string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var stdout, stderr strings.Builder
		cmd := exec.CommandContext(ctx, filepath.Join(root, ".bin", binary), append([]string{"status"}, args...)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(half.Env(), env...), &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	code, text, errs := run(nil)
	if code != 1 || strings.Contains(text, "\x1b") || !regexp.MustCompile(`(?m)^ERROR  `).MatchString(text) ||
		!strings.Contains(errs, "problems found") {
		t.Errorf("exit code %d:\n%s%s", code, text, errs)
	}
	t.Logf("%s status\n%s", binary, text)
	if *update {
		document(t, filepath.Join(root, "docs", "operate", "statusz.md"), binary, text+errs)
	}
	_, narrow, _ := run([]string{"COLUMNS=40"})
	if lines := regexp.MustCompile(`(?m)^.{41,}$`).FindAllString(narrow, -1); lines != nil {
		t.Errorf("it does not fit 40 columns: %q", lines)
	}
	if code, _, errs := run(
		[]string{"DEBUG_ADDRESS=127.0.0.1:1"},
	); code != 1 ||
		!strings.Contains(errs, "connection refused at 127.0.0.1:1") {
		t.Errorf("with nobody there: exit code %d: %s", code, errs)
	}
}

// document replaces what a page shows of a command's output.
func document(t *testing.T, page, binary, text string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+binary+" status -->\n", "<!-- /"+binary+" status -->"
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the output of %s status", page, binary)
	}
	if err := os.WriteFile(page, []byte(before+begin+"```\n"+text+"```\n"+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
