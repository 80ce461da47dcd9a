package report

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// maxSilence is how long a subscriber may get nothing: three heartbeat intervals of 5 s.
const maxSilence = 15 * time.Second

// Problems returns what is wrong, the most severe first. It is the only definition of a healthy inventory. The report
// must have all lines that its filter selects; problems of single nodes are in their lines.
func Problems(r *inventoryv1.InventoryReport) []*reportv1.Problem {
	f, _ := parseFilter(r.GetFilter(), r.GetStatus() == nil)
	var all problems
	all.addSource(r)
	if f.Namespace == "" && !f.ByNode() {
		all.addGeneral(r)
	}
	if f.Service != "" && len(r.GetServices()) == 0 {
		all.add(report.Warning, "ServiceNotInUse", "Service "+f.Namespace+"/"+f.Service, "no client has requested it in the last minutes")
	} else if f.ByNode() && len(r.GetNodes()) == 0 {
		all.addUnknown(r, f)
	}
	for _, s := range r.GetServices() {
		if part := s.GetStatus().GetMembership(); part.GetState() != inventoryv1.SyncState_SYNC_STATE_SYNCED {
			all.add(report.Warning, "ServiceNotSynced", "Service "+s.GetName(), "%s", part.GetReason()).Age = part.GetAge()
		}
	}
	for _, n := range r.GetNodes() {
		if n.GetProblem().GetLevel() > report.Note {
			all = append(all, n.GetProblem())
		}
	}
	report.Sort(all)
	return all
}

type problems []*reportv1.Problem

func (all *problems) add(level reportv1.Level, reason, object, format string, args ...any) *reportv1.Problem {
	p := report.NewProblem(level, reason, object, format, args...)
	*all = append(*all, p)
	return p
}

// addSource adds the problems that concern every node.
func (all *problems) addSource(r *inventoryv1.InventoryReport) {
	if r.GetSourceError() != "" {
		all.add(report.CannotServe, "ClusterNotReached", "", "the secured cluster has not responded yet: %s", r.GetSourceError())
	}
	s := r.GetStatus()
	switch {
	case s == nil: // the Services have their own
	case s.GetObservation() == 0:
		cause := cmp.Or(s.GetMembership().GetReason(), s.GetAddresses().GetReason())
		all.add(report.CannotServe, "NotObserved", "", "no complete observation yet: %s", cause)
	case !r.GetPublished() && s.GetMembership().GetState() != inventoryv1.SyncState_SYNC_STATE_WITHHELD:
		all.add(report.Warning, "NotPublished", "", "clients keep their sets: too few nodes have an address to publish this one")
	}
	all.addPart(s.GetMembership(), "MembershipNotSynced", "membership")
	all.addPart(s.GetAddresses(), "AddressesNotSynced", "addresses")
}

// addGeneral adds the problems of the set as a whole, of the cloud and of the clients.
func (all *problems) addGeneral(r *inventoryv1.InventoryReport) {
	if t := r.GetTotals(); r.GetStatus().GetObservation() > 0 && t.GetReady() == 0 {
		all.add(report.Error, "NoNodeReady", "", "none of %s is ready",
			display.Count(int(t.GetDraining()+t.GetNotReady()), "published node", "published nodes"))
	}
	all.addCloud(r.GetCloud())
	for _, sub := range r.GetSubscribers() {
		if silent := cmp.Or(sub.GetSentAge(), sub.GetAge()); silent.AsDuration() > maxSilence {
			all.add(report.Warning, "SubscriberSlow", "client "+sub.GetName(), "it has read nothing for %s", silent.AsDuration()).Age = silent
		}
	}
}

// addPart adds that a part of what is published is not synced.
func (all *problems) addPart(part *inventoryv1.PartStatus, reason, object string) {
	level := report.Error
	switch part.GetState() {
	case inventoryv1.SyncState_SYNC_STATE_UNSPECIFIED, inventoryv1.SyncState_SYNC_STATE_SYNCED:
		return
	case inventoryv1.SyncState_SYNC_STATE_DEGRADED:
		level = report.Warning
	}
	all.add(level, reason, object, "%s: %s", report.Word(part.GetState()), part.GetReason()).Age = part.GetAge()
}

func (all *problems) addCloud(c *inventoryv1.CloudReport) {
	if c == nil {
		return
	}
	if c.GetRequestsLeft() == 0 {
		all.add(report.Warning, "RequestBudgetUsedUp", "", "%d requests per minute are used up: the next waits", c.GetRequestsPerMinute())
	}
	if c.GetTokenError() != "" {
		all.add(report.Error, "TokenUnreadable", "", "the IONOS token cannot be read: %s", c.GetTokenError())
	}
	level := report.Warning
	switch left := c.GetTokenExpiresIn().AsDuration(); {
	case c.GetTokenExpiresIn() == nil || left > ionos.ExpiryWarning:
	case left <= 0:
		all.add(report.Error, "TokenExpired", "", "the IONOS token expired %s ago", duration.HumanDuration(-left))
	case left <= ionos.ExpiryCritical:
		level = report.Error
		fallthrough
	default:
		all.add(level, "TokenExpires", "", "the IONOS token expires in %s", duration.HumanDuration(left))
	}
}

// addUnknown adds that the filter selects no node.
func (all *problems) addUnknown(r *inventoryv1.InventoryReport, f report.Filter) {
	object, message := "node "+f.Node, "it is not in the source"
	if f.Address.IsValid() {
		object, message = "address "+f.Address.String(), "no node has it"
	}
	if part := r.GetStatus().GetMembership(); part.GetState() == inventoryv1.SyncState_SYNC_STATE_UNSYNCED {
		message = "the source has not been read completely yet: " + part.GetReason()
	}
	all.add(report.Warning, "NodeUnknown", object, "%s", message)
}

// nodeProblem returns what is wrong with a node, or why it is excluded; nil: it is published, and ready or draining.
func nodeProblem(m *roster.Member, now time.Time) *reportv1.Problem {
	object := "node " + truncate(m.Name)
	switch reason := m.Omission.Reason; {
	case reason != 0:
		level := report.Error
		if m.IsPublished() || reason == roster.NotResolvedYet {
			level = report.Warning // a published node keeps the address that it has
		}
		if reason.IsIntended() {
			level = report.Note
		}
		return report.NewProblem(level, reason.String(), object, "%s", m.Omission.Message)
	case m.IsPublished() && m.State == roster.NotReady:
		p := report.NewProblem(report.Warning, "NodeNotReady", object, "%s", cmp.Or(m.StateReason, "it is not ready"))
		p.Age = report.Age(m.Since, now)
		return p
	}
	return nil
}
