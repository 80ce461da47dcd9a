package roster

import (
	"fmt"
)

func (r *Roster) publishAll(names []string, changes memberChanges) {
	for _, name := range names {
		if m := r.members[name]; m != nil {
			r.publish(m, changes)
		}
	}
}

// publish publishes or omits a member by what was decided about it.
func (r *Roster) publish(m *member, changes memberChanges) {
	holding := r.assigner.Holding(m.Name)
	switch {
	case m.Excluded != 0:
		r.setPublished(m, nil, Omission{Reason: m.Excluded, Message: m.ExcludedBy}, changes)
	case !holding.Assigned.Empty():
		node := &Node{
			Name:       m.Name,
			UID:        m.UID,
			Addresses:  holding.Assigned.List(),
			State:      m.State,
			Since:      m.stateSince,
			Zone:       m.Zone,
			Region:     m.Region,
			Hostname:   m.Hostname,
			Ports:      m.Ports,
			Labels:     r.exportedLabels(m.Labels),
			ProviderID: m.ProviderID,
			ServerID:   m.serverID,
		}
		if equalNodes(node, m.Published) {
			node = m.Published
		}
		r.setPublished(m, node, Omission{}, changes)
	case !holding.Contested.Empty():
		contested := holding.Contested.List()[0]
		r.setPublished(m, nil, Omission{Reason: SharedAddress, Message: fmt.Sprintf(
			"node %s has its address %s", holding.Owners[Family(contested)], contested)}, changes)
	default:
		r.setPublished(m, nil, m.resolved.Omission, changes)
	}
}

// exportedLabels returns those labels that EXPORT_LABELS names.
func (r *Roster) exportedLabels(all map[string]string) map[string]string {
	var exported map[string]string
	for _, key := range r.exportLabels {
		if value, ok := all[key]; ok {
			if exported == nil {
				exported = make(map[string]string, len(r.exportLabels))
			}
			exported[key] = value
		}
	}
	return exported
}

// setPublished replaces what is published of a member and updates the counts.
func (r *Roster) setPublished(m *member, node *Node, omission Omission, changes memberChanges) {
	old, eligible := m.Published, m.Excluded == 0
	if old == node && m.Omission == omission && m.eligible == eligible {
		return
	}
	if _, ok := r.pending[m.Name]; !ok && old != node {
		r.pending[m.Name] = old
	}
	r.count(m, -1)
	m.Published, m.Omission, m.eligible = node, omission, eligible
	r.count(m, +1)
	switch {
	case old == nil && node != nil:
		m.misses = misses{}
		changes[m.Name]++
	case old != nil && node == nil:
		changes[m.Name]--
	}
	setMember(r.unresolved, m, node == nil && eligible)
}

// count adds what is published of a member to the counts, or removes it from them.
func (r *Roster) count(m *member, by int) {
	switch {
	case m.Published != nil:
		r.published += by
		r.eligible += by
		r.states[min(m.Published.State, NotReady)] += by
	case m.Omission.Reason != 0:
		r.omitted[min(m.Omission.Reason, InvalidRecord)] += by
		if m.eligible {
			r.eligible += by
		}
	}
}
