package subscriber

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func TestForgetsNodesRemovedBeforeSync(t *testing.T) {
	for _, reset := range []bool{true, false} {
		mirror := NewMirror()
		mirror.BeginStream()
		applyMessages(t, mirror, completeSet("e", 1, a))
		for round := range 50 {
			m := &message{Reset_: reset && round == 0, Status: sourceStatus(1)}
			if round > 0 {
				for i := range 500 {
					m.Removed = append(m.Removed, fmt.Sprintf("node-%d-%d", round-1, i))
				}
			}
			for i := range 500 {
				m.Upserts = append(m.Upserts, node(fmt.Sprintf("node-%d-%d", round, i), fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
			}
			applyMessages(t, mirror, m)
		}
		checkEqual(t, "staged names", len(mirror.staged.changed), 500)
	}
}

func TestSetAboveMemoryLimitIsViolation(t *testing.T) {
	mirror := NewMirror()
	mirror.BeginStream()
	applyMessages(t, mirror, completeSet("e", 1, a))
	full := map[string]string{}
	for i := range contract.MaxLabels {
		full[fmt.Sprintf("%d%s", i, strings.Repeat("k", 300))] = strings.Repeat("v", contract.MaxLabelValueLength)
	}
	for i := range maxNodes {
		n := node(fmt.Sprintf("node-%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250))
		n.Labels = full
		_, err := mirror.Apply(noon, &message{Reset_: i == 0, Status: sourceStatus(1), Upserts: []*wireNode{n}})
		if b := (*Violation)(nil); errors.As(err, &b) {
			checkEqual(t, "kind", b.Kind, LimitExceeded)
			if i < 500 || i > 1000 { // 256 labels are about 110 KB
				t.Errorf("accepted %d such nodes", i)
			}
			checkEqual(t, "members", memberLines(mirror.Snapshot()), []string{"a 10.0.0.1"})
			return
		}
	}
	t.Fatal("accepted any number of nodes with any number of labels")
}

func TestMemoryCostReturnsToZero(t *testing.T) {
	mirror := NewMirror()
	mirror.BeginStream()
	applyMessages(t, mirror, completeSet("e", 1, a, b))
	both := mirror.memoryCost
	applyMessages(t, mirror, synced("e", 2, []*wireNode{a}, removed("b")))
	applyMessages(t, mirror, synced("e", 3, []*wireNode{a, b}, upserts(b)))
	checkEqual(t, "memory cost", mirror.memoryCost, both)
	applyMessages(t, mirror, synced("e", 4, nil, removed("a", "b")))
	checkEqual(t, "memory cost of an empty set", mirror.memoryCost, 0)
}
