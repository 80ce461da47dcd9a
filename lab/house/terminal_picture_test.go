package house

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the picture of the output of kubectl slicefeed status")

// severities have the colors of a terminal; see services/internal/statuspage.
var severities = map[string]string{"OK": "ok", "WARN": "warn", "ERROR": "error"}

var severityWord = regexp.MustCompile(`^( *)(OK|WARN|ERROR)( .*)$`)

// drawTerminal draws what a command printed as a terminal shows it.
func drawTerminal(title, text string) string {
	const lineHeight, top, left = 18, 34, 20
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">
  <title id="title">%s</title>
  <desc id="desc">What a terminal shows: the status page of an inventory, and that of the leading writer.</desc>
  <style>
    text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2933; white-space: pre }
    .bg { fill: #ffffff; stroke: #c5ced8 }
    .ok { fill: #0b7a5b; font-weight: 600 }
    .warn { fill: #96650a; font-weight: 600 }
    .error { fill: #b3261e; font-weight: 600 }
    .title { font-weight: 600 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb }
      .bg { fill: #0f1720; stroke: #3a4754 }
      .ok { fill: #3fc79a }
      .warn { fill: #d9ac52 }
      .error { fill: #f2857d }
    }
  </style>
  <rect class="bg" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>
`, width*8+2*left, len(lines)*lineHeight+top, title, width*8+2*left-1, len(lines)*lineHeight+top-1)
	for i, line := range lines {
		shown := html.EscapeString(line)
		class := ""
		if m := severityWord.FindStringSubmatch(line); m != nil {
			shown = m[1] + `<tspan class="` + severities[m[2]] + `">` + m[2] + `</tspan>` + html.EscapeString(m[3])
		} else if line != "" && line == strings.ToUpper(line) && strings.ContainsAny(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			class = ` class="title"`
		}
		if line != "" {
			fmt.Fprintf(&b, "  <text xml:space=\"preserve\" x=\"%d\" y=\"%d\"%s>%s</text>\n", left, top+i*lineHeight, class, shown)
		}
	}
	return b.String() + "</svg>\n"
}

// The text of the page is compared with a run (lab/runbooks), and the picture with the text.
func TestPictureOfStatusShowsTheTextOfThePage(t *testing.T) {
	_, rest, found := strings.Cut(read(t, filepath.Join(root, "docs/operate/kubectl.md")), "kubectl slicefeed status\n```\n\n```text\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/operate/kubectl.md has no output of kubectl slicefeed status")
	}
	path := filepath.Join(root, "docs/images/kubectl-slicefeed-status.svg")
	want := drawTerminal("kubectl slicefeed status", "$ kubectl slicefeed status\n"+text)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != want {
		t.Error("the picture differs from the page; run: cd lab && go test ./house -run PictureOfStatus -update")
	}
}
