package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

func TestAServerSendsTheNewestStateToOneReaderAfterTheOther(t *testing.T) {
	at := func(pairs ...int) (all []told) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, told{pairs[i], time.Duration(pairs[i+1]) * ms})
		}
		return all
	}
	for _, row := range []struct {
		name  string
		heard []told
		cores int
		hop   time.Duration
		want  [][]told // of each reader
	}{
		{"one change", at(0, 100), 1, 0, [][]told{at(0, 110), at(0, 120), at(0, 130)}},
		{"on its way", at(0, 100), 1, 5 * ms, [][]told{at(0, 115), at(0, 125), at(0, 135)}},
		{"three cores", at(0, 100), 3, 0, [][]told{at(0, 110), at(0, 110), at(0, 110)}},
		{"two changes, far apart", at(0, 0, 1, 100), 3, 0, [][]told{at(0, 10, 1, 110), at(0, 10, 1, 110), at(0, 10, 1, 110)}},
		{
			"whoever still waits is told both at once", at(0, 0, 1, 15), 1, 0,
			[][]told{at(0, 10, 1, 40), at(0, 20, 1, 50), at(1, 30)},
		},
		{
			"what comes while a reader is being sent something is sent to it afterwards", at(0, 0, 1, 5), 3, 0,
			[][]told{at(0, 10, 1, 20), at(0, 10, 1, 20), at(0, 10, 1, 20)},
		},
		{"a server that skipped a state skips it for all", at(2, 0), 3, 0, [][]told{at(2, 10), at(2, 10), at(2, 10)}},
		{"nothing", nil, 1, 0, [][]told{nil, nil, nil}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := serve(row.heard, 3, pace{send: 10 * ms, cores: row.cores, hop: row.hop})
			if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(told{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEveryLeafIsToldTheLastChange(t *testing.T) {
	for _, shape := range []tree{{"flat", []int{60}}, {"two levels", []int{6, 10}}, {"three", []int{3, 4, 5}}} {
		for seed := range uint64(20) {
			const changes = 50
			s := shape.simulate(changes, 100, pace{send: ms, cores: 2, hop: ms}, seed)
			if len(s.delays) != 60*changes || len(s.last) != changes || s.last[0] < ms {
				t.Fatalf("%s: %d of %d changes reached a leaf", shape.name, len(s.delays), 60*changes)
			}
			if s.skipped == 0 && len(shape.readers) == 1 {
				t.Errorf("%s: nothing was skipped, though there is more than it can send", shape.name)
			}
		}
	}
}

// A flat server's last reader waits for all the others; a tree's for those of its own server, and for the way.
func TestATreeIsAsSlowAsItsServersTogether(t *testing.T) {
	p := pace{send: ms, cores: 1, hop: 3 * ms}
	for _, row := range []struct {
		shape tree
		want  time.Duration
	}{
		{tree{"flat", []int{100}}, 103 * ms},
		{tree{"two levels", []int{10, 10}}, (10 + 3 + 10 + 3) * ms},
	} {
		if s := row.shape.simulate(1, 1, p, 1); s.last[0] != row.want {
			t.Errorf("%s: %s, want %s", row.shape.name, s.last[0], row.want)
		}
	}
	if n := (tree{readers: []int{10, 10, 1000}}).servers(); n != 111 {
		t.Errorf("%d servers, want 111", n)
	}
}
