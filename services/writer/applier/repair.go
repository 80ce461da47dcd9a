package applier

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

const (
	freeRepairs  = 5 // in repairWindow, each at once
	repairWindow = time.Minute
	repairCalm   = 5 * time.Minute // without a repair: all is forgotten
	longestWait  = time.Minute
)

// budget is how many repairs a Service may still have. Its zero value is a full one. It
// exists because a repair can be answered by another edit at once, without end.
type budget struct {
	recent []time.Time // repairs within the last repairWindow
	last   time.Time
	waits  int       // repairs that had to wait, one after the other
	told   time.Time // the last time that people were told to wait for
}

// next is when the next repair may be made: now, or later.
func (b *budget) next(now time.Time) time.Time {
	if b.waits > 0 && now.Sub(b.last) >= repairCalm {
		*b = budget{}
	}
	for len(b.recent) > 0 && now.Sub(b.recent[0]) >= repairWindow {
		b.recent = b.recent[1:]
	}
	if b.waits == 0 && len(b.recent) < freeRepairs {
		return now
	}
	wait := longestWait
	if b.waits < 6 { // 1 s, 2 s, 4 s, … 32 s
		wait = time.Second << b.waits
	}
	if at := b.last.Add(wait); at.After(now) {
		return at
	}
	return now
}

// spend books a repair made at now.
func (b *budget) spend(now time.Time) {
	if b.waits > 0 || len(b.recent) >= freeRepairs {
		b.waits++
	}
	b.recent = append(b.recent, now)
	b.last = now
}

// mayRepair finds out what of the plan only puts right what someone else did to our
// slices. If that is all there is and there were too many of late, it must wait; a change
// of our own never waits. The repairs that it counts are to be booked by repaired.
func (a *Applier) mayRepair(order Order, plan planner.Plan, change *foreignChange) (repairs int, err error) {
	service := order.Service
	if repairs = a.repairs(order, plan, change); repairs == 0 {
		return 0, nil
	}
	now := time.Now()
	a.mu.Lock()
	at := a.repair.next(now)
	held := at.After(now) && repairs == plan.Writes()
	told := at.Equal(a.repair.told)
	if held {
		a.repair.told = at
	}
	a.mu.Unlock()
	if !held {
		return repairs, nil
	}
	if !told { // whoever asks again meanwhile hears the same
		a.reporter.Report(service, events.Warning{
			Reason: "RepairsBackedOff", Action: "Repair",
			Note: fmt.Sprintf("EndpointSlice %s was modified by %s more than %d times in a minute. Repairs are backed off; next at %s. Stop the other writer.", change.slice, change.editor, freeRepairs, at.Format(time.TimeOnly)),
		})
	}
	return 0, &Later{At: at, Err: fmt.Errorf("slice %s is modified repeatedly by %s", change.slice, change.editor), Repair: true}
}

// repaired books repairs that were made, or may have been.
func (a *Applier) repaired(service corev1.ObjectReference, repairs int, change *foreignChange) {
	now := time.Now()
	a.mu.Lock()
	for range repairs {
		a.repair.spend(now)
	}
	a.mu.Unlock()
	a.metrics.repairs.Add(float64(repairs))
	a.log.Warn("repairing externally modified slice", "namespace", service.Namespace, "slice", change.slice, "by", change.editor, "slices", repairs)
}

// foreignChange is what someone else did to one of our slices.
type foreignChange struct{ slice, editor string }

// foreignChange finds a slice that the plan changes and that someone else has written since all was right, or
// one that someone else has deleted. That may be the next leader: a Lease can be deleted or taken by hand, and
// Leading says so no sooner than the next renewal. Whoever then puts right what he finds fights the other one at
// full speed. Nil: nobody did.
func (a *Applier) foreignChange(service corev1.ObjectReference, plan planner.Plan, current []*discoveryv1.EndpointSlice) *foreignChange {
	if plan.Empty() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	touches := make(map[key]struct{}, plan.Writes())
	for _, list := range [][]*discoveryv1.EndpointSlice{plan.Create, plan.Update, plan.Delete} {
		for _, slice := range list {
			touches[key{slice.Namespace, slice.Name}] = struct{}{}
		}
	}
	there := make(map[key]struct{}, len(current))
	for _, slice := range current {
		if slice.DeletionTimestamp != nil { // it only waits for a finalizer
			continue
		}
		k := key{slice.Namespace, slice.Name}
		there[k] = struct{}{}
		if _, touched := touches[k]; !touched {
			continue
		}
		ours := a.left(service, k)
		if ours == nil && a.settled == a.reign || ours != nil && !same(slice, ours) {
			return &foreignChange{slice.Name, Editor(slice)}
		}
	}
	for _, ours := range a.allLeft(service) {
		if _, ok := there[key{ours.Namespace, ours.Name}]; !ok {
			return &foreignChange{ours.Name, Editor(nil)}
		}
	}
	return nil
}

// left is a slice as we left it, as far as we have a word on it.
func (a *Applier) left(service corev1.ObjectReference, k key) *discoveryv1.EndpointSlice {
	if r := a.records[k]; r != nil && r.service == service.UID {
		return r.ours
	}
	return nil
}

// allLeft are all slices as we left them, by name.
func (a *Applier) allLeft(service corev1.ObjectReference) (all []*discoveryv1.EndpointSlice) {
	for k := range a.records {
		if ours := a.left(service, k); ours != nil && k.namespace == service.Namespace {
			all = append(all, ours)
		}
	}
	sortByName(all)
	return all
}

// repairs counts the writes of the plan that only put right what someone else did. If our slices as we left them
// would need no write, that is all of them, deletes too: what was put right in one slice may have been done to
// another. Else it is those that make a slice again what we left.
func (a *Applier) repairs(order Order, plan planner.Plan, change *foreignChange) (n int) {
	if change == nil {
		return 0
	}
	service := order.Service
	a.mu.Lock()
	settled, left := a.settled == a.reign, a.allLeft(service)
	for _, list := range [][]*discoveryv1.EndpointSlice{plan.Create, plan.Update} {
		for _, slice := range list {
			ours := a.left(service, key{slice.Namespace, slice.Name})
			if ours != nil && sameListing(slice, ours) && maps.Equal(slice.Labels, ours.Labels) {
				n++
			}
		}
	}
	a.mu.Unlock()
	if order.Current = left; settled && order.plan().Empty() {
		return plan.Writes()
	}
	return n
}

// Editor names the field manager that last changed a slice besides ourselves; nil: it was deleted.
func Editor(slice *discoveryv1.EndpointSlice) string {
	if slice == nil {
		return "a client that deleted it"
	}
	editor, at := "an unknown field manager", time.Time{}
	for _, entry := range slice.ManagedFields {
		if entry.Manager != fieldManager && entry.Time != nil && !entry.Time.Time.Before(at) {
			editor, at = fmt.Sprintf("field manager %q", entry.Manager), entry.Time.Time
		}
	}
	return editor
}

// sameListing compares what two slices of ours make consumers do: endpoints and ports, in any
// order and however their defaults are written.
func sameListing(a, b *discoveryv1.EndpointSlice) bool {
	return a.AddressType == b.AddressType && slices.Equal(listing(a), listing(b)) && slices.Equal(ports(a), ports(b))
}

func listing(slice *discoveryv1.EndpointSlice) []planner.Endpoint {
	return planner.CurrentEndpoints(planner.Desired{
		Namespace: slice.Namespace,
		Service:   slice.Labels[discoveryv1.LabelServiceName],
		ManagedBy: slice.Labels[discoveryv1.LabelManagedBy],
	}, []*discoveryv1.EndpointSlice{slice})
}

func ports(slice *discoveryv1.EndpointSlice) []string {
	var out []string
	for name, text := range history.PortFields(slice) {
		out = append(out, name+" "+text)
	}
	slices.Sort(out)
	return out
}
