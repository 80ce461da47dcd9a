package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// portWorlds is what decides which worlds have ports.
const portWorlds = 3

// Draw makes the Script of a seed. A world has a mood: most of its faults are of a few kinds,
// which then meet each other, instead of one of each.
func Draw(seed uint64) Script {
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(all ...int) int { return all[r.IntN(len(all))] }
	seconds := func(all ...int) time.Duration { return time.Duration(pick(all...)) * time.Second }
	s := Script{
		Seed: seed,
		Setup: Setup{
			Sources:        pick(1, 1, 1, 2),
			Replicas:       pick(1, 1, 2),
			Nodes:          1 + r.IntN(5),
			Writers:        pick(1, 2, 2),
			ByCloud:        r.IntN(3) > 0,
			Probing:        r.IntN(4) > 0,
			ProbeInterval:  seconds(2, 2, 5),
			ShrinkWindow:   seconds(60, 60, 20, 0),
			EmptyThreshold: pick(3, 3, 1),
			MaxStaleness:   seconds(900, 900, 60),
			ListOut:        r.IntN(3) > 0,
		},
		Quiet: 100 * time.Second, Trouble: seconds(120, 180, 240, 360, 600),
	}
	if own := rand.New(rand.NewPCG(seed, 2)); s.Setup.Sources > 1 { // apart, so that each seed's faults stay what they were
		s.Setup.Failover = own.IntN(2) == 0
		s.Setup.ExpireAfter = []time.Duration{0, 0, 30 * time.Second, 2 * time.Minute}[own.IntN(4)]
	}
	mood := make([]Kind, pick(1, 2, 3, 5))
	for i := range mood {
		mood[i] = Kinds[r.IntN(len(Kinds))]
	}
	for range 1 + r.IntN(12) {
		f := Fault{
			At:   time.Duration(r.Int64N(int64(s.Trouble) * 9 / 10)).Truncate(time.Millisecond),
			Kind: Kinds[r.IntN(len(Kinds))], On: r.IntN(64), N: r.IntN(64),
		}
		if r.IntN(2) == 0 {
			f.Kind = mood[r.IntN(len(mood))]
		}
		if f.Kind.lasts() {
			long := pick(3, 10, 30, 90, 200)
			f.For = time.Duration(long)*time.Second/2 + time.Duration(r.IntN(long*500))*time.Millisecond
		}
		s.Faults = append(s.Faults, f)
	}
	if r.IntN(4) > 0 {
		s.meet(r)
	}
	// Apart for the same reason, and so that no world that is kept as it found a mistake has ports.
	if own := rand.New(rand.NewPCG(seed, portWorlds)); own.IntN(4) == 0 {
		s.Setup.Ports = true
		for range 1 + own.IntN(6) {
			f := Fault{
				At:   time.Duration(own.Int64N(int64(s.Trouble) * 9 / 10)).Truncate(time.Millisecond),
				Kind: PortKinds[own.IntN(len(PortKinds))],
				On:   own.IntN(64),
				N:    own.IntN(64),
			}
			if f.Kind.lasts() {
				f.For = time.Second + time.Duration(own.Int64N(int64(90*time.Second))).Truncate(time.Millisecond)
			}
			s.Faults = append(s.Faults, f)
		}
	}
	s.Settle = s.Setup.settle()
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return s
}

// settle is how long the slices may take to be right once the last fault is over: a connection,
// a Lease and a look at the outside may each have backed off for as long as they do, and the
// shrink guard lets one half after the other go.
func (s Setup) settle() time.Duration {
	halvings := 1
	for n := 2 * s.Nodes * s.Sources; n > 1; n /= 2 {
		halvings++
	}
	failback := 0 * time.Second
	if s.Failover {
		failback = time.Minute
	}
	return 180*time.Second + failback + time.Duration(halvings)*max(s.ShrinkWindow, 20*time.Second)
}
