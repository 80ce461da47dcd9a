package search

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// start is when each world begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	nobody = -1
	rounds = 24 // of a world at rest, until nothing is new
)

func name(n int) string { return fmt.Sprint("node-", n) }

// address is that of a node.
func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

// pairWorld is two writers of one target, of which one leads: an API server with resourceVersions, a
// Lease that changes hands at any moment, requests whose answer is lost or that land late, caches that are
// behind, views that are behind, and someone else who edits. Each writer decides by verdict.Decide and
// writes by a real applier.Applier, which remembers what it wrote and re-reads what it lost sight of.
// All probes pass, and no window bounds who leaves: that is the other model's.
type pairWorld struct {
	gear *gear

	truth   [2]verdict.State // what the source says of each node
	writers [2]writerOf
	leader  int
	edited  bool // someone else has edited a slice

	version int // of the API server's last write
	slices  []*discoveryv1.EndpointSlice
	late    *request // one that is still under way, after its sender has given it up
	broken  error    // what a request broke, found while it was sent
}

// writerOf is one of the writers.
type writerOf struct {
	heard   [2]verdict.State
	memory  verdict.Memory
	cache   []*discoveryv1.EndpointSlice
	version int // of the cache
	applier *applier.Applier
	kept    []byte // the applier's portrait
	failed  string // how the last write ended; empty: well
}

// request is one to the API server.
type request struct {
	verb  string
	slice *discoveryv1.EndpointSlice
}

// gear is what all worlds share, and what no future depends on.
type gear struct {
	faults bool
}

var service = corev1.ObjectReference{Kind: "Service", Namespace: "web", Name: "shop", UID: types.UID("uid")}

// Pair returns the model of two writers. At first both nodes are READY and listed, both writers know it,
// and the first one leads. Without faults each request is answered and nobody else edits: what is left
// are nodes that come and go, and knowledge that is behind, and longer histories can be searched. Appliers read the clock: the search belongs into a bubble of testing/synctest.
func Pair(faults bool) World {
	w := &pairWorld{version: 1, gear: &gear{faults: faults}}
	for n := range w.truth {
		w.truth[n] = verdict.Ready
	}
	if _, err := w.rest(); err != nil {
		panic(err) // there is nothing yet that could break
	}
	return w
}

// own gives a writer an applier that no other world has, with the memory of the one before.
func (w *pairWorld) own(i int, fault fault) *applier.Applier {
	mine := applier.New(applier.Config{Store: &api{world: w, fault: fault}, Leading: func() bool { return w.leader == i }})
	if was := w.writers[i].applier; was != nil {
		from, to := reflect.ValueOf(was).Elem(), reflect.ValueOf(mine).Elem()
		c := newCopier(reflect.TypeFor[*discoveryv1.EndpointSlice]())
		for f := range from.NumField() {
			if remembers(from.Type().Field(f).Name) {
				c.copy(to.Field(f), from.Field(f))
			}
		}
	}
	w.writers[i].applier = mine
	return mine
}

// remembers says whether a field of an applier is part of what it remembers, not of what it is made of.
func remembers(field string) bool {
	return !slices.Contains([]string{"cfg", "mu"}, field)
}

func (w *pairWorld) draw(i int) {
	is := reflect.ValueOf(w.writers[i].applier).Elem()
	var fields []any
	for f := range is.NumField() {
		if remembers(is.Type().Field(f).Name) {
			fields = append(fields, open(is.Field(f)).Interface())
		}
	}
	w.writers[i].kept = paint(start, horizon, fields...)
}

// decide is what a writer makes of what it knows.
func (w *pairWorld) decide(i int) applier.Order {
	of := &w.writers[i]
	current := of.applier.Observed(of.cache, strconv.Itoa(of.version))
	in := verdict.Input{
		Limits:       verdict.Limits{Probing: true, ListUnready: true},
		LeadingSince: start,
		Current:      heldAs(planner.CurrentEndpoints(order(verdict.Decision{}, 1), of.applier.LastApplied(service, current))),
		Sources: []verdict.Source{{
			Name: sourceName(0), EverSynced: true, Connected: true, MembershipSynced: true, MembershipSyncedAt: start,
			Epoch: "life-1", Observation: 1, ObservationAt: start, Allowlist: fence,
		}},
	}
	for n, state := range of.heard {
		in.Probes = append(in.Probes,
			probe.Status{Address: address(n), Health: probe.Passing, Since: start, RunStart: start, RunLast: start})
		if state != unlisted {
			in.Sources[0].Members = append(in.Sources[0].Members, verdict.Member{Address: address(n), Name: name(n), State: state})
		}
	}
	var d verdict.Decision
	of.memory, d = verdict.Decide(of.memory, in, start)
	return applier.Order{Service: service, Desired: order(d, 1), Current: current}
}

// act has a writer decide, and write if it leads. Wrote is whether there was anything to write.
func (w *pairWorld) act(i int, with fault) (wrote bool, err error) {
	mine := w.own(i, with)
	defer w.draw(i)
	o := w.decide(i)
	plan, failed := mine.Apply(context.Background(), o)
	w.writers[i].failed = ""
	var stale *applier.StaleError
	switch {
	case w.broken != nil:
		return false, w.broken
	case errors.As(failed, &stale):
		w.writers[i].failed = "stale"
	case errors.Is(failed, applier.ErrNotLeader):
		w.writers[i].failed = "not leading"
	case failed != nil:
		w.writers[i].failed = "no answer"
	case w.leader == i:
		return !plan.Empty(), w.remembered(i, mine, o.Desired)
	}
	return !plan.Empty(), nil
}

// remembered asks that a writer which has just written knows what it wrote, however old its cache is, and
// would not write it again.
func (w *pairWorld) remembered(i int, mine *applier.Applier, desired planner.Desired) error {
	of := &w.writers[i]
	current := mine.Observed(of.cache, strconv.Itoa(of.version))
	if got, want := pictured(
		planner.CurrentEndpoints(desired, mine.LastApplied(service, current)),
	), pictured(desired.Endpoints); got != want {
		return fmt.Errorf("writer %d holds %q right after it has written %q", i+1, got, want)
	}
	if w.late == nil && !w.edited && !planner.Compute(desired, current).Empty() {
		return fmt.Errorf("writer %d would write the same once more (I3)", i+1)
	}
	return nil
}

func pictured(all []planner.Endpoint) string {
	var words []string
	for _, e := range all {
		words = append(words, fmt.Sprintf("%d:%s", e.Address.As4()[3]-1, word(e)))
	}
	return strings.Join(words, " ")
}

// hear lets a writer know what the source says.
func (w *pairWorld) hear(i int) error {
	w.writers[i].heard = w.truth
	w.own(i, faultless)
	defer w.draw(i)
	w.decide(i) // a standby decides too, for its memory
	return nil
}

// watch brings a writer's cache up to date.
func (w *pairWorld) watch(i int) {
	w.writers[i].cache, w.writers[i].version = w.slices, w.version
}

// takeOver has the other one lead. Neither keeps a word on what the slices should say.
func (w *pairWorld) takeOver() {
	w.leader = 1 - w.leader
	for i := range w.writers {
		w.own(i, faultless).StartTerm()
		w.draw(i)
	}
}

// Check lets all faults stop, whatever becomes of a request that is under way.
func (w *pairWorld) Check() error {
	fates := []func(*pairWorld){func(rest *pairWorld) { rest.late = nil }}
	if w.late != nil {
		fates = append(fates, func(rest *pairWorld) { rest.land() })
	}
	for _, fate := range fates {
		rest := *w
		fate(&rest)
		if rest.broken != nil {
			return rest.broken
		}
		if err := rest.settle(); err != nil {
			return err
		}
	}
	return nil
}

// settle goes on until nothing is left to write: the slices are as the leader decides then, and when the
// other one takes over it writes nothing.
func (w *pairWorld) settle() error {
	settled, err := w.rest()
	if err != nil {
		return err
	}
	w.takeOver()
	now, err := w.rest()
	if err != nil {
		return err
	}
	if now.version != settled.version {
		return fmt.Errorf("divergence: at rest the slices say %q, then the other writer takes over and they say %q", settled.listed,
			now.listed)
	}
	return nil
}

// resting is what is found at rest.
type resting struct {
	version int
	listed  string
}

func (w *pairWorld) rest() (resting, error) {
	for range rounds {
		for i := range w.writers {
			if w.writers[i].applier == nil {
				w.own(i, faultless)
			}
			w.watch(i)
			if err := w.hear(i); err != nil {
				return resting{}, err
			}
		}
		wrote, err := w.act(w.leader, faultless)
		if err != nil {
			return resting{}, err
		}
		if wrote || w.writers[w.leader].failed != "" {
			continue
		}
		o := w.decide(w.leader)
		listed := pictured(planner.CurrentEndpoints(o.Desired, w.slices))
		if want := pictured(o.Desired.Endpoints); listed != want {
			return resting{}, fmt.Errorf("divergence: at rest the slices say %q, and the leader decides %q", listed, want)
		}
		return resting{w.version, listed}, nil
	}
	return resting{}, fmt.Errorf("livelock: at rest the leader goes on writing (%d times), the slices say %q",
		rounds, pictured(planner.CurrentEndpoints(order(verdict.Decision{}, 1), w.slices)))
}

// Key encodes the world.
func (w *pairWorld) Key() []byte {
	k := paint(start, horizon, w.truth, w.leader, w.edited, w.version, w.slices, w.late)
	for i := range w.writers {
		of := &w.writers[i]
		k = append(k, paint(start, horizon, of.heard, of.memory, of.cache, of.version, of.failed)...)
		k = append(k, of.kept...)
	}
	return k
}

// String pictures the world.
func (w *pairWorld) String() string {
	late := ""
	if w.late != nil {
		late = fmt.Sprintf(", %s of %s is under way", w.late.verb, w.late.slice.Name)
	}
	if failed := w.writers[w.leader].failed; failed != "" {
		late += ", the last write ended: " + failed
	}
	return fmt.Sprintf("writer %d leads, the slices say %q%s", w.leader+1,
		pictured(planner.CurrentEndpoints(order(verdict.Decision{}, 1), w.slices)), late)
}
