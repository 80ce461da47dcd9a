package sim

import (
	"math/rand/v2"
	"time"
)

// meet has a rule of the verdict be provoked while a fault of a kind is in force: chance alone
// would leave too many pairs out. Each seed has its own pair.
func (s *Script) meet(r *rand.Rand) {
	n := int(s.Seed % uint64(len(Kinds)*len(Rules)))
	kind, rule := Kinds[n%len(Kinds)], Rules[n/len(Kinds)]
	at := time.Duration(r.Int64N(int64(s.Trouble - 80*time.Second))).Truncate(time.Second)
	put := func(after time.Duration, lasts time.Duration, kind Kind, on, n int) {
		if !kind.lasts() {
			lasts = 0
		}
		s.Faults = append(s.Faults, Fault{At: at + after, For: lasts, Kind: kind, On: on, N: n})
	}
	const long = 45 * time.Second
	begins := time.Duration(0)
	if rule == "expiry" { // a source expires late, and by then no writer might lead any more
		begins = 50 * time.Second
	}
	put(begins, 70*time.Second-begins, kind, r.IntN(64), r.IntN(64))
	if !kind.lasts() {
		put(begins+12*time.Second, 0, kind, r.IntN(64), r.IntN(64))
	}
	for on := range 4 { // whatever it counts, all of it
		switch rule {
		case "allowlist":
			if on == 0 {
				put(time.Second, long, InventoryLies, on, 3)
			}
		case "initial-sync":
			put(time.Second, long, InventoryKilled, on, 0)
			put(2*time.Second, 2*time.Second, WriterKilled, on, 0)
		case "panic":
			s.Setup.Probing = true
			put(time.Second, long, AllDead, on, 0)
		case "empty":
			if on < s.Setup.Sources {
				put(time.Second, long, AllNodesDeleted, on, 1)
			}
		case "trust":
			put(time.Second, long, LinkCut, on, 0)
		case "expiry":
			s.Setup.Sources, s.Setup.ExpireAfter = 2, 30*time.Second
			if on%2 == 0 { // the links of one source
				put(time.Second, 66*time.Second, LinkCut, on, 0)
				put(time.Second, 66*time.Second, LinkCut, on+4, 0)
			}
		case "failover":
			s.Setup.Sources, s.Setup.Failover = 2, true
			if on == 0 {
				put(time.Second, long, AllDrained, on, 0)
			}
		case "table":
			put(time.Duration(1+10*on)*time.Second, 8*time.Second, BackendDead, on, 0)
			put(time.Duration(1+10*on)*time.Second, 0, NodeAdded, on, 0)
		case "floor":
			put(time.Second, long, AllDrained, on, 0)
		case "shrink":
			s.Setup.ShrinkWindow, s.Setup.Nodes = time.Minute, max(s.Setup.Nodes, 4)
			put(time.Second, long, NodeDrained, on*s.Setup.Sources, 0)
		}
	}
}
