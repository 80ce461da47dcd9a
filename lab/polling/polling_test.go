package polling

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestMembersAreReadyNodesByTheirPrivateAddress(t *testing.T) {
	node := func(server string, ready corev1.ConditionStatus) corev1.Node {
		return corev1.Node{
			Spec:   corev1.NodeSpec{ProviderID: "ionos://" + server},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	var servers []server
	if err := json.Unmarshal([]byte(`[
		{"id":"a","entities":{"nics":{"items":[{"properties":{"lan":1,"ips":["203.0.113.1"]}},{"properties":{"lan":2,"ips":["10.0.1.1"]}}]}}},
		{"id":"b","entities":{"nics":{"items":[{"properties":{"lan":2,"ips":["10.0.9.2","10.0.1.2"]}}]}}},
		{"id":"c","entities":{"nics":{"items":[{"properties":{"lan":2,"ips":["10.0.1.3"]}}]}}},
		{"id":"d","entities":{"nics":{"items":[{"properties":{"lan":2,"ips":["10.0.1.4"]}}]}}}
	]`), &servers); err != nil {
		t.Fatal(err)
	}
	got := members(
		[]corev1.Node{node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue), node("c", corev1.ConditionFalse)},
		servers,
		"2",
		"10.0.1.",
	)
	want := []netip.Addr{netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestAnEnvFileIsReadLineByLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.env")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# ours\n\nA=1\nB=x=y \n")
	got, err := ReadEnv(file)
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "x=y"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	write("A\n")
	if _, err := ReadEnv(file); err == nil {
		t.Error("a line that sets nothing is taken")
	}
}
