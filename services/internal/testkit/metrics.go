package testkit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// CheckMetrics checks the metrics of a component, given one registry for each way to configure it, against the
// conventions of Prometheus and against their table in a Markdown file. The table lists exactly the metrics that can be
// registered, with type, labels and help. Its last column, which says when to investigate, is kept.
func CheckMetrics(t *testing.T, file, component string, registries ...*prometheus.Registry) {
	t.Helper()
	metrics := map[string]*metric{}
	for _, reg := range registries {
		problems, err := testutil.GatherAndLint(reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "slicefeed_") { // not those of the Go runtime
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
		if err := collectMetrics(reg, metrics); err != nil {
			t.Fatal(err)
		}
	}
	prefix := "slicefeed_" + component + "_"
	for _, m := range metrics {
		if !strings.HasPrefix(m.name, prefix) {
			t.Errorf("metric %s has no prefix %s", m.name, prefix)
		}
		if !strings.HasSuffix(m.help, ".") {
			t.Errorf("help of %s does not end with a period: %q", m.name, m.help)
		}
	}
	if err := checkTable(file, component, metrics); err != nil {
		t.Error(err)
	}
}

// metric is what a registry describes before the first sample.
type metric struct {
	name, help string
	labels     map[string]bool
}

// A prometheus.Desc exports its fields only through String.
var descPattern = regexp.MustCompile(
	`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`,
)

// labelPattern matches a variable label, or a constant one with its value.
var labelPattern = regexp.MustCompile(`(\w+)(?:="[^"]*")?`)

func collectMetrics(reg *prometheus.Registry, into map[string]*metric) error {
	descs := make(chan *prometheus.Desc, 1000)
	reg.Describe(descs)
	close(descs)
	for d := range descs {
		parts := descPattern.FindStringSubmatch(d.String())
		if parts == nil {
			return fmt.Errorf("parse description %s", d)
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
		for _, label := range labelPattern.FindAllStringSubmatch(parts[3]+","+parts[4], -1) {
			m.labels[label[1]] = true
		}
	}
	return nil
}

// metricType returns the type of a metric, which may have no series yet. lab/monitoring compares it with
// the type that Prometheus scrapes.
func metricType(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_duration_seconds"), strings.HasSuffix(name, "_propagation_seconds"):
		return "histogram"
	}
	return "gauge"
}

func (m *metric) tableRow(investigateWhen string) string {
	labels := slices.Sorted(maps.Keys(m.labels))
	for i := range labels {
		labels[i] = "`" + labels[i] + "`"
	}
	return fmt.Sprintf(
		"| `%s` | %s | %s | %s | %s |",
		m.name,
		metricType(m.name),
		strings.Join(labels, " "),
		strings.ReplaceAll(m.help, "|", `\|`),
		investigateWhen,
	)
}

// checkTable compares the table of a component with its metrics. It keeps the last column.
func checkTable(file, component string, metrics map[string]*metric) error {
	var incomplete []string
	err := CheckSection(file, "metrics:"+component, func(current string) string {
		byMetric := map[string]string{}
		for line := range strings.Lines(current) {
			if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) > 1 && strings.HasPrefix(cells[0], "| `") {
				byMetric[strings.Trim(cells[0], "| `")] = strings.TrimSuffix(cells[len(cells)-1], " |")
			}
		}
		rows := []string{"", "| metric | type | labels | meaning | investigate when |", "|---|---|---|---|---|"}
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			investigateWhen := byMetric[name]
			if strings.Trim(investigateWhen, "| ") == "" {
				investigateWhen, incomplete = "", append(incomplete, name)
			}
			rows = append(rows, metrics[name].tableRow(investigateWhen))
		}
		return strings.Join(append(rows, "", ""), "\n")
	})
	if err != nil {
		return err
	}
	if len(incomplete) > 0 {
		return fmt.Errorf("%s: column \"investigate when\" is empty for %s", file, strings.Join(incomplete, ", "))
	}
	return nil
}

// HistogramSums returns the sum of each histogram that has observed anything, by the values of its labels, in the order
// of their names and separated by a space. It is nil if none has.
func HistogramSums(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sums map[string]float64
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if series.GetHistogram().GetSampleCount() == 0 {
				continue
			}
			var labels []string
			for _, label := range series.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			if sums == nil {
				sums = map[string]float64{}
			}
			sums[strings.Join(labels, " ")] = series.GetHistogram().GetSampleSum()
		}
	}
	return sums
}
