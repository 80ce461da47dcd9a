package rest

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// heartbeat is how often a kubelet reports its Node's status where nothing has changed.
const heartbeat = 5 * time.Minute

// sendHeartbeats has every kubelet report, evenly spread, until ctx ends.
func sendHeartbeats(ctx context.Context, nodes []*pair.Node) error {
	tick := time.NewTicker(heartbeat / time.Duration(len(nodes)))
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(nodes) {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := nodes[i].Heartbeat(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// decoding is what part of a core it takes to decode the heartbeats of so many Nodes, measured in this process, and the
// size of a Node in bytes.
func decoding(ctx context.Context, p *pair.Pair, nodes []*pair.Node) (share float64, size int, err error) {
	one, err := p.SecuredClient().CoreV1().Nodes().Get(ctx, nodes[0].Name, metav1.GetOptions{})
	if err != nil {
		return 0, 0, err
	}
	raw, err := one.Marshal()
	if err != nil {
		return 0, 0, err
	}
	before, err := figures.UsageOf(os.Getpid())
	if err != nil {
		return 0, 0, err
	}
	const often = 20_000
	for range often {
		if err := new(corev1.Node).Unmarshal(raw); err != nil {
			return 0, 0, err
		}
	}
	after, err := figures.UsageOf(os.Getpid())
	return (after.CPU - before.CPU).Seconds() / often * float64(len(nodes)) / heartbeat.Seconds(), len(raw), err
}
