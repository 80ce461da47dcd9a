package subscriber

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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
			checkEqual(t, "members", memberLines(mirror), []string{"a 10.0.0.1"})
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

func TestCountsFieldsBeforeDecoding(t *testing.T) {
	repeat := func(number protowire.Number, n int) []byte {
		var b []byte
		for range n {
			b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), nil)
		}
		return b
	}
	in := func(number protowire.Number, inner []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
	}
	valid, err := proto.Marshal(completeSet("e", 1, a, b, dualStack))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"valid message", valid, true},
		{"empty message", nil, true},
		{"malformed message, which decoding rejects", []byte{0xff, 0xff}, true},
		{"unknown fields", repeat(99, 5000), true},
		{"500 upserts", repeat(3, 500), true},
		{"501 upserts", repeat(3, 501), false},
		{"501 removed names", repeat(4, 501), false},
		{"two addresses", in(3, repeat(3, 2)), true},
		{"three addresses", in(3, repeat(3, 3)), false},
		{"257 labels", in(3, repeat(8, 257)), false},
		{"17 ports", in(6, repeat(5, 17)), false},
	} {
		checkEqual(t, one.name, responseLimits.allow(one.b), one.want)
	}
}

func TestMessageAboveFieldLimitsIsViolation(t *testing.T) {
	runSubscriber(t, func(h *harness) {
		older := h.nextCall()
		h.deliver(older, withHeartbeat(completeSet("e", 1, a)))
		h.deliver(older, &message{Status: sourceStatus(1), Upserts: make([]*wireNode, contract.MaxChunk+1)})
		select {
		case <-older.done:
		case <-time.After(time.Second):
			t.Error("the stream continues")
		}
		checkEqual(t, "violations", testutil.ToFloat64(h.metrics.violations.WithLabelValues("default", string(LimitExceeded))), 1.0)
		checkEqual(t, "members", memberLines(h.mirror), []string{"a 10.0.0.1"})
	})
}
