package kube

import (
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func newWorker(name string, edit ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-1", ResourceVersion: "1", Labels: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, e := range edit {
		e(n)
	}
	return n
}

func withLabel(k, v string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[k] = v }
}

func withTaint(key string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key}) }
}

func notReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }
func deleting(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func TestEvaluateNode(t *testing.T) {
	blue, err := labels.Parse("pool=blue")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		edit   []func(*corev1.Node)
		rules  Rules
		state  roster.NodeState
		reason roster.OmissionReason
	}{
		{"a ready worker", nil, Rules{}, roster.Ready, 0},
		{"a worker that is not ready", []func(*corev1.Node){notReady}, Rules{}, roster.NotReady, 0},
		{"a worker without conditions", []func(*corev1.Node){func(n *corev1.Node) { n.Status.Conditions = nil }}, Rules{}, roster.NotReady, 0},
		{"a control plane node", []func(*corev1.Node){withLabel(labelControlPlane, "")}, Rules{}, roster.Ready, roster.ControlPlane},
		{"a node with the old master label", []func(*corev1.Node){withLabel(labelMaster, "false")}, Rules{}, roster.Ready, roster.ControlPlane},
		{"excluded from load balancers", []func(*corev1.Node){withLabel(labelExclude, "")}, Rules{}, roster.Ready, roster.ExcludedByLabel},
		{"excluded by a value that is true", []func(*corev1.Node){withLabel(labelExclude, "1")}, Rules{}, roster.Ready, roster.ExcludedByLabel},
		{"excluded by a value that is no boolean", []func(*corev1.Node){withLabel(labelExclude, "no")}, Rules{}, roster.Ready, roster.ExcludedByLabel},
		{"not excluded by the value false", []func(*corev1.Node){withLabel(labelExclude, "false")}, Rules{}, roster.Ready, 0},
		{"not excluded by the value False", []func(*corev1.Node){withLabel(labelExclude, "False")}, Rules{}, roster.Ready, 0},
		{"not excluded by the value 0", []func(*corev1.Node){withLabel(labelExclude, "0")}, Rules{}, roster.Ready, 0},
		{"selected", []func(*corev1.Node){withLabel("pool", "blue")}, Rules{Selector: blue}, roster.Ready, 0},
		{"not selected", []func(*corev1.Node){withLabel("pool", "red")}, Rules{Selector: blue}, roster.Ready, roster.NotSelected},
		{"being deleted", []func(*corev1.Node){deleting}, Rules{}, roster.Draining, 0},
		{"being deleted and not ready", []func(*corev1.Node){deleting, notReady}, Rules{}, roster.Draining, 0},
		{"to be deleted by the autoscaler", []func(*corev1.Node){withTaint(taintAutoscaler)}, Rules{}, roster.Draining, 0},
		{"shut down", []func(*corev1.Node){withTaint(taintShutdown)}, Rules{}, roster.NotReady, 0},
		{"shut down and being deleted", []func(*corev1.Node){withTaint(taintShutdown), deleting}, Rules{}, roster.NotReady, 0},
		{"cordoned, without effect", []func(*corev1.Node){cordoned, withTaint("node.kubernetes.io/unschedulable")}, Rules{}, roster.Ready, 0},
		{"cordoned, drained", []func(*corev1.Node){cordoned}, Rules{DrainCordoned: true}, roster.Draining, 0},
		{"cordoned and not ready", []func(*corev1.Node){cordoned, notReady}, Rules{}, roster.NotReady, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := EvaluateNode(newWorker("w", tc.edit...), tc.rules)
			if c.State != tc.state || c.Excluded != tc.reason || (c.ExcludedBy == "") != (tc.reason == 0) {
				t.Errorf("got %s, %q, %q; want %s, %q", c.State, c.Excluded, c.ExcludedBy, tc.state, tc.reason)
			}
		})
	}
}

func testMalformedNode(t *testing.T) {
	n := newWorker(
		"w",
		withLabel("ok", "yes"),
		withLabel("long", strings.Repeat("x", 64)),
		withLabel(strings.Repeat("k", 400), ""),
		withLabel(
			"bytes",
			"\xff",
		),
		withLabel(corev1.LabelTopologyZone, strings.Repeat("z", 1<<20)),
		withLabel(corev1.LabelTopologyRegion, "de"),
	)
	n.Spec.ProviderID = "ionos://" + strings.Repeat("p", 5000)
	n.Status.NodeInfo.SystemUUID = "\xfe"
	for _, a := range []string{"10.0.0.300", "", "10.0.0.11", "::ffff:10.0.0.11", "fd00::1%eth0", "node.example"} {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"})
	got := EvaluateNode(n, Rules{})
	want := roster.Node{
		Name:        "w",
		UID:         "uid-1",
		State:       roster.Ready,
		StateReason: "its kubelet is ready",
		Region:      "de",
		ProviderID:  n.Spec.ProviderID[:maxIdentifier],
		InternalIPs: []netip.Addr{netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("fd00::1")},
		Labels:      map[string]string{"ok": "yes", corev1.LabelTopologyRegion: "de"},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	empty := EvaluateNode(&corev1.Node{}, Rules{})
	if d := cmp.Diff(
		empty,
		roster.Node{State: roster.NotReady, StateReason: "its kubelet is not ready", Labels: map[string]string{}},
	); d != "" {
		t.Error(d)
	}
}

func TestNamesWhatDecidesTheState(t *testing.T) {
	web := Rules{Workload: &Workload{}}
	for _, tt := range []struct {
		node  *corev1.Node
		rules Rules
		pods  podCounts
		want  string
	}{
		{newWorker("w"), Rules{}, podCounts{}, "its kubelet is ready"},
		{newWorker("w", notReady), Rules{}, podCounts{}, "its kubelet is not ready"},
		{newWorker("w", cordoned), Rules{}, podCounts{}, "its kubelet is ready; it is cordoned, without effect because CORDONED is keep"},
		{newWorker("w", cordoned, notReady), Rules{DrainCordoned: true}, podCounts{}, "it is cordoned, and CORDONED is drain"},
		{newWorker("w", withTaint(taintAutoscaler)), Rules{}, podCounts{}, "the autoscaler is about to delete its machine (taint " + taintAutoscaler + ")"},
		{newWorker("w", withTaint(taintShutdown), deleting), Rules{}, podCounts{}, "its machine is shut down (taint " + taintShutdown + ")"},
		{newWorker("w", deleting, notReady), Rules{}, podCounts{}, "the Node is being deleted"},
		{newWorker("w"), web, podCounts{}, "its kubelet is ready; Pods of WORKLOAD: none running"},
		{newWorker("w", withTaint(taintAutoscaler)), web, podCounts{all: 2, ready: 1}, "its kubelet is ready; the autoscaler is about to delete its machine (taint " + taintAutoscaler + "); Pods of WORKLOAD: 2 running, 1 ready"},
		{newWorker("w", withTaint(taintAutoscaler)), web, podCounts{}, "its kubelet is ready; the autoscaler is about to delete its machine (taint " + taintAutoscaler + "); Pods of WORKLOAD: none running"},
	} {
		if got := summarizeNode(tt.node, tt.rules).evaluate(tt.rules, tt.pods).StateReason; got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func FuzzEvaluateNode(f *testing.F) {
	f.Add("worker", "ionos://x", "uuid", "10.0.0.11", labelExclude, "false", taintAutoscaler)
	f.Add("", strings.Repeat("p", 2000), "\xff", "fd00::1%eth0", labelControlPlane, "", taintShutdown)
	f.Add("w", "", "", "::ffff:10.0.0.1", corev1.LabelTopologyZone, strings.Repeat("z", 100), "")
	f.Fuzz(func(t *testing.T, name, provider, uuid, address, key, value, tainting string) {
		n := newWorker(name, withLabel(key, value), withTaint(tainting))
		n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID = provider, uuid
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		c := EvaluateNode(n, Rules{})
		if len(c.ProviderID) > maxIdentifier || len(c.SystemUUID) > maxIdentifier || len(c.Zone) > contract.MaxLabelValueLength ||
			len(c.Region) > contract.MaxLabelValueLength {
			t.Errorf("out of bounds: %+v", c)
		}
		for k, v := range c.Labels {
			if len(k) > contract.MaxLabelKeyLength || len(v) > contract.MaxLabelValueLength || !utf8.ValidString(k+v) {
				t.Errorf("label %q=%q", k, v)
			}
		}
		for _, ip := range c.InternalIPs {
			if ip != netip.MustParseAddr(ip.String()) || ip.Is4In6() || ip.Zone() != "" {
				t.Errorf("address %s", ip)
			}
		}
		if (c.Excluded == 0) != (c.ExcludedBy == "") || c.State == 0 || c.StateReason == "" {
			t.Errorf("incomplete: %+v", c)
		}
	})
}
