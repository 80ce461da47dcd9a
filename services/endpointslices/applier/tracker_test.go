package applier

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestTrackerPrefersWhatIsNewer(t *testing.T) {
	slice := func(name, uid, version string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
	}
	var tracker Tracker
	old := []*discoveryv1.EndpointSlice{slice("b", "1", "4"), slice("a", "2", "5")}
	for _, step := range []struct {
		name    string
		record  func()
		cached  []*discoveryv1.EndpointSlice
		version string
		want    string
	}{
		{"a first cache", func() {}, old, "5", "a@5 b@4 "},
		{"an update", func() { tracker.RecordWrite(slice("b", "1", "7")) }, old, "5", "a@5 b@7 "},
		{"a creation", func() { tracker.RecordWrite(slice("c", "3", "8")) }, old, "6", "a@5 b@7 c@8 "},
		{"a deletion, which has no version", func() { tracker.RecordDelete(slice("a", "2", "5")) }, old, "8", "b@7 c@8 "},
		{"a cache that has all", func() {}, []*discoveryv1.EndpointSlice{slice("b", "1", "7"), slice("c", "3", "9")}, "9", "b@7 c@9 "},
		{"an answer that is older than the cache", func() { tracker.RecordWrite(slice("c", "3", "8")) }, nil, "1", "b@7 c@9 "},
		{"a listing, also of a restored etcd", func() { tracker.RecordListing(old[:1], "2") }, nil, "1", "b@4 "},
	} {
		step.record()
		got := ""
		for _, s := range tracker.Observe(step.cached, step.version) {
			got += s.Name + "@" + s.ResourceVersion + " "
		}
		if got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}
