package applier

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

const (
	immediateRepairs = 5 // in repairWindow
	repairWindow     = time.Minute
	repairReset      = 5 * time.Minute // without a repair: the budget is full again
	maxRepairDelay   = time.Minute
)

// repairBudget limits repairs of a Service's slices: each can be answered by another edit immediately, without end. Its
// zero value is a full budget.
type repairBudget struct {
	recent      []time.Time // repairs within the last repairWindow
	last        time.Time
	delayed     int       // consecutive repairs that had to wait
	reportedFor time.Time // the delayed repair that was reported last
}

// next returns when the next repair may be made: now or later.
func (b *repairBudget) next(now time.Time) time.Time {
	if b.delayed > 0 && now.Sub(b.last) >= repairReset {
		*b = repairBudget{}
	}
	for len(b.recent) > 0 && now.Sub(b.recent[0]) >= repairWindow {
		b.recent = b.recent[1:]
	}
	if b.delayed == 0 && len(b.recent) < immediateRepairs {
		return now
	}
	wait := maxRepairDelay
	if b.delayed < 6 { // 1 s, 2 s, 4 s, … 32 s
		wait = time.Second << b.delayed
	}
	if at := b.last.Add(wait); at.After(now) {
		return at
	}
	return now
}

// spend records a repair.
func (b *repairBudget) spend(now time.Time) {
	if b.delayed > 0 || len(b.recent) >= immediateRepairs {
		b.delayed++
	}
	b.recent = append(b.recent, now)
	b.last = now
}

// checkRepairBudget returns how many writes of the plan only repair what another client did; the caller records
// those that it makes. If the plan consists of repairs and there were too many recently, it must wait; a change by the
// writer never waits.
func (a *Applier) checkRepairBudget(m *memory, order Order, plan planner.Plan, change *foreignChange) (repairs int, err error) {
	if repairs = m.countRepairs(order, plan, change); repairs == 0 {
		return 0, nil
	}
	now := time.Now()
	at := m.repairs.next(now)
	if !at.After(now) || repairs < plan.Writes() {
		return repairs, nil
	}
	if !at.Equal(m.repairs.reportedFor) {
		m.repairs.reportedFor = at
		report(
			a.cfg.Hooks.RepairDelayed,
			order.Service,
			RepairDelay{Slice: change.slice, Editor: change.editor, Budget: immediateRepairs, At: at},
		)
	}
	return 0, &RetryLaterError{At: at, Err: fmt.Errorf("slice %s is modified repeatedly by %s", change.slice, change.editor), Repair: true}
}

// recordRepairs records repairs that were made, or may have been.
func (a *Applier) recordRepairs(m *memory, service corev1.ObjectReference, repairs int, change *foreignChange) {
	for range repairs {
		m.repairs.spend(time.Now())
	}
	report(a.cfg.Hooks.Repaired, service, repairs)
	a.cfg.Logger.Warn("repairing externally modified slice",
		"namespace", service.Namespace, "slice", change.slice, "by", change.editor, "slices", repairs)
}

// foreignChange is what another client did to an owned slice.
type foreignChange struct{ slice, editor string }

// foreignChange finds a slice that the plan changes and that another client has written since all was right, or one that
// another client has deleted. That client may be the next leader: a Lease can be deleted or taken by hand, and Leading
// only learns of it with the next renewal. A writer that repaired what it finds then would fight the new leader at full
// speed.
func (m *memory) foreignChange(plan planner.Plan, current []*discoveryv1.EndpointSlice, fieldManager string) *foreignChange {
	if plan.Empty() {
		return nil
	}
	planned := map[string]struct{}{}
	for _, slice := range slices.Concat(plan.Create, plan.Update, plan.Delete) {
		planned[slice.Name] = struct{}{}
	}
	existing := map[string]struct{}{}
	for _, slice := range current {
		if slice.DeletionTimestamp != nil { // it only waits for a finalizer
			continue
		}
		existing[slice.Name] = struct{}{}
		if _, ok := planned[slice.Name]; !ok {
			continue
		}
		left := m.left[slice.Name]
		if left == nil && m.inSync || left != nil && !equalContent(slice, left) {
			return &foreignChange{slice.Name, lastEditor(slice, fieldManager)}
		}
	}
	for _, left := range m.leftSlices() {
		if _, ok := existing[left.Name]; !ok {
			return &foreignChange{left.Name, lastEditor(nil, fieldManager)}
		}
	}
	return nil
}

// countRepairs counts the writes of the plan that only repair. If the slices as they were left would need no write, that
// is all of them, deletes too: what was repaired in one slice may have been done to another. Otherwise it is those that
// make a slice what it was left as.
func (m *memory) countRepairs(order Order, plan planner.Plan, change *foreignChange) (n int) {
	if change == nil {
		return 0
	}
	for _, slice := range slices.Concat(plan.Create, plan.Update) {
		if left := m.left[slice.Name]; left != nil && equalListing(slice, left) && maps.Equal(slice.Labels, left.Labels) {
			n++
		}
	}
	if order.Current = m.leftSlices(); m.inSync && order.plan().Empty() {
		return plan.Writes()
	}
	return n
}

// lastEditor names the last field manager of a slice besides this one's; nil: it was deleted.
func lastEditor(slice *discoveryv1.EndpointSlice, fieldManager string) string {
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

// equalContent compares all that a writer sets of a slice with what was sent. Others may add annotations of their own.
func equalContent(now, sent *discoveryv1.EndpointSlice) bool {
	for key, value := range sent.Annotations {
		if now.Annotations[key] != value {
			return false
		}
	}
	return now.AddressType == sent.AddressType &&
		equality.Semantic.DeepEqual(now.Endpoints, sent.Endpoints) &&
		equality.Semantic.DeepEqual(now.Ports, sent.Ports) &&
		equality.Semantic.DeepEqual(now.Labels, sent.Labels) &&
		now.Annotations[corev1.EndpointsLastChangeTriggerTime] == sent.Annotations[corev1.EndpointsLastChangeTriggerTime] &&
		equality.Semantic.DeepEqual(now.OwnerReferences, sent.OwnerReferences)
}

// equalListing compares what consumers use of two owned slices: endpoints and ports, in any order and however their
// defaults are written.
func equalListing(a, b *discoveryv1.EndpointSlice) bool {
	return a.AddressType == b.AddressType && planner.PortsEqual(a.Ports, b.Ports) &&
		slices.EqualFunc(planner.Desired{}.EndpointsOf(a), planner.Desired{}.EndpointsOf(b), planner.Endpoint.Equal)
}
