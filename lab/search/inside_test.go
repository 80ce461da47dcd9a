package search

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

func TestPortraitsDifferAsWhatTheyAreOfDoes(t *testing.T) {
	type inner struct{ at time.Time }
	type outer struct {
		inner  inner
		byName map[string]inner
		any    any
		list   []netip.Addr
	}
	now := time.Now() // with a monotonic reading, which Round takes away
	at := func(when time.Time) outer { return outer{inner: inner{at: when}} }
	address := func(text string) outer { return outer{list: []netip.Addr{netip.MustParseAddr(text)}} }
	for _, c := range []struct {
		name string
		a, b any
		same bool
	}{
		{"the same time, without its monotonic reading", at(now.Add(-time.Second)), at(now.Add(-time.Second).Round(0)), true},
		{"the same time elsewhere", at(now), at(now.In(time.FixedZone("there", 3600))), true},
		{"another second", at(now.Add(-time.Second)), at(now.Add(-3 * time.Second)), false},
		{"seconds beyond the horizon", at(now.Add(-2 * time.Minute)), at(now.Add(-3 * time.Minute)), true},
		{"no time", at(time.Time{}), at(now.Add(-2 * time.Minute)), false},
		{"times in a map", outer{byName: map[string]inner{"a": {now}}}, outer{byName: map[string]inner{"a": {now.Add(-time.Second)}}}, false},
		{"times in an interface", outer{any: inner{now}}, outer{any: inner{now.Add(-time.Second)}}, false},
		{"times behind a pointer", &inner{now}, &inner{now.Add(-time.Second)}, false},
		{"the same address", address("10.0.1.1"), address("10.0.1.1"), true},
		{"another address", address("10.0.1.1"), address("10.0.1.2"), false},
		{"no address", outer{list: []netip.Addr{{}}}, address("0.0.0.0"), false},
	} {
		if same := bytes.Equal(paint(now, time.Minute, c.a), paint(now, time.Minute, c.b)); same != c.same {
			t.Errorf("%s: equal portraits: %t, want %t", c.name, same, c.same)
		}
	}
}
