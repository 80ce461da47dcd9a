package applier

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// record is what we know of one slice besides what the cache says.
type record struct {
	service types.UID // of the Service it was written for

	// known is the last reign in which the API server told us of it, by a write or a read. What only a cache
	// has shown may be from before.
	known int
	// ours is the slice as we last wrote it, or found it right; nil: we have no word on it.
	ours *discoveryv1.EndpointSlice
	// newest is the newest that we were answered, by a write or a read; nil: none.
	newest *discoveryv1.EndpointSlice
	// gone is the UID of one that is deleted, and last the version that it had: a cache that still
	// shows it, or one of its name from before, is behind.
	gone types.UID
	last string
	// sent is a write whose fate is not known; asked is its verb.
	sent  *discoveryv1.EndpointSlice
	asked verb
}

// Current is what the slices are now: the cache's, overlaid with what we were answered
// since. version is how new the cache is; see targets.View.
func (a *Applier) Current(cached []*discoveryv1.EndpointSlice, version string) []*discoveryv1.EndpointSlice {
	a.mu.Lock()
	defer a.mu.Unlock()
	current := make([]*discoveryv1.EndpointSlice, 0, len(cached))
	shown := make(map[key]struct{}, len(cached))
	for _, slice := range cached {
		k := key{slice.Namespace, slice.Name}
		r := a.records[k]
		if r != nil && r.gone != "" && (slice.UID == r.gone || newer(r.last, slice.ResourceVersion)) {
			continue
		}
		shown[k] = struct{}{}
		if r != nil && r.newest != nil && newer(r.newest.ResourceVersion, slice.ResourceVersion) {
			slice = r.newest
		}
		current = append(current, slice)
	}
	for k, r := range a.records {
		if _, ok := shown[k]; !ok && r.newest != nil && newer(r.newest.ResourceVersion, version) {
			current = append(current, r.newest) // too new for the cache
		}
	}
	sortByName(current)
	return current
}

// Held is current with our own slices as we left them: what others took from them is still
// held, what they added is not. Slices that we have no word on are taken as they are: after a
// restart they are all that is known.
func (a *Applier) Held(service corev1.ObjectReference, current []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := make([]*discoveryv1.EndpointSlice, 0, len(current))
	shown := make(map[key]struct{}, len(current))
	for _, slice := range current {
		k := key{slice.Namespace, slice.Name}
		shown[k] = struct{}{}
		if r := a.records[k]; r != nil && r.ours != nil && r.service == service.UID {
			slice = r.ours
		}
		held = append(held, slice)
	}
	for k, r := range a.records {
		if _, ok := shown[k]; !ok && k.namespace == service.Namespace && r.ours != nil && r.service == service.UID {
			held = append(held, r.ours)
		}
	}
	sortByName(held)
	return held
}

// Forget drops what we wrote: whoever leads now has the word, or the Service is ours no
// longer. What the cache may not have seen yet stays known.
func (a *Applier) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.records {
		r.ours = nil
	}
	a.repair = budget{}
	a.reign++
}

// record gives the slice's record, for this Service from now on.
func (a *Applier) record(service types.UID, k key) *record {
	r := a.records[k]
	if r == nil {
		r = &record{}
		a.records[k] = r
	}
	if r.service != service {
		r.service, r.ours = service, nil
	}
	return r
}

// wrote notes a write that took place. What we sent is our word, even where the API server
// answered with something else: that was someone's change.
func (a *Applier) wrote(service corev1.ObjectReference, verb verb, sent, answer *discoveryv1.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(service.UID, key{sent.Namespace, sent.Name})
	r.sent, r.known = nil, a.begun
	if verb == remove {
		r.ours, r.newest, r.gone, r.last = nil, nil, sent.UID, sent.ResourceVersion
		return
	}
	r.newest, r.gone = answer, ""
	a.claim(r, sent)
}

// claim takes a slice for our word. What the API server has not told us of in this reign is none: whoever
// led meanwhile has the word, and the cache may be older than what he wrote.
func (a *Applier) claim(r *record, slice *discoveryv1.EndpointSlice) {
	if r.known == a.reign {
		r.ours = slice
	}
}

// doubt notes a write whose fate is not known.
func (a *Applier) doubt(service corev1.ObjectReference, verb verb, sent *discoveryv1.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(service.UID, key{sent.Namespace, sent.Name})
	r.sent, r.asked = sent, verb
}

func (a *Applier) doubted(service corev1.ObjectReference) []key {
	a.mu.Lock()
	defer a.mu.Unlock()
	var keys []key
	for k, r := range a.records {
		if r.sent != nil && r.service == service.UID && k.namespace == service.Namespace {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.name, b.name) })
	return keys
}

// found notes what a slice is, read just now; nil: it is not there.
func (a *Applier) found(k key, slice *discoveryv1.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[k]
	if r == nil {
		return
	}
	sent, asked := r.sent, r.asked
	r.sent, r.known = nil, a.begun
	if slice == nil {
		r.newest = nil
		if sent != nil && sent.UID != "" {
			r.gone, r.last = sent.UID, sent.ResourceVersion
			if asked == remove {
				r.ours = nil // it took place
			}
		}
		return
	}
	r.newest, r.gone = slice, ""
	if sent != nil && asked != remove && same(sent, slice) {
		a.claim(r, sent) // it took place
	}
}

// settle notes what was right without a write as ours, and lets go of what is over.
func (a *Applier) settle(service corev1.ObjectReference, desired planner.Desired, current []*discoveryv1.EndpointSlice, plan planner.Plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settled = a.begun
	there := map[key]struct{}{}
	for _, slice := range slices.Concat(plan.Create, plan.Update) {
		there[key{slice.Namespace, slice.Name}] = struct{}{}
	}
	deleted := map[key]struct{}{}
	for _, slice := range plan.Delete {
		deleted[key{slice.Namespace, slice.Name}] = struct{}{}
	}
	for _, slice := range current {
		k := key{slice.Namespace, slice.Name}
		if _, ok := deleted[k]; ok || slice.DeletionTimestamp != nil || !desired.Owns(slice) {
			continue
		}
		if _, written := there[k]; !written {
			a.claim(a.record(service.UID, k), slice)
		}
		there[k] = struct{}{}
	}
	// Everything desired is in the slices that are there: of one that is not, someone
	// else's deletion has been made good elsewhere.
	for k, r := range a.records {
		if _, ok := there[k]; !ok && r.service == service.UID && k.namespace == service.Namespace {
			r.ours = nil
		}
	}
}

// same compares what a slice says, not who wrote it when.
func same(a, b *discoveryv1.EndpointSlice) bool {
	return a.AddressType == b.AddressType &&
		equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints) &&
		equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		a.Annotations[corev1.EndpointsLastChangeTriggerTime] == b.Annotations[corev1.EndpointsLastChangeTriggerTime] &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// newer compares resourceVersions, which are numbers that grow. What is none, or is not
// known, makes the cache the judge.
func newer(a, b string) bool {
	if b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

func sortByName(list []*discoveryv1.EndpointSlice) {
	slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
}
