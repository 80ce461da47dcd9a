package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every row of the tables of what goes wrong is a test of that name.
func TestEveryRowOfWhatHappensInTheDocsIsATest(t *testing.T) {
	tests := map[string]bool{}
	dirs := map[string][]*ast.File{}
	for _, tree := range []string{"services", "lab"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			dirs[filepath.Dir(path)] = append(dirs[filepath.Dir(path)], file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, files := range dirs {
		for name := range subtests(files) {
			tests[name] = true
		}
	}
	var pages []string
	for _, glob := range []string{"docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		some, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, some...)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range whatHappens(string(text)) {
			found++
			if !tests[row] {
				t.Errorf("%s: no test has the name of the row %q", filepath.Base(page), row)
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d rows were found: do the tables still begin with \"what happens\"?", found)
	}
}

// whatHappens returns the first cells of the tables whose first column is "what happens".
func whatHappens(text string) []string {
	var rows []string
	in := false
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) < 3:
			in = false
		case strings.TrimSpace(cells[1]) == "what happens":
			in = true
		case in && !strings.HasPrefix(strings.TrimSpace(cells[1]), "---"):
			rows = append(rows, strings.TrimSpace(strings.ReplaceAll(cells[1], "`", "")))
		}
	}
	return rows
}

// subtests are the names that the tests of one directory give to their parts: what is passed to t.Run or
// stage.step as it stands, by a variable of that function, or as the first field of a table's row, if a field is
// passed to t.Run anywhere in the directory. A text that a test merely compares with or prints is none.
func subtests(files []*ast.File) map[string]bool {
	names, rows, tables := map[string]bool{}, map[string]bool{}, false
	for _, file := range files {
		for _, decl := range file.Decls {
			variables := map[string]string{}
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					if name, ok := n.Lhs[0].(*ast.Ident); ok && len(n.Lhs) == 1 {
						variables[name.Name] = text(n.Rhs[0])
					}
				case *ast.CallExpr:
					f, ok := n.Fun.(*ast.SelectorExpr)
					if !ok || len(n.Args) != 2 || f.Sel.Name != "Run" && f.Sel.Name != "step" {
						return true
					}
					switch arg := n.Args[0].(type) {
					case *ast.Ident:
						names[variables[arg.Name]] = true
					case *ast.SelectorExpr:
						tables = true
					default:
						names[text(arg)] = true
					}
				case *ast.CompositeLit:
					if _, isList := n.Type.(*ast.ArrayType); !isList {
						return true
					}
					for _, element := range n.Elts {
						if row, ok := element.(*ast.CompositeLit); ok && len(row.Elts) > 1 {
							first := row.Elts[0]
							if pair, ok := first.(*ast.KeyValueExpr); ok {
								first = pair.Value
							}
							rows[text(first)] = true
						}
					}
				}
				return true
			})
		}
	}
	if tables {
		maps.Copy(names, rows)
	}
	delete(names, "")
	return names
}

// text is the value of a string literal, and empty for any other expression.
func text(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return value
}

func TestOnlyNamesOfSubtestsCount(t *testing.T) {
	const source = `package fixture

// "a comment" is none.
func TestIt(t *testing.T) {
	t.Run("spelled out", func(t *testing.T) {})
	s.step("a step", func(s *stage) {})
	name := "by a variable"
	t.Run(name, func(t *testing.T) {})
	t.Errorf("a message", 1)
	if got != "a comparison" {
		t.Fatal("a message")
	}
	exec.Run("a single argument")
	for _, row := range []struct{ name, want string }{
		{"a row", "a value of a row"},
		{name: "a keyed row", want: "x"},
	} {
		%s
	}
	_ = []string{"a list", "of texts"}
}
`
	for run, want := range map[string][]string{
		"t.Run(row.name, func(t *testing.T) {})": {"a keyed row", "a row", "a step", "by a variable", "spelled out"},
		"t.Log(row.name)":                        {"a step", "by a variable", "spelled out"},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf(source, run), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(subtests([]*ast.File{file})))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", run, diff)
		}
	}
}
