package report

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/duration"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/inventory/ionoshttp"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

const (
	note        = reportv1.Level_LEVEL_NOTE
	warning     = reportv1.Level_LEVEL_WARNING
	severe      = reportv1.Level_LEVEL_ERROR
	cannotServe = reportv1.Level_LEVEL_CANNOT_SERVE
)

// maxSilence is how long a subscriber may get nothing: three heartbeat intervals of 5 s.
const maxSilence = 15 * time.Second

// Problems returns what is wrong, the most severe first. It is the only definition of a healthy inventory. The report
// must have all lines that its filter selects; problems of single nodes are in their lines.
func Problems(r *inventoryv1.InventoryReport) (all []*reportv1.Problem) {
	f, _ := parseFilter(r.GetFilter(), r.GetStatus() == nil)
	add := func(level reportv1.Level, since *durationpb.Duration, reason, object, format string, args ...any) {
		p := report.NewProblem(level, reason, object, format, args...)
		p.Age = since
		all = append(all, p)
	}
	addSource(r, add)
	if f.namespace == "" && !f.isNode() {
		addGeneral(r, add)
	}
	if f.service != "" && len(r.GetServices()) == 0 {
		add(warning, nil, "ServiceNotInUse", "Service "+f.service, "no client has requested it in the last minutes")
	} else if f.isNode() && len(r.GetNodes()) == 0 {
		addUnknown(r, f, add)
	}
	for _, s := range r.GetServices() {
		if part := s.GetStatus().GetMembership(); part.GetState() != inventoryv1.SyncState_SYNC_STATE_SYNCED {
			add(warning, part.GetAge(), "ServiceNotSynced", "Service "+s.GetName(), "%s", part.GetReason())
		}
	}
	for _, n := range r.GetNodes() {
		if n.GetProblem().GetLevel() > note {
			all = append(all, n.GetProblem())
		}
	}
	report.Sort(all)
	return all
}

type addFunc = func(level reportv1.Level, since *durationpb.Duration, reason, object, format string, args ...any)

// addSource adds the problems that concern every node.
func addSource(r *inventoryv1.InventoryReport, add addFunc) {
	if r.GetSourceError() != "" {
		add(cannotServe, nil, "ClusterNotReached", "", "the secured cluster has not responded yet: %s", r.GetSourceError())
	}
	s := r.GetStatus()
	switch {
	case s == nil: // the Services have their own
	case s.GetObservation() == 0:
		cause := cmp.Or(s.GetMembership().GetReason(), s.GetAddresses().GetReason())
		add(cannotServe, nil, "NotObserved", "", "no complete observation yet: %s", cause)
	case !r.GetPublished():
		add(warning, nil, "NotPublished", "", "clients keep their sets: too few nodes have an address to publish this one")
	}
	addPart(s.GetMembership(), "MembershipNotSynced", "membership", add)
	addPart(s.GetAddresses(), "AddressesNotSynced", "addresses", add)
}

// addGeneral adds the problems of the set as a whole, of the cloud and of the clients.
func addGeneral(r *inventoryv1.InventoryReport, add addFunc) {
	if t := r.GetTotals(); r.GetStatus().GetObservation() > 0 && t.GetReady() == 0 {
		add(severe, nil, "NoNodeReady", "", "none of %s is ready",
			display.Count(int(t.GetDraining()+t.GetNotReady()), "published node", "published nodes"))
	}
	addCloud(r.GetCloud(), add)
	for _, sub := range r.GetSubscribers() {
		silent := sub.GetSentAge()
		if silent == nil {
			silent = sub.GetAge()
		}
		if silent.AsDuration() > maxSilence {
			add(warning, silent, "SubscriberSlow", "client "+sub.GetName(), "it has read nothing for %s", silent.AsDuration())
		}
	}
}

func addPart(part *inventoryv1.PartStatus, reason, object string, add addFunc) {
	switch part.GetState() {
	case inventoryv1.SyncState_SYNC_STATE_DEGRADED:
		add(warning, part.GetAge(), reason, object, "degraded: %s", part.GetReason())
	case inventoryv1.SyncState_SYNC_STATE_UNSYNCED:
		add(severe, part.GetAge(), reason, object, "unsynced: %s", part.GetReason())
	}
}

func addCloud(c *inventoryv1.CloudReport, add addFunc) {
	if c == nil {
		return
	}
	if c.GetRequestsLeft() == 0 {
		add(warning, nil, "RequestBudgetUsedUp", "", "%d requests per minute are used up: the next listing waits", c.GetRequestsPerMinute())
	}
	if c.GetTokenError() != "" {
		add(severe, nil, "TokenUnreadable", "", "the IONOS token cannot be read: %s", c.GetTokenError())
	}
	left := c.GetTokenExpiresIn().AsDuration()
	switch text := "the IONOS token expires in " + duration.HumanDuration(left); {
	case c.GetTokenExpiresIn() == nil || left > ionoshttp.ExpiryWarning:
	case left <= 0:
		add(severe, nil, "TokenExpired", "", "the IONOS token expired %s ago", duration.HumanDuration(-left))
	case left <= ionoshttp.ExpiryCritical:
		add(severe, nil, "TokenExpires", "", "%s", text)
	default:
		add(warning, nil, "TokenExpires", "", "%s", text)
	}
}

// addUnknown adds that the filter selects no node.
func addUnknown(r *inventoryv1.InventoryReport, f filter, add addFunc) {
	switch {
	case r.GetStatus().GetMembership().GetState() == inventoryv1.SyncState_SYNC_STATE_UNSYNCED:
		add(warning, nil, "NodeUnknown", "", "the source has not been read completely yet: %s", r.GetStatus().GetMembership().GetReason())
	case f.address.IsValid():
		add(warning, nil, "NodeUnknown", "address "+f.address.String(), "no node has it")
	default:
		add(warning, nil, "NodeUnknown", "node "+f.node, "it is not in the source")
	}
}

// nodeProblem returns what is wrong with a node, or why it is excluded; nil: it is published, and ready or draining.
func nodeProblem(m *roster.Member, now time.Time) *reportv1.Problem {
	object := "node " + display.Truncate(m.Name, maxFilter)
	switch reason := m.Omission.Reason; {
	case reason != 0:
		level := severe
		if m.Node != nil || reason == source.NotResolvedYet {
			level = warning // a published node keeps the address that it has
		}
		if reason.IsIntended() {
			level = note
		}
		return report.NewProblem(level, reason.String(), object, "%s", m.Omission.Message)
	case m.Node != nil && m.Node.State == source.NotReady:
		p := report.NewProblem(warning, "NodeNotReady", object, "%s", cmp.Or(m.StateReason, "it is not ready"))
		p.Age = age(now, m.Node.Since)
		return p
	}
	return nil
}
