package house

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mutation is a place in the code that can change something in a cluster.
type mutation struct {
	Function string // where it is
	Method   string // what is called, or taken as a value
	DryRun   bool   // the API server is asked to store nothing
}

const (
	metaPackage  = "k8s.io/apimachinery/pkg/apis/meta/v1"
	restPackage  = "k8s.io/client-go/rest"
	leasePackage = "k8s.io/client-go/tools/leaderelection/resourcelock"
)

// mutates decides by types, whatever variables are called and whether the method is called or passed on. A
// client's method that writes takes the options of a write, and so does one of an interface that
// stands for a client.
func mutates(f *types.Func) bool {
	sig := f.Signature()
	if f.Pkg() != nil && sig.Recv() != nil {
		switch f.Pkg().Path() {
		case restPackage:
			return slices.Contains([]string{"Post", "Put", "Patch", "Delete", "Verb"}, f.Name())
		case leasePackage:
			return slices.Contains([]string{"Create", "Update"}, f.Name())
		}
	}
	for param := range sig.Params().Variables() {
		named, ok := types.Unalias(param.Type()).(*types.Named)
		if ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == metaPackage &&
			slices.Contains(
				[]string{"CreateOptions", "UpdateOptions", "PatchOptions", "ApplyOptions", "DeleteOptions"},
				named.Obj().Name(),
			) {
			return true
		}
	}
	return false
}

// mutationsOf lists what in a package can change a cluster.
func mutationsOf(files []*ast.File, info *types.Info) (all []mutation) {
	for _, file := range files {
		for _, decl := range file.Decls {
			name := "a variable"
			if f, ok := decl.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			dry := map[ast.Expr]bool{} // callees whose options ask for a dry run
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					dry[n.Fun] = slices.ContainsFunc(n.Args, func(arg ast.Expr) bool { return isDryRun(arg, info) })
				case *ast.SelectorExpr:
					if f, ok := info.Uses[n.Sel].(*types.Func); ok && mutates(f) {
						all = append(all, mutation{Function: name, Method: f.Name(), DryRun: dry[n]})
					}
				}
				return true
			})
		}
	}
	return all
}

// isDryRun reports whether options are spelled out, and as those of a dry run.
func isDryRun(options ast.Expr, info *types.Info) bool {
	literal, ok := options.(*ast.CompositeLit)
	if !ok {
		return false
	}
	for _, element := range literal.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := field.Key.(*ast.Ident)
		list, isList := field.Value.(*ast.CompositeLit)
		if ok && isList && key.Name == "DryRun" && len(list.Elts) == 1 {
			value := info.Types[list.Elts[0]].Value
			return value != nil && value.ExactString() == `"All"`
		}
	}
	return false
}

// checker type-checks packages of this module against what the compiler has exported of others.
type checker struct {
	fset     *token.FileSet
	importer types.Importer
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	exports := map[string]string{}
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	c := &checker{fset: token.NewFileSet()}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

// check returns the mutations of a package's files; text, if given, stands for the file's content.
func (c *checker) check(t *testing.T, path string, text any, names ...string) []mutation {
	t.Helper()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(c.fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := (&types.Config{Importer: c.importer}).Check(path, c.fset, files, info); err != nil {
		t.Fatal(err)
	}
	return mutationsOf(files, info)
}

// allowedMutations are those outside the applier, by package and function, and why each is allowed.
var allowedMutations = map[string]string{
	module + "services/internal/preflight.review Create": "an access review is a question: nothing is stored",
	plugin + ".forward Post":                             "a person's own connection to a Pod, with their own credentials",
	writer + "/election.Create Create":                   "the Lease of the writer",
	writer + "/election.Update Update":                   "the Lease of the writer",
	writer + "/events.writeEvent Create":                 "Events on Services",
	writer + "/events.writeEvent Patch":                  "Events on Services",
}

func TestOnlyTheApplierMutatesTheConsumingCluster(t *testing.T) {
	c := newChecker(t)
	used, inApplier := map[string]bool{}, map[string]int{}
	for _, p := range list(t, module+"services/...") {
		var names []string
		for _, name := range p.GoFiles {
			names = append(names, filepath.Join(p.Dir, name))
		}
		for _, m := range c.check(t, p.ImportPath, nil, names...) {
			key := p.ImportPath + "." + m.Function + " " + m.Method
			switch {
			case p.ImportPath == slicesModule+"/applier":
				inApplier[m.Method]++
			case m.DryRun:
			case allowedMutations[key] != "":
				used[key] = true
			default:
				t.Errorf("%s: %s calls %s, and only the applier may change a cluster", p.ImportPath, m.Function, m.Method)
			}
		}
	}
	// That nothing was found elsewhere says something only if what is there was found.
	for _, method := range []string{"Post", "Put", "Delete"} {
		if inApplier[method] == 0 {
			t.Errorf("no %s was found in the applier, though slices need it: does the test still recognize a write?", method)
		}
	}
	for key := range allowedMutations {
		if !used[key] {
			t.Errorf("%s is allowed, and is not there", key)
		}
	}
}
