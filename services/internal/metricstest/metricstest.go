// Package metricstest holds a half's metrics to Prometheus' conventions and to their table in
// docs/metrics.md. It promises that each metric that can be registered is in the table with its
// type, labels and help, and that nothing else is; it refuses to write what a person has to:
// when to worry.
package metricstest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

// Check checks what is registered for a half, in one registry for each way to configure it.
// With update the table is written.
func Check(t *testing.T, file, half string, update bool, registries ...*prometheus.Registry) {
	t.Helper()
	metrics := map[string]*metric{}
	for _, reg := range registries {
		problems, err := testutil.GatherAndLint(reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "slicefeed_") { // the others are Go's own
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
		if err := collect(reg, metrics); err != nil {
			t.Fatal(err)
		}
	}
	prefix := "slicefeed_" + half + "_"
	for _, m := range metrics {
		if !strings.HasPrefix(m.name, prefix) {
			t.Errorf("%s does not begin with %s", m.name, prefix)
		}
		if !strings.HasSuffix(m.help, ".") {
			t.Errorf("the help of %s is no sentence: %q", m.name, m.help)
		}
	}
	if err := documented(file, half, metrics, update); err != nil {
		t.Error(err)
	}
}

// metric is what there is to know of one before anything has happened.
type metric struct {
	name, kind, help string
	labels           map[string]bool
}

// A Desc tells what it is of by its text alone.
var desc = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

var constLabel = regexp.MustCompile(`(\w+)="`)

func collect(reg *prometheus.Registry, into map[string]*metric) error {
	kinds := map[string]string{}
	families, err := reg.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(dto.MetricType_name[int32(f.GetType())])
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		reg.Describe(descs)
		close(descs)
	}()
	var all []string
	for d := range descs {
		all = append(all, d.String())
	}
	for _, text := range all {
		parts := desc.FindStringSubmatch(text)
		if parts == nil {
			return fmt.Errorf("cannot read %s", text)
		}
		name, _ := strconv.Unquote(parts[1])
		help, _ := strconv.Unquote(parts[2])
		if !strings.HasPrefix(name, "slicefeed_") {
			continue
		}
		m := into[name]
		if m == nil {
			m = &metric{name: name, help: help, labels: map[string]bool{}}
			into[name] = m
		}
		m.kind = cmp.Or(kinds[name], m.kind)
		for _, label := range constLabel.FindAllStringSubmatch(parts[3], -1) {
			m.labels[label[1]] = true
		}
		for label := range strings.SplitSeq(parts[4], ",") {
			if label = strings.Trim(label, ` "`); label != "" {
				m.labels[label] = true
			}
		}
	}
	for _, m := range into {
		m.kind = cmp.Or(m.kind, byName(m.name))
	}
	return nil
}

// byName is the type of a metric that has no series yet. lab/monitoring compares it with what
// Prometheus was told.
func byName(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_duration_seconds"):
		return "histogram"
	}
	return "gauge"
}

func (m *metric) row(worry string) string {
	labels := slices.Sorted(maps.Keys(m.labels))
	for i := range labels {
		labels[i] = "`" + labels[i] + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |", m.name, m.kind, strings.Join(labels, " "), strings.ReplaceAll(m.help, "|", `\|`), worry)
}

// documented compares the table of a half with its metrics. What stands in the last column is
// kept.
func documented(file, half string, metrics map[string]*metric, update bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- metrics:%s -->\n", half), fmt.Sprintf("<!-- /metrics:%s -->", half)
	before, rest, found := bytes.Cut(text, []byte(begin))
	there, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s: the lines %q and %q are missing", file, begin, end)
	}
	worries := map[string]string{}
	for line := range strings.Lines(string(there)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) > 1 && strings.HasPrefix(cells[0], "| `") {
			worries[strings.Trim(cells[0], "| `")] = strings.TrimSuffix(cells[len(cells)-1], " |")
		}
	}
	rows := []string{"", "| metric | type | labels | what it is | when to worry |", "|---|---|---|---|---|"}
	var silent []string
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		worry := worries[name]
		if strings.Trim(worry, "| ") == "" {
			worry, silent = "", append(silent, name)
		}
		rows = append(rows, metrics[name].row(worry))
	}
	want := []byte(strings.Join(append(rows, "", ""), "\n"))
	if update {
		err := os.WriteFile(file, bytes.Join([][]byte{before, []byte(begin), want, []byte(end), after}, nil), 0o644) //nolint:gosec // it is for everybody to read
		if err != nil {
			return err
		}
	} else if !bytes.Equal(there, want) {
		return fmt.Errorf("%s: the metrics of the %s are not as the code has them; run: make generate", file, half)
	}
	if len(silent) > 0 {
		return fmt.Errorf("%s: say when to worry about %s", file, strings.Join(silent, ", "))
	}
	return nil
}
