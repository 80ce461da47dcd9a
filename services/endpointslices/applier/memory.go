package applier

import (
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// memory is what an Applier knows of one Service's slices besides the cache, in one term. Each term begins with a new
// one: an answer that arrives in a later term only reaches the memory of its own, and is lost. client-go's
// MutationCache is no alternative: it knows neither deletions nor who made a change.
type memory struct {
	service types.UID // of the Service that it is about; empty: not known yet

	// left are the slices by name as this term left them: as they were written, or as they were found right. inSync:
	// all slices were right at one time since, so that another client has made those that are not in left.
	left   map[string]*discoveryv1.EndpointSlice
	inSync bool

	// admitted are the last writes by name that the API server stored otherwise than they were sent.
	admitted map[string]Admission

	tracker Tracker
	// listed: what tracker has is from the API server. Before that nothing is written, since another leader may have written
	// what the cache does not show yet. unsure are the names of slices with a write whose outcome is unknown.
	listed bool
	unsure map[string]struct{}

	repairs           repairBudget
	conflicts         int       // since the last Apply that succeeded
	rejectionReported time.Time // since then; zero: none
}

func newMemory() *memory {
	return &memory{
		left: map[string]*discoveryv1.EndpointSlice{}, admitted: map[string]Admission{},
		unsure: map[string]struct{}{},
	}
}

// lastApplied returns the observed slices with those in left as they were left: what others took from them still
// counts, what they added does not.
func (m *memory) lastApplied(observed []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	missing := maps.Clone(m.left)
	applied := make([]*discoveryv1.EndpointSlice, 0, len(observed)+len(missing))
	for _, slice := range observed {
		if left := missing[slice.Name]; left != nil {
			slice = left
			delete(missing, slice.Name)
		}
		applied = append(applied, slice)
	}
	return sortedByName(slices.AppendSeq(applied, maps.Values(missing)))
}

// Admission is a write that the API server stored otherwise than it was sent: mutating admission changed it.
type Admission struct{ Sent, Stored *discoveryv1.EndpointSlice }

// revert returns a slice with what admission changed as it was sent. That is no edit by another client, and to repair it
// would have it changed again, without end.
func (a Admission) revert(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if a.Stored == nil || a.Stored.UID != slice.UID {
		return slice
	}
	out := slice.DeepCopy()
	revert(&out.Labels, a.Stored.Labels, a.Sent.Labels)
	revert(&out.Annotations, a.Stored.Annotations, a.Sent.Annotations)
	revert(&out.OwnerReferences, a.Stored.OwnerReferences, a.Sent.OwnerReferences)
	revert(&out.Endpoints, a.Stored.Endpoints, a.Sent.Endpoints)
	revert(&out.Ports, a.Stored.Ports, a.Sent.Ports)
	return out
}

func revert[T any](field *T, stored, sent T) {
	if equality.Semantic.DeepEqual(*field, stored) {
		*field = sent
	}
}

// asSent returns the observed slices without what admission changed in this term's own writes.
func (m *memory) asSent(observed []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	all := slices.Clone(observed)
	for i, slice := range all {
		all[i] = m.admitted[slice.Name].revert(slice)
	}
	return all
}

// recordWrite records a write that took place. What was sent counts as left, whatever admission made of it.
func (m *memory) recordWrite(verb Verb, sent, answer *discoveryv1.EndpointSlice) {
	delete(m.admitted, sent.Name)
	if verb == Delete {
		m.tracker.RecordDelete(sent)
		delete(m.left, sent.Name)
		return
	}
	if !equalContent(answer, sent) {
		m.admitted[sent.Name] = Admission{Sent: sent, Stored: answer}
	}
	m.tracker.RecordWrite(answer)
	m.left[sent.Name] = sent
}

// recordListing records what the API server has. A slice with a write whose outcome was unknown is taken as it is:
// it may show that write or an edit by another client.
func (m *memory) recordListing(listed []*discoveryv1.EndpointSlice, version string) {
	for name := range m.unsure {
		delete(m.left, name)
		delete(m.admitted, name)
		m.inSync = false
	}
	m.tracker.RecordListing(listed, version)
	m.listed = true
	clear(m.unsure)
}

// recordInSync records that all slices are right after a plan was written: those that it did not touch count as left
// too. A slice that is neither was deleted by another client, and its endpoints are in the others now.
func (m *memory) recordInSync(desired planner.Desired, observed []*discoveryv1.EndpointSlice, plan planner.Plan) {
	left := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range observed {
		if slice.DeletionTimestamp == nil && desired.Owns(slice) {
			left[slice.Name] = slice
		}
	}
	for _, slice := range plan.Delete {
		delete(left, slice.Name)
	}
	for _, slice := range slices.Concat(plan.Create, plan.Update) {
		if slice.DeletionTimestamp == nil {
			left[slice.Name] = slice
		}
	}
	m.left, m.inSync = left, true
}

// leftSlices returns the slices in left, sorted by name.
func (m *memory) leftSlices() []*discoveryv1.EndpointSlice {
	return sortedByName(slices.Collect(maps.Values(m.left)))
}

func sortedByName(list []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.SortedFunc(slices.Values(list), func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
}
