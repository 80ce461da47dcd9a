package house

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

var (
	testVariable = regexp.MustCompile(`\bSLICEFEED_[A-Z_]*[A-Z]\b`)
	quoted       = regexp.MustCompile("`([^`]+)`")
	makeTarget   = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`)
)

// variablesIn returns the test variables that are named in the code, with the folders of the files.
func variablesIn(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, top := range []string{"services", "examples", "lab", "deploy/compose", "tools", ".ci", "Makefile", "docker-compose.yaml"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if entry != nil && entry.Name() == "kubectl-slicefeed" {
				return fs.SkipDir // its variables are for users: docs/operate/kubectl.md
			}
			if err != nil || entry.IsDir() || filepath.Ext(path) == ".json" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || bytes.IndexByte(text, 0) >= 0 {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			for _, name := range testVariable.FindAllString(string(text), -1) {
				found[name] = append(found[name], folder)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestTheTableOfTestVariablesMatchesTheCode(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, filepath.Join(root, "CONTRIBUTING.md")), "<!-- variables -->\n")
	table, _, found := strings.Cut(rest, "<!-- /variables -->")
	if !found {
		t.Fatal("CONTRIBUTING.md has no table between its marks")
	}
	folders := variablesIn(t)
	var listed []string
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		names := testVariable.FindAllString(cells[1], -1)
		listed = append(listed, names...)
		for _, name := range names {
			readers, _, _ := strings.Cut(cells[3], ":")
			for _, m := range quoted.FindAllStringSubmatch(readers, -1) {
				if !slices.ContainsFunc(folders[name], func(folder string) bool { return within(folder, m[1]) }) {
					t.Errorf("CONTRIBUTING.md says that %s is read in %s, which does not name it", name, m[1])
				}
			}
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(folders)), listed); diff != "" {
		t.Errorf("the table of test variables in CONTRIBUTING.md differs from the code (-code +table):\n%s", diff)
	}
}

// targets are those of the Makefile.
func targets(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(read(t, filepath.Join(root, "Makefile")), -1) {
		all[m[1]] = true
	}
	return all
}

// What CONTRIBUTING.md tells people to run, edit or look for has to be there.
func TestWhatContributingNamesExists(t *testing.T) {
	page, targets := read(t, filepath.Join(root, "CONTRIBUTING.md")), targets(t)
	for _, m := range makeTarget.FindAllStringSubmatch(page, -1) {
		if !targets[m[1]] {
			t.Errorf("the Makefile has no target %s", m[1])
		}
	}
	paths := 0
	for _, m := range quoted.FindAllStringSubmatch(page, -1) {
		path := m[1]
		if !strings.Contains(path, "/") || strings.ContainsAny(path, " $=…<") || strings.HasPrefix(path, ".bin/") {
			continue
		}
		paths++
		if files, err := filepath.Glob(filepath.Join(root, path)); err != nil || len(files) == 0 {
			t.Errorf("there is no %s", path)
		}
	}
	if paths < 30 {
		t.Errorf("only %d paths were found in CONTRIBUTING.md", paths)
	}
	tests := ""
	for _, tree := range []string{"services", "lab"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				tests += read(t, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range regexp.MustCompile(`\bTest\w+`).FindAllString(page, -1) {
		if !strings.Contains(tests, "func "+name+"(") {
			t.Errorf("there is no test %s", name)
		}
	}
}

// workflow is a file of .github/workflows, as far as it is tested.
type workflow struct {
	Jobs map[string]struct {
		Steps []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// Nothing runs the workflows here: they may only call what the rest of the repository tests.
func TestTheWorkflowsRunWhatThereIs(t *testing.T) {
	targets := targets(t)
	command := regexp.MustCompile(`(?m)(?:^|[ (])((?:\.ci|tools|deploy)/[a-z/-]+)`)
	pinned := regexp.MustCompile(`^[a-z-]+/[a-z-]+@v\d+\.\d+\.\d+$`)
	runs := map[string]string{}
	versions := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		var w workflow
		if err := yaml.Unmarshal([]byte(read(t, file)), &w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				runs[name] += step.Run + "\n"
				if step.Uses == "" {
					continue
				}
				action, version, _ := strings.Cut(step.Uses, "@")
				if !pinned.MatchString(step.Uses) || versions[action] != "" && versions[action] != version {
					t.Errorf("%s uses %s: want one version of it, in full, in all workflows", name, step.Uses)
				}
				versions[action] = version
				if goMod, ok := step.With["go-version-file"].(string); ok && semver.Compare("v"+goOf(t, goMod), "v"+newestGo(t)) < 0 {
					t.Errorf("%s uses the Go of %s, and a module needs %s", name, goMod, newestGo(t))
				}
			}
		}
		for _, m := range command.FindAllStringSubmatch(runs[name], -1) {
			if info, err := os.Stat(filepath.Join(root, m[1])); err != nil || info.Mode()&0o100 == 0 {
				t.Errorf("%s runs %s, which is not a program here", name, m[1])
			}
		}
		for _, m := range makeTarget.FindAllStringSubmatch(runs[name], -1) {
			if !targets[m[1]] {
				t.Errorf("%s runs make %s, which is not in the Makefile", name, m[1])
			}
		}
	}
	for name, want := range map[string]string{"ci.yaml": ".ci/run\n", "nightly.yaml": "make verify\n", "release.yaml": "tools/release/artifacts"} {
		if !strings.Contains(runs[name], want) {
			t.Errorf("%s does not run %s", name, want)
		}
	}
	if !strings.Contains(read(t, filepath.Join(root, "tools/release/dry-run")), "tools/release/artifacts") {
		t.Error("the rehearsal of a release does not run what the workflow does")
	}
}

// goMods returns the go.mod files of the repository, from its root.
func goMods(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*/go.mod", "*/*/go.mod", "*/*/*/go.mod"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			path, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, path)
		}
	}
	return all
}

// goOf returns the Go version that a go.mod requires.
func goOf(t *testing.T, path string) string {
	t.Helper()
	parsed, err := modfile.ParseLax(path, []byte(read(t, filepath.Join(root, path))), nil)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Go.Version
}

func newestGo(t *testing.T) string {
	t.Helper()
	newest := ""
	for _, path := range goMods(t) {
		if version := goOf(t, path); semver.Compare("v"+version, "v"+newest) > 0 {
			newest = version
		}
	}
	return newest
}

func TestDependabotKnowsEachModule(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(root, ".github/dependabot.yml"))), &config); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, path := range goMods(t) {
		if !strings.HasPrefix(path, "lab/upstream/") { // a person chooses the Kubernetes to test with
			want = append(want, "/"+filepath.Dir(path))
		}
	}
	for _, update := range config.Updates {
		if update.Ecosystem != "gomod" {
			continue
		}
		slices.Sort(want)
		slices.Sort(update.Directories)
		if diff := cmp.Diff(want, update.Directories); diff != "" {
			t.Errorf("dependabot.yml names other modules than there are (-want +got):\n%s", diff)
		}
		return
	}
	t.Error("dependabot.yml has no updates of Go modules")
}

// The version that is prepared has a section, and so has each that is released.
func TestTheChangelogHasEachVersion(t *testing.T) {
	changelog := read(t, filepath.Join(root, "CHANGELOG.md"))
	released, err := filepath.Glob(filepath.Join(root, "proto/released/v*.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{regexp.MustCompile(`(?m)^version: (.+)$`).FindStringSubmatch(read(t, ofChart("writer", "Chart.yaml")))[1]}
	for _, file := range released {
		versions = append(versions, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "v"), ".binpb"))
	}
	for _, version := range versions {
		if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(version) + `\b`).MatchString(changelog) {
			t.Errorf("CHANGELOG.md has no section %s", version)
		}
	}
}
