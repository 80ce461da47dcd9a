package roster

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

var update = flag.Bool("update", false, "write the golden files")

// text is an explanation as the golden files have it.
func (e Explanation) text() string {
	var b strings.Builder
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "%-11s  %-4s  %s %s\n", s.Stage, []string{"note", "ok", "NO", "-"}[s.Result], s.Question, s.Detail)
	}
	return b.String() + "=> " + e.Conclusion + "\n"
}

// trail is one that a source of Nodes leaves.
var trail = []source.Step{
	{Stage: source.StageEligibility, Question: "Is it a worker?", Result: source.Passed, Detail: "no control plane label"},
	{Stage: source.StageState, Question: "Is its kubelet ready?", Result: source.Passed, Detail: "condition Ready is True"},
}

func TestExplainsTheWholeChain(t *testing.T) {
	a := func(change func(*source.Candidate)) source.Candidate {
		c := node("a", s1)
		c.Steps = trail
		if change != nil {
			change(&c)
		}
		return c
	}
	onlyName := func(c *source.Candidate) { c.ProviderID = "" }
	internal := func(ips ...string) func(*source.Candidate) {
		return func(c *source.Candidate) { c.InternalIPs = addrs(ips...) }
	}
	const le, be = "aabbccdd-eeff-4011-8222-333344445555", "ddccbbaa-ffee-1140-8222-333344445555"

	for _, tt := range []struct {
		name string
		cfg  Config
		node source.Candidate
		l    source.Listing
		then func(*world)
	}{
		{name: "the usual", node: a(nil), l: listing(server(s1, "a", "10.0.0.11", "192.0.2.1", "fd00::11"))},
		{name: "a source without a trail", node: node("a", s1), l: listing(server(s1, "a", "10.0.0.11"))},
		{name: "control plane", node: a(func(c *source.Candidate) {
			c.Excluded, c.Advice = source.ControlPlane, "It is a control plane node: nothing to do."
			c.Steps = []source.Step{{Stage: source.StageEligibility, Question: "Is it a worker?", Result: source.Failed, Detail: "node-role.kubernetes.io/control-plane"}}
		})},
		{name: "excluded without a trail", node: source.Candidate{
			Name: "a", UID: "1", State: source.Ready, Excluded: source.NotSelected, Advice: "The selector pool=blue does not match.",
		}},
		{name: "by system UUID in the other byte order", node: a(func(c *source.Candidate) { c.ProviderID, c.SystemUUID = "", be }), l: listing(server(le, "x", "10.0.0.11"))},
		{name: "by its name", node: a(onlyName), l: listing(server(s1, "a", "10.0.0.11"))},
		{name: "another cloud", node: a(func(c *source.Candidate) { c.ProviderID = "aws:///eu/i-1" }), l: listing(server(s2, "b"))},
		{name: "not in the cloud", node: a(nil), l: listing(server(s2, "b", "10.0.0.12"))},
		{name: "the identities contradict each other", node: a(func(c *source.Candidate) { c.SystemUUID = s2 }), l: listing(server(s1, "a", "10.0.0.11"), server(s2, "b"))},
		{name: "two servers of its name", node: a(onlyName), l: listing(server(s1, "a"), server(s2, "a"))},
		{name: "another datacenter", node: a(func(c *source.Candidate) { c.ProviderID = "ionos:///" + s3 + "/" + s1 }), l: listing(server(s1, "a"))},
		{name: "data that cannot be used", node: a(nil), l: source.Listing{Invalid: map[string]string{s1: "a NIC without an ID"}}},
		{name: "no address on the LAN", node: a(nil), l: listing(server(s1, "a"))},
		{name: "outside of the subnet", node: a(nil), l: listing(server(s1, "a", "192.0.2.1"))},
		{name: "failover and shared addresses", node: a(nil), l: source.Listing{
			Servers: []source.Server{server(s1, "a", "10.0.0.11", "10.0.0.99"), server(s2, "b", "10.0.0.11")}, Failover: addrs("10.0.0.99"),
		}},
		{name: "several addresses", node: a(internal("192.0.2.7")), l: listing(server(s1, "a", "10.0.0.11", "10.0.0.12"))},
		{name: "a tie that the InternalIP breaks", node: a(internal("10.0.0.12")), l: listing(server(s1, "a", "10.0.0.11", "10.0.0.12"))},
		{name: "the cloud does not answer", node: a(nil), then: func(w *world) {
			w.verified(w.now, w.now, source.FullVerification, w.rv, nil)
			w.listed(w.now, w.now, source.Listing{}, errors.New("503 Service Unavailable"), 0)
		}},
		{name: "newer than the listing", node: a(func(c *source.Candidate) { c.Name, c.ProviderID = "z", "" }), then: func(w *world) {
			w.remove(w.now, "z")
			w.observed(listing(server(s1, "z", "10.0.0.11")))
			w.pass(2 * time.Second)
			w.up(a(func(c *source.Candidate) { c.Name, c.ProviderID = "z", "" }))
		}},
		{name: "kept while the cloud gives nothing", node: a(nil), l: listing(server(s1, "a", "10.0.0.11")), then: func(w *world) {
			w.list(listing(server(s2, "b")))
		}},
		{name: "inherited", node: a(nil), l: listing(server(s2, "old", "10.0.0.11")), then: inherit},
		{name: "bequeathed", node: node("old", s2), l: listing(server(s2, "old", "10.0.0.11")), then: inherit},
		{name: "waits", node: a(nil), l: listing(server(s1, "x", "10.0.0.11")), then: func(w *world) {
			w.remove(w.now, "a")
			w.up(node("first", s1))
			w.up(a(nil))
		}},
		{name: "waited for", node: a(nil), l: listing(server(s1, "x", "10.0.0.11")), then: func(w *world) { w.up(node("second", s1)) }},
		{name: "a bad record of a known node", node: a(nil), l: listing(server(s1, "a", "10.0.0.11")), then: func(w *world) {
			w.up(source.Candidate{Name: "a", Invalid: "The record has no private_ip."})
		}},
		{name: "an invalid record of a new node", node: source.Candidate{Name: "a", Invalid: "The record has no private_ip."}, cfg: Config{Method: resolve.ByRecord}},
		{name: "by the address of the node", cfg: Config{Method: resolve.ByNodeAddress}, node: a(internal("10.0.0.11", "192.0.2.7"))},
		{name: "several addresses of the node", cfg: Config{Method: resolve.ByNodeAddress}, node: a(internal("10.0.0.11", "10.0.0.12"))},
		{name: "by the record", cfg: Config{Method: resolve.ByRecord}, node: a(internal("192.0.2.7"))},
		{name: "unknown", node: node("b", s1), l: listing(server(s1, "b", "10.0.0.11"))},
		{name: "unknown before the first look", node: node("b", s1), then: func(w *world) { w.verified(w.now, w.now, source.FullVerification, 0, errors.New("nodes is forbidden")) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.cfg)
			w.up(tt.node)
			if strings.HasPrefix(tt.name, "the cloud does not") || strings.HasSuffix(tt.name, "first look") {
				tt.then(w)
			} else {
				for range 10 { // without addresses no word is ever given
					w.serve(tt.l, 1)
				}
				if tt.then != nil {
					tt.then(w)
				}
			}
			name := tt.node.Name
			if strings.HasPrefix(tt.name, "unknown") {
				name = "a"
			}
			e, known := w.Explain(name)
			if known == strings.HasPrefix(tt.name, "unknown") {
				t.Errorf("known: %t", known)
			}
			golden(t, tt.name, e.text())
		})
	}
}

// inherit lets a replacing node take over the address of one that lingers.
func inherit(w *world) {
	w.up(node("a", s1), node("old", s2))
	w.list(listing(server(s1, "a", "10.0.0.11")))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "explain", strings.ReplaceAll(name, " ", "-")+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", file, d)
	}
}

func TestAnExplanationFitsWhatWasDecided(t *testing.T) {
	order := []string{source.StageSource, source.StageEligibility, source.StageState, source.StageMatch, source.StageAddress, source.StageClaim}
	for _, resolver := range []resolve.Method{resolve.ByCloud, resolve.ByNodeAddress, resolve.ByRecord} {
		rapid.Check(t, func(t *rapid.T) {
			cfg := Config{Method: resolver, CIDRs: cidr}
			r, twin, now := New(cfg), New(cfg), t0
			for range rapid.IntRange(1, 25).Draw(t, "steps") {
				now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "pass")) * time.Second)
				s := events().Draw(t, "step")
				s(r, now)
				s(twin, now)
			}
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				e, known := r.Explain(name)
				again, _ := twin.Explain(name)
				if d := cmp.Diff(e, again); d != "" {
					t.Fatalf("same inputs, other words:\n%s", d)
				}
				m := r.members[name]
				if known != (m != nil) || e.Conclusion == "" || len(e.Steps) == 0 {
					t.Fatalf("%s: known %t, member %v, %q", name, known, m, e.text())
				}
				if !slices.IsSortedFunc(e.Steps, func(a, b source.Step) int { return slices.Index(order, a.Stage) - slices.Index(order, b.Stage) }) {
					t.Fatalf("stages are out of order:\n%s", e.text())
				}
				if known {
					fits(t, r, m, e)
				}
			}
		})
	}
}

// fits compares what is said with what was decided.
func fits(t *rapid.T, r *Roster, m *member, e Explanation) {
	passed := func(stage string, a netip.Addr) bool {
		return slices.ContainsFunc(e.Steps, func(s source.Step) bool {
			return s.Stage == stage && strings.Contains(s.Question, " "+a.String()) && s.Result == source.Passed
		})
	}
	failed := map[string]bool{}
	for _, s := range e.Steps {
		failed[s.Stage] = failed[s.Stage] || s.Result == source.Failed
		if s.Detail == "" || s.Question == "" {
			t.Fatalf("a step says nothing: %+v", s)
		}
	}
	if m.Excluded == 0 {
		assigned, _, _ := r.assigner.Holding(m.Name)
		for _, a := range assigned.List() {
			if !passed(source.StageClaim, a) {
				t.Fatalf("%s is borne, and no claim says so:\n%s", a, e.text())
			}
		}
		for _, a := range m.resolved.Addresses.List() {
			if !passed(source.StageAddress, a) {
				t.Fatalf("%s is wanted, and no step chose it:\n%s", a, e.text())
			}
		}
	}
	if e.Omitted != m.omission.Reason {
		t.Fatalf("explained as left out for %q, and is for %q", e.Omitted, m.omission.Reason)
	}
	stage := ""
	switch m.omission.Reason {
	case 0:
	case source.ControlPlane, source.ExcludedByLabel, source.NotSelected:
		stage = source.StageEligibility
	case source.NotFoundInIONOS, source.AmbiguousServer, source.NotResolvedYet, source.InvalidRecord:
		stage = source.StageMatch
	case source.NoAddressOnLAN, source.AmbiguousAddress, source.OutsideSubnet:
		stage = source.StageAddress
	case source.SharedAddress:
		if !failed[source.StageClaim] {
			stage = source.StageAddress
		}
	}
	if stage != "" && !failed[stage] {
		t.Fatalf("left out for %s, and no step of %s failed:\n%s", m.omission.Reason, stage, e.text())
	}
	if m.omission.Reason != 0 && !strings.Contains(e.Conclusion, m.omission.Advice) {
		t.Fatalf("the verdict %q lacks the advice %q", e.Conclusion, m.omission.Advice)
	}
}
