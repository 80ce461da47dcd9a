// Package consumers asks those that read EndpointSlices what they make of ours: their own
// code, compiled, not our idea of it.
package consumers

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

// Where kube-proxy is to send in each state: to 10.0.0.1 and so on, port 80. Where an address
// is for a moment in two slices with different conditions, kube-proxy takes either,
// unless one of them drains; whichever it takes is what was or what will be.
var meant = map[string][]string{
	"all ready":                           {"1 2"},
	"one drains":                          {"1"},
	"one is out":                          {"1"},
	"ready, draining and out":             {"1"},
	"the floor keeps one, the rest drain": {"1"},
	"all drain":                           {"1 2"},
	"one drains, one is out":              {"1"},
	"all are out":                         {""},
	"both families":                       {"1 fd00::2"},
	"an empty slice":                      {""},

	"a move: stays ready, after write 1 of 2":    {"1 2"},
	"a move: stays ready, after write 2 of 2":    {"1 2"},
	"a move: drains, after write 1 of 2":         {"1 2"}, // the one that does not drain counts
	"a move: drains, after write 2 of 2":         {"2"},
	"a move: goes out, after write 1 of 2":       {"1 2", "2"},
	"a move: goes out, after write 2 of 2":       {"2"},
	"a move: comes back, after write 1 of 2":     {"1 2", "2"},
	"a move: comes back, after write 2 of 2":     {"1 2"},
	"a move: keeps draining, after write 1 of 2": {"2"},
	"a move: keeps draining, after write 2 of 2": {"2"},
	"two slices become one, after write 1 of 2":  {"2 3 4"},
	"two slices become one, after write 2 of 2":  {"2 4"},
}

func TestKubeProxyChoosesWhatWeMeant(t *testing.T) {
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var states map[string]json.RawMessage
	if err := json.Unmarshal(output(t, nil, "go", "run", "./testdata/states"), &states); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range states {
		names = append(names, name)
	}
	slices.Sort(names)
	var list []json.RawMessage
	for _, name := range names {
		list = append(list, states[name])
	}
	asked, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var answers [][][]string
	if err := json.Unmarshal(output(t, asked, programs.ProxyChoice), &answers); err != nil {
		t.Fatal(err)
	}

	chosen := map[string][]string{}
	for i, name := range names {
		for _, choice := range answers[i] {
			short := strings.NewReplacer("10.0.0.", "", ":80", "", "[", "", "]", "").Replace(strings.Join(choice, " "))
			chosen[name] = append(chosen[name], short)
		}
	}
	if diff := cmp.Diff(meant, chosen); diff != "" {
		t.Errorf("kube-proxy chooses otherwise than meant: %s", diff)
	}
}

// output runs a program to its end, with what it is to read.
func output(t *testing.T, stdin []byte, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return out
}
