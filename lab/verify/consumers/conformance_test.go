// Package consumers passes the slices of the planner to the code of those that read EndpointSlices.
package consumers

import (
	"bytes"
	"encoding/json"
	"maps"
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
	chosen := choices(t)
	maps.DeleteFunc(chosen, func(name string, _ []string) bool { return strings.HasPrefix(name, handOver) })
	if diff := cmp.Diff(meant, chosen); diff != "" {
		t.Errorf("kube-proxy chooses otherwise than meant: %s", diff)
	}
}

// handOver begins the name of a state with slices of two classes: what each lists of two addresses follows,
// a letter an address.
const handOver = "classes "

func TestKubeProxySendsToReadyEndpointsOfEitherClassDuringAHandOver(t *testing.T) {
	chosen := choices(t)
	for name, want := range map[string][]string{
		"RR RR": {"1 2"},      // ready in both: once
		"R- -R": {"1 2"},      // the union
		"RR --": {"1 2"},      // the new class lists nothing yet
		"RR D-": {"1 2"},      // ready in the old one, draining in the new one: ready wins
		"D- RR": {"1 2"},      // and the other way round
		"RR OR": {"1 2", "2"}, // ready in one, out in the other: either
		"RO OR": {"1", "2"},   // they contradict each other: one of them, as a whole
		"R- O-": {"", "1"},    // the new class lists nothing but what is out: the one that may reject
	} {
		if diff := cmp.Diff(want, chosen[handOver+name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	united, both := 0, 0
	for name, choices := range chosen {
		listed, ok := strings.CutPrefix(name, handOver)
		old, next, _ := strings.Cut(listed, " ")
		if !ok || !strings.Contains(old, "R") {
			continue
		}
		ready := readyInEither(old, next)
		if !strings.Contains(listed, "O") {
			united++
			if !slices.Equal(choices, []string{ready}) {
				t.Errorf("%s: sends to %q, want all that is ready in either class: %q", name, choices, ready)
			}
		}
		if strings.Contains(next, "R") {
			both++
			for _, choice := range choices {
				if choice == "" || !strings.Contains(ready, choice) {
					t.Errorf("%s: sends to %q, want some of what is ready in either class: %q", name, choice, ready)
				}
			}
		}
	}
	if united == 0 || both == 0 {
		t.Errorf("%d states in which nothing is out and %d in which both classes list a ready endpoint", united, both)
	}
}

// readyInEither is which addresses a hand-over lists as ready in either class.
func readyInEither(old, next string) string {
	var ready []string
	for i, number := range []string{"1", "2"} {
		if old[i] == 'R' || next[i] == 'R' {
			ready = append(ready, number)
		}
	}
	return strings.Join(ready, " ")
}

// choices is where kube-proxy sends in each state: every choice that it made in many runs, since it
// goes through slices in the order of a map.
func choices(t *testing.T) map[string][]string {
	t.Helper()
	programs, err := controlplane.BuildPrograms(t.Context(), os.Stderr, "proxychoice")
	if err != nil {
		t.Fatal(err)
	}
	var states map[string]json.RawMessage
	if err := json.Unmarshal(output(t, nil, "go", "run", "./testdata/states"), &states); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(states))
	var list []json.RawMessage
	for _, name := range names {
		list = append(list, states[name])
	}
	asked, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var answers [][][]string
	if err := json.Unmarshal(output(t, asked, programs[0]), &answers); err != nil {
		t.Fatal(err)
	}
	chosen := map[string][]string{}
	for i, name := range names {
		for _, choice := range answers[i] {
			short := strings.NewReplacer("10.0.0.", "", ":80", "", "[", "", "]", "").Replace(strings.Join(choice, " "))
			chosen[name] = append(chosen[name], short)
		}
	}
	return chosen
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
