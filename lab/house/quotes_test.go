package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// template is a string of the sources, cut at what is filled in when the program runs.
type template []string

var verb = regexp.MustCompile(`%[-+# 0-9.\[\]]*[a-zA-Z]`)

// newTemplate returns the template of a string, or of a sum of strings. What is no literal is filled in.
func newTemplate(e ast.Expr) template {
	const filledIn = "\x00"
	var fold func(ast.Expr) string
	fold = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			return fold(e.X) + fold(e.Y)
		case *ast.ParenExpr:
			return fold(e.X)
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
				return verb.ReplaceAllString(s, filledIn)
			}
		}
		return filledIn
	}
	return strings.Split(oneLine(fold(e)), filledIn)
}

// templates returns those of all string literals in a part of the sources.
func templates(n ast.Node) (all []template) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD {
				all = append(all, newTemplate(n))
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				all = append(all, newTemplate(n))
			}
		}
		return true
	})
	return slices.DeleteFunc(all, func(t template) bool { return len(strings.Join(t, "")) < 8 })
}

// makes reports whether the program can print a text by this template. A list may follow it.
func (t template) makes(text string) bool {
	rest, found := strings.CutPrefix(text, t[0])
	if !found {
		return false
	}
	for i, piece := range t[1:] {
		at := strings.Index(rest, piece)
		if last := i == len(t)-2; last && strings.HasSuffix(rest, piece) {
			return true
		}
		if at < 0 {
			return false
		}
		rest = rest[at+len(piece):]
	}
	return rest == "" || strings.HasPrefix(rest, ": ")
}

// makes reports whether one of the templates makes a text, at least a third of which it has itself: a short template
// would make too much.
func makes(all []template, text string) bool {
	return slices.ContainsFunc(all, func(t template) bool { return 3*len(strings.Join(t, "")) >= len(text) && t.makes(text) })
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// product is the parsed code of both components.
var product = sync.OnceValues(func() (files []*ast.File, err error) {
	err = filepath.WalkDir(filepath.Join(root, "services"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files = append(files, file)
		return err
	})
	return files, err
})

// eventTexts returns the texts of the writer's Events, by reason. A reason whose text is made elsewhere has none.
func eventTexts(t *testing.T) map[string][]template {
	t.Helper()
	files, err := product()
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string][]template{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr: // newRejection(ReasonNoProbePort, "…")
				reason, ok := first(n.Args).(*ast.Ident)
				if name, called := n.Fun.(*ast.Ident); ok && called && strings.HasSuffix(name.Name, "Rejection") &&
					strings.HasPrefix(reason.Name, "Reason") {
					for _, arg := range n.Args[1:] {
						reasons[reason.Name[len("Reason"):]] = append(reasons[reason.Name[len("Reason"):]], templates(arg)...)
					}
				}
			case *ast.CompositeLit: // Warning{Reason: "Paused", Note: …}, Recovery{…}
				var reason string
				var note ast.Expr
				for _, element := range n.Elts {
					pair, ok := element.(*ast.KeyValueExpr)
					if !ok {
						continue
					}
					switch key, _ := pair.Key.(*ast.Ident); {
					case key != nil && key.Name == "Reason":
						reason = text(pair.Value)
					case key != nil && key.Name == "Note":
						note = pair.Value
					}
				}
				if reason != "" && note != nil {
					reasons[reason] = append(reasons[reason], templates(note)...)
				}
			case *ast.ValueSpec: // var guardEvents = …: reason, action, reason when it is over
				if table, ok := first(n.Values).(*ast.CompositeLit); ok && n.Names[0].Name == "guardEvents" {
					for _, element := range table.Elts {
						row := element.(*ast.KeyValueExpr).Value.(*ast.CompositeLit).Elts
						reasons[text(row[0])], reasons[text(row[2])] = nil, nil
					}
				}
			}
			return true
		})
	}
	return reasons
}

func first(all []ast.Expr) ast.Expr {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// The last cell of each row is the text of the Event, with … for what differs from case to case.
func TestEveryEventIsDocumentedWithItsText(t *testing.T) {
	files, err := product()
	if err != nil {
		t.Fatal(err)
	}
	var all []template
	for _, file := range files {
		all = append(all, templates(file)...)
	}
	reasons := eventTexts(t)
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*\\| (.*) \\|$").FindAllStringSubmatch(strings.ReplaceAll(read(t, filepath.Join(root, "docs/reference/events.md")), "` | ", "` || "), -1) {
		reason, note := row[1], strings.ReplaceAll(row[2], "`", "")
		documented = append(documented, reason)
		candidates := reasons[reason]
		if len(candidates) == 0 {
			candidates = all
		}
		if !makes(candidates, note) {
			t.Errorf("docs/reference/events.md: no Event %s has the text %q", reason, note)
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(reasons)), documented); diff != "" {
		t.Errorf("the reasons in docs/reference/events.md (-code +docs):\n%s", diff)
	}
}

func TestTemplatesAreRecognized(t *testing.T) {
	expr, err := parser.ParseExpr(`"Source %s has not synced. Its %d " + kept + " are kept:\n see."`)
	if err != nil {
		t.Fatal(err)
	}
	of := newTemplate(expr)
	for text, want := range map[string]bool{
		"Source blue has not synced. Its 3 endpoints are kept: see.":      true,
		"Source … has not synced. Its … … are kept: see.":                 true,
		"Source blue has not synced. Its 3 endpoints are kept: see. More": false,
		"Source blue was never synced. Its 3 endpoints are kept: see.":    false,
	} {
		if of.makes(text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

func TestEveryCallOfTheContractsIsDocumented(t *testing.T) {
	var want, got []string
	for _, of := range []string{"inventory", "writer"} {
		service := ""
		for _, m := range regexp.MustCompile(`(?m)^service (\w+) \{$|^  rpc (\w+)\(`).FindAllStringSubmatch(read(t, filepath.Join(root, "proto/slicefeed", of, "v1", of+".proto")), -1) {
			if m[1] != "" {
				service = m[1]
			} else {
				want = append(want, service+"."+m[2])
			}
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+\\.\\w+)` \\|").FindAllStringSubmatch(read(t, filepath.Join(root, "docs/reference/proto.md")), -1) {
		got = append(got, m[1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the calls in docs/reference/proto.md (-proto +docs):\n%s", diff)
	}
}

// Each text that the page shows is a line that a command has printed (in a page whose commands are run, or whose output a
// test writes), or is what the sources make of one of their strings.
func TestTextsOfTroubleshootingAreThoseOfTheProduct(t *testing.T) {
	files, err := product()
	if err != nil {
		t.Fatal(err)
	}
	var all []template
	for _, file := range files {
		all = append(all, templates(file)...)
	}
	printed := map[string]bool{} // lines
	pages, err := filepath.Glob(filepath.Join(root, "docs/operate/runbooks/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(root, "docs/operate/statusz.md")) {
		for line := range strings.Lines(read(t, page)) {
			printed[oneLine(line)] = true
		}
	}
	quoted := regexp.MustCompile("(?ms)^ *```text\\n(.*?)^ *```$").
		FindAllStringSubmatch(read(t, filepath.Join(root, "docs/operate/troubleshooting.md")), -1)
	if len(quoted) < 12 {
		t.Errorf("only %d texts were found: does the page still show them as text?", len(quoted))
	}
	for _, quote := range quoted {
		made := ""
		for line := range strings.Lines(quote[1]) {
			if line = oneLine(line); !printed[line] {
				made += line + " "
			}
		}
		if made = strings.TrimSpace(made); made != "" && !makes(all, made) {
			t.Errorf("docs/operate/troubleshooting.md: the product does not print %q", made)
		}
	}
}
