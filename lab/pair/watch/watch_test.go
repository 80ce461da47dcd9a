package watch

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// empty is a set that nothing fills but the test.
func empty() *Set[*corev1.Node] {
	return &Set[*corev1.Node]{
		objects: map[string]*corev1.Node{}, changed: make(chan struct{}), states: []state[*corev1.Node]{{at: time.Now()}},
	}
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func count(n int) func([]*corev1.Node) bool {
	return func(all []*corev1.Node) bool { return len(all) == n }
}

func TestAWaitMeasuresUntilTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := empty()
		start := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			s.put(node("a"))
			time.Sleep(time.Second)
			s.put(node("b"))
			time.Sleep(time.Second)
			s.remove(node("a"))
		}()
		for _, row := range []struct {
			want int
			took time.Duration
		}{{0, 0}, {1, 3 * time.Second}, {2, 4 * time.Second}, {1, 3 * time.Second}} {
			// Also when the event is long past, and the state with it.
			if took, err := s.Since(t.Context(), start, count(row.want)); err != nil || took != row.took {
				t.Errorf("%d nodes: %s, %v; want %s", row.want, took, err, row.took)
			}
		}
		// From the start on, not before it: the first of one node was over by then.
		if took, err := s.Since(t.Context(), start.Add(4500*time.Millisecond), count(1)); err != nil || took != 500*time.Millisecond {
			t.Errorf("the second time of one node: %s, %v", took, err)
		}
	})
}
