// Package generic makes every small change to a package that its operators know, and says which of
// them the package's tests do not notice. It promises one compilation for all of them: each
// change sleeps in the code, laid over the tree by -overlay, until the environment names its number.
// It refuses to judge a survivor: that is for people (docs/mutants.md).
//
// The operators: a comparison or another condition is always true, or always false; < is <=,
// > is >=, and the other way round; + is -, and * is /, and the other way round; a statement is left
// out; a function returns its zero values at once. Constants stay as they are.
//
// Rejected: gremlins 0.6.0, the tool that is maintained. It runs on this tree, but it takes the
// conditions of switch cases for not covered and leaves them out, which is where the cores decide; it
// counts what does not compile as killed, and cannot leave a statement out.
package generic

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Change is one small change to the source.
type Change struct {
	Number int
	At     token.Position
	What   string // the operator, and the text that it is applied to
}

// String is the change in one line.
func (c Change) String() string {
	return fmt.Sprintf("%s:%d:%d %s", filepath.Base(c.At.Filename), c.At.Line, c.At.Column, c.What)
}

// sleeper rewrites one file so that its changes sleep in it.
type sleeper struct {
	files   *token.FileSet
	text    []byte
	base    token.Pos
	changes *[]Change
	inserts []insert
}

// insert is text that goes in at an offset, in place of so many bytes.
type insert struct {
	at, cut int
	text    string
	closes  bool
}

// Sleeping returns the files of a package directory with every change asleep in them, the file that
// wakes one included, and the changes by number, from 1.
func Sleeping(dir string) (map[string]string, []Change, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	var changes []Change
	sources := map[string]string{}
	name := ""
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		name = file.Name.Name
		s := &sleeper{files: files, text: text, base: file.FileStart, changes: &changes}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				s.function(f.Type, f.Body)
			}
		}
		sources[path] = s.written()
	}
	if name == "" {
		return nil, nil, fmt.Errorf("%s holds no Go package", dir)
	}
	sources[filepath.Join(dir, "zz_wake.go")] = "package " + name + wake
	return sources, changes, nil
}

// wake is what wakes the change whose number is in the environment.
const wake = `

import (
	"cmp"
	"os"
	"reflect"
	"strconv"
)

var _awake, _ = strconv.Atoi(os.Getenv("MUTANT"))

func _is(n int) bool { return _awake == n }

func _bool(always, never int, is bool) bool { return (is || _awake == always) && _awake != never }

func _less[T cmp.Ordered](n int, op string, a, b T) bool {
	if _awake == n {
		op = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[op]
	}
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}

func _math[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64](n int, op string, a, b T) T {
	if _awake == n {
		op = map[string]string{"+": "-", "-": "+", "*": "/", "/": "*"}[op]
	}
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	}
	return a / b
}

// A sum may be one of texts: what is awake then leaves out the second.
func _plus[T cmp.Ordered](n int, _ string, a, b T) T {
	if _awake != n {
		return a + b
	}
	switch v, w := reflect.ValueOf(&a).Elem(), reflect.ValueOf(b); {
	case v.CanInt():
		v.SetInt(v.Int() - w.Int())
	case v.CanUint():
		v.SetUint(v.Uint() - w.Uint())
	case v.CanFloat():
		v.SetFloat(v.Float() - w.Float())
	}
	return a
}
`

func (s *sleeper) add(at ast.Node, what string) int {
	n := len(*s.changes) + 1
	text, _, _ := strings.Cut(string(s.text[s.offset(at.Pos()):s.offset(at.End())]), "\n")
	*s.changes = append(*s.changes, Change{n, s.files.Position(at.Pos()), what + ": " + text})
	return n
}

func (s *sleeper) offset(p token.Pos) int { return int(p - s.base) }

func (s *sleeper) wrap(of ast.Node, before, after string) {
	s.inserts = append(s.inserts,
		insert{at: s.offset(of.Pos()), text: before}, insert{at: s.offset(of.End()), text: after, closes: true})
}

// written is the file with all that was inserted. Of what opens at one place the outer comes
// first, and of what closes there the inner; both are in the order of a walk from outside.
func (s *sleeper) written() string {
	var b strings.Builder
	var opens, closes []insert
	for _, i := range s.inserts {
		if i.closes {
			closes = append(closes, i)
		} else {
			opens = append(opens, i)
		}
	}
	slices.Reverse(closes)
	all := slices.Concat(closes, opens) // where one ends and the next begins, the end comes first
	slices.SortStableFunc(all, func(a, b insert) int { return a.at - b.at })
	at := 0
	for _, i := range all {
		b.Write(s.text[at:i.at])
		b.WriteString(i.text)
		at = i.at + i.cut
	}
	b.Write(s.text[at:])
	return b.String()
}

func (s *sleeper) function(of *ast.FuncType, body *ast.BlockStmt) {
	var zeros []string
	if of.Results != nil {
		for _, r := range of.Results.List {
			kind := string(s.text[s.offset(r.Type.Pos()):s.offset(r.Type.End())])
			for range max(len(r.Names), 1) {
				zeros = append(zeros, "*new("+kind+")")
			}
		}
	}
	if len(body.List) > 0 {
		n := s.add(body.List[0], "return at once, before")
		s.inserts = append(s.inserts, insert{at: s.offset(body.Lbrace) + 1, text: fmt.Sprintf(" if _is(%d) { return %s };", n, strings.Join(zeros, ", "))})
	}
	s.walk(body)
}

// walk finds what can be changed.
func (s *sleeper) walk(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.FuncLit:
			s.function(n.Type, n.Body)
			return false
		case *ast.BlockStmt:
			s.statements(n.List)
		case *ast.CaseClause:
			s.statements(n.Body)
		case *ast.IfStmt:
			s.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				s.condition(n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, c := range n.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						s.condition(e)
					}
				}
			}
		case *ast.BinaryExpr:
			s.binary(n)
		}
		return true
	})
}

// statements has each statement left out that can be.
func (s *sleeper) statements(list []ast.Stmt) {
	for _, one := range list {
		switch one := one.(type) {
		case *ast.AssignStmt:
			if one.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.BranchStmt:
		default:
			continue
		}
		s.wrap(one, fmt.Sprintf("if !_is(%d) { ", s.add(one, "left out")), " }")
	}
}

// condition has a condition always hold, and never, unless that is another one's doing.
func (s *sleeper) condition(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr: // by binary
	case *ast.ParenExpr:
		s.condition(e.X)
	case *ast.UnaryExpr:
		s.condition(e.X)
	default:
		s.always(e)
	}
}

func (s *sleeper) always(e ast.Expr) {
	s.wrap(e, fmt.Sprintf("_bool(%d, %d, ", s.add(e, "always"), s.add(e, "never")), ")")
}

func (s *sleeper) binary(e *ast.BinaryExpr) {
	var helper string
	switch e.Op {
	case token.LAND, token.LOR:
		s.condition(e.X)
		s.condition(e.Y)
		return
	case token.EQL, token.NEQ:
		s.always(e)
		return
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		s.always(e)
		helper = "_less"
	case token.ADD, token.SUB, token.MUL, token.QUO:
		if constant(e.X) && constant(e.Y) || isText(e) {
			return
		}
		if helper = "_math"; e.Op == token.ADD {
			helper = "_plus"
		}
	default:
		return
	}
	n := s.add(e, e.Op.String()+" by its neighbour")
	s.wrap(e, fmt.Sprintf("%s(%d, %q, ", helper, n, e.Op), ")")
	s.inserts = append(s.inserts, insert{at: s.offset(e.OpPos), cut: len(e.Op.String()), text: ","})
}

// constant reports whether an operand is one by its looks.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		of, ok := e.X.(*ast.Ident)
		return ok && of.Name == "time"
	}
	return false
}

// isText reports whether a sum is one of texts by its looks.
func isText(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			found = found || n.Kind == token.STRING
		case *ast.SliceExpr: // of a text as a rule
			found = true
		}
		return !found
	})
	return found
}
