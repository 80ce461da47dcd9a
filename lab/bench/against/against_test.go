package against

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func line(user, verb, resource string) string {
	return fmt.Sprintf(`{"verb":%q,"user":{"username":%q},"objectRef":{"resource":%q}}`+"\n", verb, user, resource)
}

func TestRequestsAreCountedByUserAsTheLogsGrow(t *testing.T) {
	secured, consuming := filepath.Join(t.TempDir(), auditLog), filepath.Join(t.TempDir(), auditLog)
	write := func(path, text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := &requests{logs: []string{secured, consuming}, read: map[string]int64{}, all: map[string]asked{}}
	expect := func(want asked) {
		t.Helper()
		got, err := r.of([]string{"reader", "writer"})
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	expect(asked{}) // no server has made its log yet
	write(secured, line("reader", "list", "nodes")+line("someone", "list", "nodes"))
	write(consuming, line("writer", "get", "endpointslices")+line("writer", "update", "leases"))
	expect(asked{requests: 3})
	half := line("writer", "update", "endpointslices")
	write(consuming, line("writer", "patch", "endpointslices")+half[:20])
	expect(asked{requests: 4, slices: 1})
	write(consuming, half[20:])
	expect(asked{requests: 5, slices: 2})
}

func TestLeavingOutIsAsRightAsListingAsUnready(t *testing.T) {
	slice := func(ready ...*bool) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{}
		for i, r := range ready {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: r},
			})
		}
		return s
	}
	for name, tt := range map[string]struct {
		slice *discoveryv1.EndpointSlice
		want  bool
	}{
		"ready":          {slice(new(true), new(false)), true},
		"unready":        {slice(new(false), new(true)), false},
		"not said":       {slice(nil), false},
		"left out":       {slice(), false},
		"another is not": {slice(new(true)), true},
	} {
		if got := serves(tt.slice, "10.0.0.1"); got != tt.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestWhatWasMeasuredIsScaledToAThousandChanges(t *testing.T) {
	c := &contender{name: "it", taken: taken{
		times: []time.Duration{time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond},
		asked: asked{requests: 9, slices: 4}, cloud: 1, cpu: 30 * time.Millisecond, resident: 52_400_000,
	}}
	want := []string{"it", "4", "2.0 ms", "4.0 ms", "2250", "1000", "250", "7.50", "52 MB"}
	if diff := cmp.Diff(want, c.row()); diff != "" {
		t.Error(diff)
	}
}
