package sim

import (
	"slices"
	"time"
)

// Shrink makes a Script that fails a short one that still does, by leaving faults out, making
// them shorter and plainer, and taking away what the world does not need. It plays at most that
// many worlds.
func Shrink(s Script, worlds int, fails func(Script) bool) Script {
	k := shrinking{best: s, left: worlds, fails: fails}
	for {
		before := k.left
		better := k.fewer()
		better = k.plainer() || better
		better = k.smaller() || better
		if !better || k.left <= 0 || k.left == before {
			return k.best
		}
	}
}

type shrinking struct {
	best  Script
	left  int
	fails func(Script) bool
}

// try takes a Script in if it still fails.
func (k *shrinking) try(alter func(*Script)) bool {
	if k.left <= 0 {
		return false
	}
	k.left--
	s := k.best
	s.Faults = slices.Clone(s.Faults)
	alter(&s)
	if !k.fails(s) {
		return false
	}
	k.best = s
	return true
}

// fewer leaves faults out: first in large pieces, then in ever smaller ones.
func (k *shrinking) fewer() (better bool) {
	for size := max(1, len(k.best.Faults)/2); ; size /= 2 {
		for from := 0; from < len(k.best.Faults); {
			to := min(from+size, len(k.best.Faults))
			if k.try(func(s *Script) { s.Faults = slices.Delete(s.Faults, from, to) }) {
				better = true
			} else {
				from = to
			}
		}
		if size <= 1 {
			return better
		}
	}
}

// plainer shortens each fault, and has it befall the first whom it can in the first manner.
func (k *shrinking) plainer() (better bool) {
	for i := range k.best.Faults {
		for k.best.Faults[i].For > 2*time.Second &&
			k.try(func(s *Script) { s.Faults[i].For = (s.Faults[i].For / 2).Round(time.Second) }) {
			better = true
		}
		for _, n := range []int{0, 1, 2, 3} {
			if n >= k.best.Faults[i].N {
				break
			}
			if k.try(func(s *Script) { s.Faults[i].N = n }) {
				better = true
				break
			}
		}
		for _, on := range []int{0, 1, 2, 3} {
			if on >= k.best.Faults[i].On {
				break
			}
			if k.try(func(s *Script) { s.Faults[i].On = on }) {
				better = true
				break
			}
		}
		if at := k.best.Faults[i].At; at != at.Round(time.Second) && k.try(func(s *Script) { s.Faults[i].At = at.Round(time.Second) }) {
			better = true
		}
	}
	return better
}

// smaller takes away of the world itself what the failure does not need.
func (k *shrinking) smaller() (better bool) {
	for _, field := range []func(*Script) *int{
		func(s *Script) *int { return &s.Setup.Sources },
		func(s *Script) *int { return &s.Setup.Replicas },
		func(s *Script) *int { return &s.Setup.Writers },
		func(s *Script) *int { return &s.Setup.Nodes },
	} {
		for *field(&k.best) > 1 && k.try(func(s *Script) { *field(s)-- }) {
			better = true
		}
	}
	if k.best.Setup.ByCloud && k.try(func(s *Script) { s.Setup.ByCloud = false }) {
		better = true
	}
	for k.best.Trouble > 20*time.Second && k.try(func(s *Script) { s.Trouble = (s.Trouble * 2 / 3).Round(time.Second) }) {
		better = true
	}
	return better
}

// kind is what two violations of the same kind have in common.
func (r Result) kind() string {
	if len(r.Violations) == 0 {
		return ""
	}
	return r.Violations[0].Invariant + " " + r.Violations[0].Rule
}
