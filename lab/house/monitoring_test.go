package house

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// rule is an alert as the charts have it.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

var halves = []string{"inventory", "writer"}

func ofChart(half, name string) string {
	return filepath.Join(root, "deploy", "slicefeed-"+half, name)
}

func alerts(t *testing.T) (all []rule) {
	t.Helper()
	for _, half := range halves {
		var file struct {
			Groups []struct {
				Name  string `json:"name"`
				Rules []rule `json:"rules"`
			} `json:"groups"`
		}
		text := read(t, ofChart(half, "alerts.yaml"))
		if err := yaml.UnmarshalStrict([]byte(text), &file); err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Groups {
			all = append(all, group.Rules...)
		}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEachAlertSaysWhatToDoAndIsTested(t *testing.T) {
	const page = "https://github.com/slicefeed/slicefeed/blob/main/docs/operate/alerts.md#"
	headings := map[string]bool{} // of docs/operate/alerts.md, by anchor; true: an alert has it
	sections := map[string]string{}
	for _, section := range strings.Split(read(t, filepath.Join(root, "docs", "operate", "alerts.md")), "\n### ")[1:] {
		heading, text, _ := strings.Cut(section, "\n\n")
		headings[strings.ToLower(heading)], sections[heading] = false, text
	}
	tests := read(t, ofChart("inventory", "alerts_test.yaml")) + read(t, ofChart("writer", "alerts_test.yaml"))
	for _, a := range alerts(t) {
		anchor := strings.ToLower(a.Alert)
		if used, there := headings[anchor]; !there || used {
			t.Errorf("%s: docs/operate/alerts.md has no section of its own for it", a.Alert)
		}
		headings[anchor] = true
		if got := a.Annotations["runbook_url"]; got != page+anchor {
			t.Errorf("%s: runbook_url is %q, want %q", a.Alert, got, page+anchor)
		}
		for _, name := range []string{"summary", "description"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		severity := a.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s: severity is %q, want critical, warning or info", a.Alert, severity)
		} else if begins := "*" + strings.ToUpper(severity[:1]) + severity[1:] + ".* "; !strings.HasPrefix(sections[a.Alert], begins) {
			t.Errorf("%s: its section of docs/operate/alerts.md does not begin with %s", a.Alert, begins)
		}
		if a.For == "" {
			t.Errorf("%s does not say for how long", a.Alert)
		}
		if !strings.Contains(tests, `alertname="`+a.Alert+`"`) {
			t.Errorf("%s: no alerts_test.yaml has it fire", a.Alert)
		}
	}
	for anchor, used := range headings {
		if !used {
			t.Errorf("docs/operate/alerts.md has a section %s, and there is no such alert", anchor)
		}
	}
}

// panel is one of a dashboard, as far as it is tested.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Grid        struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

func panels(t *testing.T, half string) []panel {
	t.Helper()
	var board struct {
		Panels        []panel `json:"panels"`
		SchemaVersion int     `json:"schemaVersion"`
		Templating    struct {
			List []struct {
				Name string `json:"name"`
				Type string `json:"type"`
			} `json:"list"`
		} `json:"templating"`
	}
	if err := json.Unmarshal([]byte(read(t, ofChart(half, "dashboard.json"))), &board); err != nil {
		t.Fatal(err)
	}
	if v := board.Templating.List; len(v) == 0 || v[0].Name != "datasource" || v[0].Type != "datasource" {
		t.Errorf("%s: the first variable is not the data source", half)
	}
	return board.Panels
}

func TestEachPanelOfADashboardExplainsItself(t *testing.T) {
	for _, half := range halves {
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range panels(t, half) {
			if p.ID == 0 || ids[p.ID] {
				t.Errorf("%s: %q has no id of its own", half, p.Title)
			}
			ids[p.ID] = true
			for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
				for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %q lies upon %q", half, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			if p.Title == "" || p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %q lacks a title, a description, a query or the data source", half, p.Title)
			}
			if p.Type != "table" && p.FieldConfig.Defaults.Unit == "" {
				t.Errorf("%s: %q has no unit", half, p.Title)
			}
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:slicefeed|process|go|up)_[a-z0-9_]+`)

func TestAlertsAndDashboardsSpeakOfMetricsThatThereAre(t *testing.T) {
	kinds := map[string]string{"process_resident_memory_bytes": "gauge"} // by name; ours are held to the code by tests of the halves
	for _, row := range regexp.MustCompile("(?m)^\\| `(slicefeed_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(read(t, filepath.Join(root, "docs", "reference", "metrics.md")), -1) {
		kinds[row[1]] = row[2]
	}
	if len(kinds) < 60 {
		t.Fatalf("docs/reference/metrics.md has only %d metrics: are the tables still as they were?", len(kinds))
	}
	exprs := map[string][]string{}
	for _, a := range alerts(t) {
		exprs[a.Alert] = []string{a.Expr}
	}
	for _, half := range halves {
		for _, p := range panels(t, half) {
			for _, target := range p.Targets {
				exprs[half+": "+p.Title] = append(exprs[half+": "+p.Title], target.Expr)
			}
		}
	}
	for what, all := range exprs {
		for _, expr := range all {
			names := metricName.FindAllString(expr, -1)
			if len(names) == 0 {
				t.Errorf("%s speaks of no metric: %s", what, expr)
			}
			for _, name := range names {
				if kinds[name] != "" && kinds[name] != "histogram" {
					continue
				}
				of, suffix := histogram(name)
				if kinds[of] != "histogram" || !slices.Contains([]string{"bucket", "count", "sum"}, suffix) {
					t.Errorf("%s: there is no metric %s", what, name)
				}
			}
		}
	}
}

var grouping = regexp.MustCompile(`\b(by|on|without|ignoring)\b\s*\(([^)]*)\)`)

// lostLabels names what an expression groups by or joins on without keeping clusters apart, where one Thanos
// or Mimir has the series of several: two consuming clusters would seem to have several leaders. The namespace
// tells installations apart that one job scrapes; an instance is of one namespace anyway, and the series
// of a Service have the Service's namespace.
func lostLabels(expr string) (lost []string) {
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		labels := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
		byJob := slices.Contains(labels, "job") && !slices.Contains(labels, "instance")
		if m[1] != "by" && m[1] != "on" || !slices.Contains(labels, "cluster") || byJob && !slices.Contains(labels, "namespace") {
			lost = append(lost, m[0])
		}
	}
	return lost
}

func TestGroupingsThatMergeClustersAreFound(t *testing.T) {
	for _, c := range []struct {
		expr string
		want []string
	}{
		{"sum by (job) (x) > 1", []string{"by (job)"}},
		{"sum by (cluster, job) (x) > 1", []string{"by (cluster, job)"}},
		{"sum by (cluster, namespace, job) (x) > 1", nil},
		{"a and on (job, instance) b", []string{"on (job, instance)"}},
		{"max by (cluster, source) (a and on (cluster, job, instance) b)", nil},
		{"a * on(cluster,job,instance) group_right () b", nil},
		{"sum without (instance) (x)", []string{"without (instance)"}},
	} {
		if diff := cmp.Diff(c.want, lostLabels(c.expr)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.expr, diff)
		}
	}
}

func TestAlertsAndDashboardsKeepClustersApart(t *testing.T) {
	grouped := 0
	for _, a := range alerts(t) {
		grouped += len(grouping.FindAllString(a.Expr, -1))
		for _, lost := range lostLabels(a.Expr) {
			t.Errorf("%s: %q merges clusters or installations", a.Alert, lost)
		}
	}
	if grouped < 30 {
		t.Errorf("only %d groupings were found in the alerts", grouped)
	}
	for _, half := range halves {
		for _, p := range panels(t, half) {
			for _, target := range p.Targets {
				for _, lost := range lostLabels(target.Expr) {
					t.Errorf("%s: %s: %q merges clusters or installations", half, p.Title, lost)
				}
				if !strings.Contains(target.Expr, `cluster=~"$cluster"`) {
					t.Errorf("%s: %s: the variable cluster chooses nothing in %s", half, p.Title, target.Expr)
				}
			}
		}
	}
}

// histogram is whose series this would be.
func histogram(series string) (name, suffix string) {
	at := strings.LastIndex(series, "_")
	return series[:at], series[at+1:]
}
