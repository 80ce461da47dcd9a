package oracle

import "time"

// Delays are what the settings of a world add to the time within which slices have to be right
// after the last fault. Zero values stand for the product's defaults.
type Delays struct {
	Reconnect time.Duration // the longest delay before a subscriber connects again (4 s), and an attempt that fails (4 s)
	Silence   time.Duration // after which a link without heartbeats is given up (15 s)
	Listing   time.Duration // between two whole listings of the cloud (60 s)
	Quorum    time.Duration // between two looks at whether the cluster's watch can be believed (60 s)
	Bookmark  time.Duration // how long an idle watch may take to prove itself (120 s)
	Rest      time.Duration // between two whole observations at rest: a look (60 s), and a bookmark that bears it out (60 s)
	Lease     time.Duration // until another writer leads (17 s)
	Judge     time.Duration // until a prober's word follows a backend (10 s)
	Retry     time.Duration // the longest pause before a writer tries a refused request again (30 s)
}

func (d Delays) withDefaults() Delays {
	for at, usual := range map[*time.Duration]time.Duration{
		&d.Reconnect: 8 * time.Second,
		&d.Silence:   15 * time.Second,
		&d.Listing:   60 * time.Second,
		&d.Quorum:    60 * time.Second,
		&d.Bookmark:  120 * time.Second,
		&d.Rest:      120 * time.Second,
		&d.Lease:     17 * time.Second,
		&d.Judge:     10 * time.Second,
		&d.Retry:     30 * time.Second,
	} {
		if *at == 0 {
			*at = usual
		}
	}
	return d
}

// bound is how long after the last fault the slices of a target may still differ from the
// truth: 60 s and one window per halving (decision-rules.md#invariants, I5), and what has to come before the
// guards can start to let anything go. In the worst case these come one after the other: the
// link's end is noticed and it is made anew, the inventory's watch proves itself and both of
// two listings of the cloud agree, another writer takes the Lease, and the prober judges.
//
// Then a source is either empty for the target or not. If it is, as many observations as confirm that have to come. A
// set that is empty for everyone is observed every 20 s, but one that is empty for this target's selector alone is not
// seen to be: threshold × Rest. If it is not, each half leaves in a window of its own, which a newer observation opens:
// (halvings + 1) × the longer of window and Rest. Sources are confirmed, and let go, side by side.
func (d Delays) bound(halvings, threshold int, window time.Duration) time.Duration {
	fresh := d.Silence + d.Reconnect + max(d.Quorum+d.Bookmark, 2*d.Listing)
	empty, halves := time.Duration(threshold)*d.Rest, time.Duration(halvings+1)*max(window, d.Rest)
	return 60*time.Second + fresh + d.Lease + d.Judge + d.Retry + max(empty, halves)
}

// halvings is how many windows it takes to let n endpoints go: at most half of those that are
// ready leave in one, and at least one may.
func halvings(n int) int {
	windows := 0
	for ; n > 0; n -= max(1, n/2) {
		windows++
	}
	return windows
}
