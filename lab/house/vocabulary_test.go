package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// oldVocabulary lists words of the project's early texts that docs/start/glossary.md has replaced.
// The terms to use instead are in the comments.
var oldVocabulary = []string{
	"told", "tells", "telling", // reported, published, sent
	"heard", "hears", "unheard", // synced, received, connected
	"word", "words", // report, status, text
	"whom",                                        // split the sentence
	"bear", "bears", "borne", "bearer", "bearers", // has, assigned
	"anew",                    // again, relist
	"mend", "mends", "mended", // repair
	"court", "courts", // evaluation
	"witness", "witnesses", // source, probe
	"fence", "fences", "fenced", // allowlist
	"half", "halves", // component
	"doubt", "doubts", "doubted", // anomaly, warning
	"believed", "believes", // trusted
	"breach", "breaches", // protocol violation
	"plead", "reckon", "rouse", // request, evaluate, wake
	"lookout", "patience", // pipeline, timeout
	"nobody", "somebody", // no client, another client
	"surrender",                     // step down
	"refused", "refuses", "refusal", // rejected, denied
}

// vocabularyAllowlist has one line for each use that stays: path, word and a part of the
// identifier or text, separated by tabs. The path * covers every file, a path that ends in a slash a directory;
// an empty third field covers every use of the word there.
const vocabularyAllowlist = "testdata/vocabulary_allowlist.txt"

type wordUse struct {
	path string // relative to the checkout
	line int
	word string
	text string // the identifier, string literal or line that contains the word
}

// findOldWords returns the old vocabulary in a text or in the parts of an identifier.
func findOldWords(text string) []string {
	var found []string
	for _, word := range splitWords(text) {
		if slices.Contains(oldVocabulary, word) && !slices.Contains(found, word) {
			found = append(found, word)
		}
	}
	return found
}

// splitWords splits prose, camelCase, snake_case and kebab-case into words of lower case.
func splitWords(text string) []string {
	var words []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	runes := []rune(text)
	for i, r := range runes {
		if !unicode.IsLetter(r) {
			flush()
			continue
		}
		startsWord := unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if startsWord {
			flush()
		}
		word = append(word, r)
	}
	flush()
	return words
}

// usesInGo returns the old words in the declared names of a Go file and, outside tests, in its
// string literals: logs, errors, Events, help texts and status pages are all literals.
func usesInGo(path string, source []byte) ([]wordUse, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var uses []wordUse
	add := func(pos token.Pos, text string) {
		for _, word := range findOldWords(text) {
			uses = append(uses, wordUse{path, fset.Position(pos).Line, word, text})
		}
	}
	name := func(id *ast.Ident) {
		if id != nil {
			add(id.Pos(), id.Name)
		}
	}
	isTest := strings.HasSuffix(path, "_test.go")
	name(file.Name)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.FuncDecl:
			name(n.Name)
		case *ast.TypeSpec:
			name(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				name(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				name(id)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						name(id)
					}
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if id, ok := e.(*ast.Ident); ok {
						name(id)
					}
				}
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && !isTest {
				if text, err := strconv.Unquote(n.Value); err == nil {
					add(n.Pos(), text)
				}
			}
		}
		return true
	})
	return uses, nil
}

func usesInText(path string, source []byte) []wordUse {
	var uses []wordUse
	for i, line := range strings.Split(string(source), "\n") {
		for _, word := range findOldWords(line) {
			uses = append(uses, wordUse{path, i + 1, word, strings.TrimSpace(line)})
		}
	}
	return uses
}

// userFacingText matches the files outside services that users read or that alert them.
var userFacingText = regexp.MustCompile(
	`^(README\.md|docs/(start|deploy|use|operate|reference|design)/.*\.md|docs/proof/(guarantees|mutants|performance|scaling|search|simulation)\.md|deploy/.*\.(yaml|json|tpl|txt|md)|proto/slicefeed/.*\.proto)$`,
)

func oldWordsOfTheProduct(t *testing.T) []wordUse {
	t.Helper()
	var uses []wordUse
	for _, dir := range []string{"services", "deploy", "docs", "proto", "README.md"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			path, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			inGo := strings.HasPrefix(path, "services/") && strings.HasSuffix(path, ".go")
			if !inGo && !userFacingText.MatchString(path) {
				return nil
			}
			source, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if !inGo {
				uses = append(uses, usesInText(path, source)...)
				return nil
			}
			found, err := usesInGo(path, source)
			uses = append(uses, found...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return uses
}

type allowedUse struct {
	line             string
	path, word, text string
	used             bool
}

func readAllowlist(t *testing.T) []*allowedUse {
	t.Helper()
	source, err := os.ReadFile(vocabularyAllowlist)
	if err != nil {
		t.Fatal(err)
	}
	var allowed []*allowedUse
	for line := range strings.Lines(string(source)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 {
			t.Fatalf("%s: %q: want path, word and text, separated by tabs", vocabularyAllowlist, line)
		}
		allowed = append(allowed, &allowedUse{line: line, path: fields[0], word: fields[1], text: fields[2]})
	}
	return allowed
}

func (a *allowedUse) covers(use wordUse) bool {
	samePath := a.path == "*" || use.path == a.path || strings.HasSuffix(a.path, "/") && strings.HasPrefix(use.path, a.path)
	return samePath && (a.word == "*" || a.word == use.word) && strings.Contains(use.text, a.text)
}

func TestUsesTheGlossarysTerms(t *testing.T) {
	allowed := readAllowlist(t)
	uses := oldWordsOfTheProduct(t)
	for _, use := range uses {
		covered := false
		for _, a := range allowed {
			if a.covers(use) {
				a.used, covered = true, true
			}
		}
		if !covered {
			t.Errorf("%s:%d: %q is no term of docs/start/glossary.md; use one of its terms, or add a line to lab/house/%s: %q",
				use.path, use.line, use.word, vocabularyAllowlist, use.text)
		}
	}
	for _, a := range allowed {
		if !a.used {
			t.Errorf("lab/house/%s: %q covers nothing any more; remove it", vocabularyAllowlist, a.line)
		}
	}
}

func TestOldWordsAreFoundInNamesAndTexts(t *testing.T) {
	source := []byte(`package told

import _ "example.org/heard"

type probeWord struct{ LeftToBear bool }

// court is a comment: the test leaves comments to reviews.
func evaluate(fenceRule int) string {
	reMended := 1
	for witness := range 3 {
		_ = witness + reMended + fenceRule
	}
	return "half of it, but swords, hearings and bearing are other words"
}
`)
	uses, err := usesInGo("services/x.go", source)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, use := range uses {
		got = append(got, use.word)
	}
	want := []string{"told", "word", "bear", "fence", "mended", "witness", "half", "words"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if uses, _ := usesInGo("services/x_test.go", []byte("package x\n\nvar told = \"heard\"\n")); len(uses) != 1 || uses[0].word != "told" {
		t.Errorf("of a test only the names count, got %v", uses)
	}
	if uses := usesInText("README.md", []byte("The inventory\ntells a writer.")); len(uses) != 1 || uses[0].line != 2 {
		t.Errorf("got %v, want one use in line 2", uses)
	}
}
