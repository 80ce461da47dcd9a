package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// fault is what becomes of the first request of a write.
type fault int

const (
	faultless fault = iota
	unsent          // it does not arrive
	unheard         // it is carried out, and the answer is lost
	delayed         // it is given up, and is still under way
	deposed         // it is answered, and the Lease is another's by then
)

var faults = [...]string{
	faultless: "decides and writes", unsent: "writes, and its request is lost", unheard: "writes, and the answer is lost",
	delayed: "writes, and its request is late", deposed: "writes, and loses the Lease after its first request",
}

// api is the API server, as one Apply meets it.
type api struct {
	world *pairWorld
	fault fault
}

var (
	errNoAnswer = errors.New("no answer")
	resource    = schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
)

// send carries a request out, or lets the fault have it, which then is over.
func (a *api) send(r request) (*discoveryv1.EndpointSlice, error) {
	of := a.fault
	a.fault = faultless
	switch of {
	case unsent:
		return nil, errNoAnswer
	case delayed:
		a.world.late = &r
		return nil, errNoAnswer
	}
	answer, err := a.world.carryOut(r)
	switch of {
	case unheard:
		return nil, errNoAnswer
	case deposed:
		a.world.leader = 1 - a.world.leader
	}
	return answer, err
}

// Create and the others are those of applier.Store.
func (a *api) Create(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return a.send(request{"create", slice})
}

// Update replaces a slice.
func (a *api) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return a.send(request{"update", slice})
}

// Delete removes one.
func (a *api) Delete(_ context.Context, slice *discoveryv1.EndpointSlice) error {
	_, err := a.send(request{"delete", slice})
	return err
}

// Get reads one.
func (a *api) Get(_ context.Context, _, name string) (*discoveryv1.EndpointSlice, error) {
	if at := a.world.at(name); at >= 0 {
		return a.world.slices[at], nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

// List reads all of them.
func (a *api) List(context.Context, string, map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	return slices.Clone(a.world.slices), strconv.Itoa(a.world.version), nil
}

func (w *pairWorld) at(name string) int {
	return slices.IndexFunc(w.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
}

// carryOut does what an API server does: names are unique, and nothing is overwritten that was written
// since. In all its states something has to be of use, unless someone else has edited.
func (w *pairWorld) carryOut(r request) (*discoveryv1.EndpointSlice, error) {
	at := w.at(r.slice.Name)
	switch {
	case r.verb == "create" && at >= 0:
		return nil, apierrors.NewAlreadyExists(resource, r.slice.Name)
	case r.verb != "create" && at < 0:
		return nil, apierrors.NewNotFound(resource, r.slice.Name)
	case r.verb != "create" && (r.slice.ResourceVersion != w.slices[at].ResourceVersion || r.slice.UID != w.slices[at].UID):
		return nil, apierrors.NewConflict(resource, r.slice.Name, errors.New("it was written since"))
	}
	w.version++
	after := slices.Clone(w.slices)
	answer := r.slice.DeepCopy()
	answer.ResourceVersion = strconv.Itoa(w.version)
	switch r.verb {
	case "create":
		answer.UID = types.UID(fmt.Sprint("uid-", w.version))
		after = append(after, answer)
	case "update":
		after[at] = answer
	default:
		after, answer = slices.Delete(after, at, at+1), nil
	}
	before := w.usable()
	w.slices = after
	if before && !w.usable() && !w.edited && w.broken == nil {
		w.broken = errors.New("nothing is usable after a request (I2), though all that there is answers")
	}
	return answer, nil
}

func (w *pairWorld) usable() bool {
	return slices.ContainsFunc(planner.CurrentEndpoints(order(verdict.Decision{}, 1), w.slices), func(e planner.Endpoint) bool {
		return e.Ready || e.Serving && e.Terminating
	})
}

// land carries out the request that is late.
func (w *pairWorld) land() {
	r := *w.late
	w.late = nil
	_, _ = w.carryOut(r) // nobody waits for the answer
}

// pairStep is one thing that can happen.
type pairStep struct {
	does func(w *pairWorld) error
	says string
}

func (w *pairWorld) steps() (all []pairStep) {
	add := func(does func(w *pairWorld) error, says string, args ...any) {
		all = append(all, pairStep{does, fmt.Sprintf(says, args...)})
	}
	for n := range w.truth {
		for _, state := range []verdict.State{verdict.Ready, verdict.Draining, unlisted} {
			if w.truth[n] != state && (w.gear.faults || state != verdict.Draining) {
				add(func(w *pairWorld) error { w.truth[n] = state; return nil }, "node-%d is %s", n, stateWords[state])
			}
		}
	}
	for i := range w.writers {
		if w.writers[i].heard != w.truth {
			add(func(w *pairWorld) error { return w.hear(i) }, "writer %d hears of it", i+1)
		}
		if w.writers[i].version != w.version {
			add(func(w *pairWorld) error { w.watch(i); return nil }, "the cache of writer %d catches up", i+1)
		}
	}
	leader := w.leader
	for of := range faults {
		if fault(of) == faultless || w.gear.faults && (w.late == nil || fault(of) != delayed) {
			add(func(w *pairWorld) error { _, err := w.act(leader, fault(of)); return err }, "writer %d %s", leader+1, faults[of])
		}
	}
	add(func(w *pairWorld) error { w.takeOver(); return nil }, "writer %d takes the Lease", 2-leader)
	if w.late != nil {
		add(func(w *pairWorld) error { w.land(); return w.broken }, "the late request lands")
		add(func(w *pairWorld) error { w.late = nil; return nil }, "the late request is lost")
	}
	if w.gear.faults && len(w.slices) > 0 {
		add((*pairWorld).vandalise, "someone deletes %s", w.slices[0].Name)
		add((*pairWorld).distort, "someone takes the endpoints out of %s", w.slices[0].Name)
	}
	return all
}

func (w *pairWorld) vandalise() error {
	w.edited = true
	w.version++
	w.slices = slices.Delete(slices.Clone(w.slices), 0, 1)
	return nil
}

func (w *pairWorld) distort() error {
	w.edited = true
	w.version++
	w.slices = slices.Clone(w.slices)
	slice := w.slices[0].DeepCopy()
	slice.Endpoints, slice.ResourceVersion = nil, strconv.Itoa(w.version)
	w.slices[0] = slice
	return nil
}

// Steps and the others are those of a World.
func (w *pairWorld) Steps() int { return len(w.steps()) }

// Name says what a step is.
func (w *pairWorld) Name(step int) string { return w.steps()[step].says }

// Take lets it happen.
func (w *pairWorld) Take(step int) (World, error) {
	s := w.steps()[step]
	to := *w
	return &to, s.does(&to)
}
