package sim

import (
	"bytes"
	"testing"
	"time"
)

// Two machines at one address that no fault shares would be a mistake of the world: no inventory can tell
// either (feed.md#what-never-happens), and nothing would ever come right. A world of a long soak had them.
func TestAnAddressIsInheritedOnce(t *testing.T) {
	for name, twice := range map[string]Fault{
		"a Node is replaced that lingers": {Kind: NodeReplaced, N: 1},
		"a Node swaps that lingers":       {Kind: AddressesSwap},
	} {
		t.Run(name, func(t *testing.T) {
			twice.At = 10 * time.Second
			script := Script{
				Seed: 1, Quiet: time.Minute, Trouble: 40 * time.Second, Settle: time.Minute,
				Setup: Setup{
					Sources: 1, Replicas: 1, Nodes: 2, Writers: 1, ByCloud: true, Probing: true, ProbeInterval: 2 * time.Second,
					ShrinkWindow: 20 * time.Second, EmptyThreshold: 3, MaxStaleness: 15 * time.Minute, ListOut: true,
				},
				Faults: []Fault{
					{For: 30 * time.Second, Kind: EtcdFrozen},
					{At: 5 * time.Second, Kind: NodeReplaced, N: 1},
					twice,
				},
			}
			var story bytes.Buffer
			if r := Play(t, script, &story); len(r.Violations) > 0 {
				t.Errorf("%v\n%s", r.Violations, story.String())
			}
		})
	}
}
