package model

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/slicefeed/slicefeed/lab/bench/report"
)

// Page is rendered from the section, below the repository's root.
const Page = "docs/scaling.md"

//go:embed scaling.md.tmpl
var words string

// Save renders the page from a report that has the section; without it the page stays.
func Save(root string, whole *report.Report) error {
	text, err := Render(whole)
	if text == "" || err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, Page), []byte(text), 0o644)
}

// Render returns the page; empty: the report does not have the section.
func Render(whole *report.Report) (string, error) {
	i := slices.IndexFunc(whole.Sections, func(s *report.Section) bool { return s.Name == Name && s.Error == "" })
	if i < 0 {
		return "", nil
	}
	in, err := readInputs(whole.Sections[i])
	if err != nil {
		return "", err
	}
	most, tested := Size{50e3, 100e3}, Size{5e3, 1e3}
	page, err := template.New("page").Funcs(template.FuncMap{
		"count": count, "figure": figure, "percent": percent, "bytes": bytes, "duration": duration, "table": markdown,
		"breaks": func(part string) string { return in.breaks(part, most.Nodes) },
		"holds":  func(limit string) string { return in.holds(limit, most.Nodes) },
	}).Parse(words)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = page.Execute(&b, map[string]any{
		"In": in, "Most": most, "Tested": tested, "Measured": whole.Sections[i].Time.UTC().Format("2006-01-02"), "Machine": whole.Machine,
		"First": in.first(), "Quantities": in.quantities(), "Limits": in.limits(), "Relays": tableOf(whole.Sections[i], relaysTitle), "Inputs": in.table(), "Assumed": assumed(),
		"Torn": 1 - untorn(most), "TornTenth": 1 - untorn(Size{Nodes: most.Nodes / 10}), "Changes": changes(most), "Quick": most.Nodes * tells / 86400,
		"Names": most.Subscribers / perName, "Decision": in.Decision(most) / 1e6, "Slices": most.Nodes / perSlice,
		"Telling": most.Subscribers * changes(most) * in.Change / 1e6 / in.CPU(most), "Arriving": most.Subscribers * in.Arrive / connectionAge / 1e6 / in.CPU(most),
	})
	return b.String(), err
}

// breaks are the limits of a part in the order in which they are met, those that nobody will meet left out.
func (in *Inputs) breaks(part string, nodes float64) string {
	type met struct {
		at   float64
		text string
	}
	var all []met
	for _, u := range uses {
		if what, ok := strings.CutPrefix(u.Limit, part+": "); ok {
			if at, of := in.threshold(u, nodes); at < 1e6 {
				all = append(all, met{at, fmt.Sprintf("%s (%s %s)", what, upTo(at), of)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b met) int { return cmp.Compare(a.at, b.at) })
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.text
	}
	return strings.Join(texts, "; then ")
}

// holds is up to where the limit holds that begins so; there has to be one.
func (in *Inputs) holds(limit string, nodes float64) string {
	n, of := in.threshold(uses[slices.IndexFunc(uses, func(u Use) bool { return strings.HasPrefix(u.Limit, limit) })], nodes)
	return upTo(n) + " " + of
}

func markdown(t report.Table) string {
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(t.Columns)
	row(slices.Repeat([]string{"---"}, len(t.Columns)))
	for _, cells := range t.Rows {
		row(cells)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// assumed is what could not be measured here, and who says so.
func assumed() report.Table {
	return report.Table{Columns: []string{"assumption", "figure", "by whom"}, Rows: [][]string{
		{"a machine for an inventory or a writer", fmt.Sprintf("%.0f cores, %s, %.0f Gbit/s; at rest half of the cores may be busy", cores, bytes(memory), wire/1e9), "ours; all limits of CPU, memory and egress scale with it"},
		{"a node lives", duration(lives), "ours: a pool is replaced weekly"},
		{"a replacement changes the set", figure(tells) + " times", "the new node comes and is Ready, the old one drains, is not Ready and goes; one more for a hiccup"},
		{"nodes of one cluster", count(testedNodes), "[Kubernetes](https://kubernetes.io/docs/setup/best-practices/cluster-large/)"},
		{"a Node object", bytes(nodeObject), "[KEP-589](https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/589-efficient-node-heartbeats), of clusters with many images"},
		{"a kubelet reports a Node that has not changed every", duration(nodeStatus), "[Kubernetes](https://kubernetes.io/docs/reference/node/node-status/#heartbeats)"},
		{"endpoints of a slice", figure(perSlice), "[Kubernetes' default](https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/), and ours"},
		{"the cloud answers for 1,000 servers with their NICs in", duration(pageTakes), "a guess: IONOS publishes neither a time nor a rate limit. Twice the time tears twice as often"},
		{"the cloud answers for a LAN in", duration(lanTakes), "a guess"},
		{"addresses that a private LAN hands out", figure(lanHolds), "seen: a /24, from .10 on"},
		{"an API server takes updates of slices of 100", figure(sliceWrites) + " a second", "measured once, on 2 cores with its etcd"},
		{"consuming nodes with a kube-proxy", count(proxies), "ours. In mode nftables an update costs kube-proxy what has changed, in mode iptables more ([Kubernetes](https://kubernetes.io/blog/2025/02/28/nftables-kube-proxy/)); that was not measured"},
		{"subscribers come back after a restart within", duration(back), "the longest delay of rule R14"},
		{"a message is on its way for", short(hop), "ours: one region"},
	}}
}
