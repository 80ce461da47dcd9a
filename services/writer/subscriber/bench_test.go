package subscriber

import (
	"fmt"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func wireNodes(n int) []*wireNode {
	nodes := make([]*wireNode, n)
	for i := range nodes {
		nodes[i] = node(fmt.Sprintf("standardnodes-%06d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250+1))
		nodes[i].Labels = map[string]string{"pool": "blue"}
	}
	return nodes
}

// completeSetInChunks is a set as a server sends it, in messages within the contract's limit.
func completeSetInChunks(set []*wireNode) []*message {
	var messages []*message
	for rest := set; ; {
		n := min(len(rest), contract.MaxChunk)
		m := &message{Upserts: rest[:n]}
		if rest = rest[n:]; len(rest) == 0 {
			m = synced("e", 1, set, upserts(m.GetUpserts()...))
		}
		messages = append(messages, m)
		if len(rest) == 0 {
			messages[0].Reset_ = true
			return messages
		}
	}
}

func forEachSize(b *testing.B, run func(b *testing.B, set []*wireNode)) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint("nodes=", n), func(b *testing.B) { run(b, wireNodes(n)) })
	}
}

func applyAll(b *testing.B, mirror *Mirror, messages ...*message) {
	for _, m := range messages {
		if _, err := mirror.Apply(noon, m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApplyChange applies the change of one node.
func BenchmarkApplyChange(b *testing.B) {
	forEachSize(b, func(b *testing.B, set []*wireNode) {
		mirror := NewMirror()
		mirror.BeginStream()
		applyAll(b, mirror, completeSetInChunks(set)...)
		old := set[len(set)/2]
		other := node(old.GetName(), old.GetAddresses()[0], "changed")
		to := func(n *wireNode) *message {
			set[len(set)/2] = n
			return synced("e", 2, set, upserts(n))
		}
		both := [2]*message{to(old), to(other)}
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			applyAll(b, mirror, both[i%2])
		}
	})
}

// BenchmarkApplyReset applies a reset with the complete set.
func BenchmarkApplyReset(b *testing.B) {
	forEachSize(b, func(b *testing.B, set []*wireNode) {
		mirror := NewMirror()
		mirror.BeginStream()
		messages := completeSetInChunks(set)
		b.ReportAllocs()
		for b.Loop() {
			applyAll(b, mirror, messages...)
		}
	})
}
