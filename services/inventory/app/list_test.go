package app

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/inventory/records"
)

func TestListPrintsWhatASourceOfKindCommandReads(t *testing.T) {
	apis := fakeAPIs{
		nodes:   []corev1.Node{workerNode("one", server1), workerNode("two", server2)},
		servers: []string{serverJSON(server1, "one", "10.0.1.11"), serverJSON(server2, "two", "192.168.7.2")},
	}
	code, out, errs := runCommand(t, apis.start(t, nil), "list", "-o", "json")
	want := `[{"name":"one","private_ip":"10.0.1.11","ready":true,"worker":true}]`
	if compact := strings.Join(strings.Fields(out), ""); code != 0 || compact != want {
		t.Errorf("exit code %d, %s, want %s\n%s", code, compact, want, errs)
	}
	if err := records.Check(out); err != nil {
		t.Errorf("its output cannot be read as records: %v", err)
	}
	code, out, _ = runCommand(t, apis.start(t, nil), "list")
	if code != 0 || out != "NAME  ADDRESS    READY\none   10.0.1.11  true\n" {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
