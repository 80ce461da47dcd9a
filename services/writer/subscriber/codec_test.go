package subscriber

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

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
	valid, err := proto.Marshal(completeSet("e", 1, a, b, c))
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
		{"17 ports", in(3, repeat(11, 17)), false},
	} {
		checkEqual(t, one.name, responseLimits.allow(one.b), one.want)
	}
}

func TestMessageAboveFieldLimitsIsViolation(t *testing.T) {
	runClient(t, func(h *harness) {
		older := h.nextCall()
		h.deliver(older, withHeartbeat(completeSet("e", 1, a)))
		h.deliver(older, &message{Status: sourceStatus(1), Upserts: make([]*wireNode, contract.MaxChunk+1)})
		select {
		case <-older.done:
		case <-time.After(time.Second):
			t.Error("the stream continues")
		}
		checkEqual(
			t,
			"violations",
			testutil.ToFloat64(h.metrics.violations.WithLabelValues("default", string(LimitExceeded))),
			1.0,
		)
		checkEqual(t, "members", memberLines(h.snapshot()), []string{"a 10.0.0.1"})
	})
}
