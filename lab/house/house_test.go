// Package house holds the rules of the house: which package may import what, and what a
// binary may contain. They are tests, since a rule that nothing holds is a wish.
package house

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	root      = "../.."
	module    = "github.com/slicefeed/slicefeed/"
	inventory = module + "services/inventory"
	writer    = module + "services/writer"
	plugin    = module + "services/kubectl-slicefeed"
	generated = module + "gen/"
	// slicesModule is a module of its own.
	slicesModule = module + "services/endpointslices"
)

// pkg is what go list says of a package, which it has compiled.
type pkg struct {
	ImportPath, Dir, Export string
	GoFiles, Imports, Deps  []string
}

// packages returns those of the product and the oracle, and all that they depend on.
var packages = sync.OnceValues(func() (all []pkg, err error) {
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Imports,Deps", "./services/...",
		"./services/endpointslices/...", "./lab/sim/oracle")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil && d.More(); {
		var p pkg
		err = d.Decode(&p)
		all = append(all, p)
	}
	return all, err
})

// list returns a package, or with /... all that are below it.
func list(t *testing.T, pattern string) []pkg {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	tree, below := strings.CutSuffix(pattern, "/...")
	all = slices.DeleteFunc(slices.Clone(all), func(p pkg) bool {
		return p.ImportPath != tree && (!below || !within(p.ImportPath, tree))
	})
	if len(all) == 0 {
		t.Fatalf("no package %s: has it moved?", pattern)
	}
	return all
}

// within reports whether a package is the tree's root or below it.
func within(path, tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") }

func TestNeitherComponentContainsTheOther(t *testing.T) {
	for half, other := range map[string]string{inventory: writer, writer: inventory} {
		for _, p := range list(t, half) {
			for _, dep := range p.Deps {
				if within(dep, other) {
					t.Errorf("%s contains %s", half, dep)
				}
			}
		}
	}
}

func TestTheWriterContainsNothingOfIONOS(t *testing.T) {
	const sdk = "github.com/ionos-cloud/sdk-go/v6"
	for _, dep := range list(t, writer)[0].Deps {
		if strings.Contains(dep, "ionos") {
			t.Errorf("the writer contains %s", dep)
		}
	}
	if !slices.Contains(list(t, inventory)[0].Deps, sdk) {
		t.Errorf("the inventory does not contain %s: does this test still look for the right name?", sdk)
	}
}

func TestDataFlowsOneWay(t *testing.T) {
	// Each stage may import those to its left, never one to its right. app, which
	// constructs them all, is the only exception and is imported by main alone.
	for half, flow := range map[string][]string{
		inventory: {"roster", "sourcetest", "kube", "kubeservice", "records", "ionos", "feed", "collector", "exports", "report", "app"},
		writer:    {"sources", "probe", "verdict", "subscriber", "targets", "endpoints", "election", "events", "report", "reconciler", "app"},
	} {
		seen := map[string]bool{}
		for _, p := range list(t, half+"/...") {
			name, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, half+"/"), "/")
			seen[name] = true
			at := slices.Index(flow, name)
			if p.ImportPath == half {
				at = len(flow)
			} else if at < 0 {
				t.Errorf("%s has no place in the flow: add it to this test", p.ImportPath)
				continue
			}
			for _, imported := range p.Imports {
				if !within(imported, half) || within(p.ImportPath, imported) {
					continue
				}
				if to := slices.Index(flow, strings.TrimPrefix(imported, half+"/")); to >= at {
					t.Errorf("%s imports %s, which comes later in the flow", p.ImportPath, imported)
				}
			}
		}
		for _, name := range flow {
			if !seen[name] {
				t.Errorf("%s has no package %s: take it out of this test", half, name)
			}
		}
	}
}

// subscriberCore are the files of the subscriber that check messages and keep the set.
var subscriberCore = []string{"decode.go", "mirror.go", "schedule.go", "snapshot.go", "violation.go"}

func TestPureCoresImportNoClient(t *testing.T) {
	clients := regexp.MustCompile(
		`^(net/http|net|os|os/exec|crypto/tls|math/rand(/v2)?|k8s\.io/client-go/.*|google\.golang\.org/grpc(/.*)?|github\.com/ionos-cloud/.*|github\.com/prometheus/.*|log/slog)$`,
	)
	for _, core := range []string{
		inventory + "/roster", writer + "/verdict", slicesModule + "/planner",
	} {
		for _, p := range list(t, core) {
			for _, imported := range p.Imports {
				if clients.MatchString(imported) {
					t.Errorf("%s is pure, and imports %s", core, imported)
				}
			}
		}
	}
	for _, name := range subscriberCore {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "services/writer/subscriber", name), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range file.Imports {
			if path, _ := strconv.Unquote(imported.Path.Value); clients.MatchString(path) {
				t.Errorf("%s is pure, and imports %s", name, path)
			}
		}
	}
	// What is no pure core imports some of them: else the expression has lost its way.
	for shell, client := range map[string]string{
		slicesModule + "/applier": "k8s.io/client-go/kubernetes", writer + "/subscriber": "google.golang.org/grpc", inventory + "/ionos": "net/http",
	} {
		if p := list(t, shell)[0]; !clients.MatchString(client) || !slices.Contains(p.Imports, client) {
			t.Errorf("%s does not import %s, or that is taken for no client", shell, client)
		}
	}
}

func TestPureCoresHaveNeitherClockNorGoroutineNorChance(t *testing.T) {
	impure := regexp.MustCompile(
		`\btime\.(Now|Since|Until|After|AfterFunc|NewTimer|NewTicker|Sleep|Tick)\(|^\s*go (func\b|\w+[.(])|\brand\.`,
	)
	files := []string{
		"inventory/roster/*.go",
		"inventory/feed/set.go",
		"internal/stream/set.go",
		"writer/verdict/*.go",
		"writer/reconciler/current.go",
		"writer/reconciler/members.go",
		"endpointslices/planner/*.go",
		"writer/targets/annotations.go",
		"writer/targets/cache.go",
		"writer/targets/imports.go",
		"writer/targets/labels.go",
		"writer/targets/optout.go",
		"writer/targets/ports.go",
		"writer/targets/rejection.go",
		"writer/targets/resolve.go",
		"writer/targets/service.go",
		"writer/targets/targets.go",
		"writer/endpoints/endpoints.go",
		"writer/endpoints/encode.go",
		"writer/endpoints/store.go",
		"writer/endpoints/view.go",
		"writer/probe/schedule.go",
		"writer/probe/shares.go",
		"writer/probe/status.go",
		"writer/probe/targets.go",
	}
	for _, name := range subscriberCore {
		files = append(files, "writer/subscriber/"+name)
	}
	for _, pattern := range files {
		names, err := filepath.Glob(filepath.Join(root, "services", pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s matches no file (%v): has the core moved?", pattern, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(text), "\n") {
				code, _, _ := strings.Cut(line, "//")
				if found := impure.FindString(code); found != "" {
					t.Errorf("%s:%d: a pure core has %q", name, i+1, found)
				}
			}
		}
	}
}

// tools/unit runs the tests of packages that check for leaks with the race detector, and no others.
func TestPackagesWithGoroutinesCheckForLeaks(t *testing.T) {
	goroutines := regexp.MustCompile(`(?m)^\t+(go (func\b|[\w.]+\()|[^/\n]*\.Go\(|[^/\n]*\bsynctest\.)`)
	starts, checks := map[string]string{}, map[string]bool{}
	for _, path := range slices.Concat(find(t, "services", ".go"), find(t, "examples", ".go")) {
		text, dir := read(t, path), filepath.Dir(path)
		if goroutines.MatchString(text) {
			starts[dir] = path
		}
		checks[dir] = checks[dir] || strings.Contains(text, "goleak.VerifyTestMain(m)")
	}
	for dir, path := range starts {
		if tests, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go")); len(tests) > 0 && !checks[dir] {
			t.Errorf("%s starts goroutines, and no TestMain of its package calls goleak.VerifyTestMain", path)
		}
	}
	if len(starts) < 20 {
		t.Errorf("only %d packages with goroutines were found", len(starts))
	}
}

func TestThePlannerIsImportableByItself(t *testing.T) {
	allowed := regexp.MustCompile(`^k8s\.io/(api|apimachinery|utils)/`)
	for _, p := range list(t, slicesModule+"/planner") {
		for _, imported := range p.Imports {
			if strings.Contains(imported, ".") && !allowed.MatchString(imported) {
				t.Errorf("the planner imports %s: it may import k8s.io/api, apimachinery and the standard library", imported)
			}
		}
	}
}

func TestTheApplierIsImportableBesideThePlanner(t *testing.T) {
	allowed := []string{slicesModule + "/planner", slicesModule + "/applier"}
	for _, p := range list(t, slicesModule+"/applier") {
		for _, dep := range p.Deps {
			if within(dep, module+"services") && !slices.Contains(allowed, dep) || strings.HasPrefix(dep, "github.com/prometheus/") ||
				strings.HasPrefix(dep, "google.golang.org/grpc") {
				t.Errorf("the applier contains %s: of Slicefeed it may contain %v, and metrics are its user's", dep, allowed)
			}
		}
	}
}

func TestGeneratedTypesStopAtTheEdge(t *testing.T) {
	edges := []string{
		inventory + "/feed",
		inventory + "/report",
		writer + "/subscriber",
		writer + "/verdict",
		writer + "/endpoints",
		writer + "/report",
		plugin,
		module + "services/internal/report",
	}
	importing := map[string]bool{}
	for _, p := range list(t, module+"services/...") {
		for _, imported := range p.Imports {
			importing[p.ImportPath] = importing[p.ImportPath] || strings.HasPrefix(imported, generated)
			if strings.HasPrefix(imported, generated) && !slices.Contains(edges, p.ImportPath) && !strings.HasSuffix(p.ImportPath, "/app") {
				t.Errorf("%s imports %s: generated types stop at %v", p.ImportPath, imported, edges)
			}
		}
	}
	for _, edge := range edges {
		if !importing[edge] {
			t.Errorf("%s imports no generated type: it is no edge", edge)
		}
	}
}

func TestThePluginContainsNeitherComponent(t *testing.T) {
	allowed := []string{
		module + "services/internal/command",
		module + "services/internal/display",
		module + "services/internal/report",
		module + "services/internal/settings",
	}
	p := list(t, plugin)[0]
	for _, imported := range p.Imports {
		if within(imported, module+"services") && !slices.Contains(allowed, imported) {
			t.Errorf("the plugin imports %s: it may import gen, and %v", imported, allowed)
		}
	}
	for _, dep := range p.Deps {
		if within(dep, inventory) || within(dep, writer) || strings.HasPrefix(dep, "github.com/ionos-cloud/") {
			t.Errorf("the plugin contains %s", dep)
		}
	}
	if !slices.Contains(p.Deps, "k8s.io/client-go/tools/portforward") {
		t.Error("the plugin forwards no port: is it still the right package?")
	}
}

func TestModulesReplaceOnlyEachOther(t *testing.T) {
	replacement := regexp.MustCompile(`(?m)^(?:replace |\t)(\S+)[^\n]* => `)
	for _, m := range []string{"examples", "gen", "services", "services/endpointslices", "lab"} {
		for _, found := range replacement.FindAllStringSubmatch(read(t, m+"/go.mod"), -1) {
			if found[1] != strings.TrimSuffix(generated, "/") && found[1] != slicesModule {
				t.Errorf("%s/go.mod replaces %s: in a workspace that would replace it for every module", m, found[1])
			}
		}
	}
}

func TestTheWorkspaceHoldsWhatShipsAndTheLabOnly(t *testing.T) {
	for _, outside := range []string{"tools", "upstream"} {
		if strings.Contains(read(t, "go.work"), outside) {
			t.Errorf("go.work contains %s, which would steer our versions", outside)
		}
	}
}

func TestTheOracleKnowsNothingOfTheProduct(t *testing.T) {
	// It judges the product in simulated worlds: whatever it imported of it, it could not judge.
	for _, p := range list(t, module+"lab/sim/oracle") {
		for _, dep := range p.Deps {
			if within(dep, module+"services") || within(dep, module+"gen") {
				t.Errorf("the oracle contains %s", dep)
			}
		}
	}
}
