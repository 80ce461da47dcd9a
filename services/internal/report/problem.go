// Package report is what the reports of both components have in common: how a problem is worded, ordered and
// fixed, and how a report is printed. It guarantees that a problem says the same wherever a person meets it.
// It does not decide what is a problem: the function Problems of each component does.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Problem is something that a person should know.
type Problem = reportv1.Problem

// Level says how bad a problem is.
type Level = reportv1.Level

// The levels.
const (
	Note        = reportv1.Level_LEVEL_NOTE
	Warning     = reportv1.Level_LEVEL_WARNING
	Error       = reportv1.Level_LEVEL_ERROR
	CannotServe = reportv1.Level_LEVEL_CANNOT_SERVE
)

// maxMessage is the length of a problem's message, in characters.
const maxMessage = 100

// NewProblem returns a problem with the advice for its reason. A message that is too long is cut off, one with text
// from elsewhere stays in its line, and none ends with a period.
func NewProblem(level Level, reason, object, format string, args ...any) *Problem {
	message := strings.TrimSuffix(display.Sanitize(fmt.Sprintf(format, args...)), ".")
	if utf8.RuneCountInString(message) > maxMessage {
		message = string([]rune(message)[:maxMessage-1]) + "…"
	}
	return &Problem{Level: level, Reason: reason, Object: object, Message: message, Advice: advice[reason]}
}

// WithAdvice returns a message and the advice for its reason as sentences, where both stand in one text.
func WithAdvice(reason, message string) string {
	return strings.TrimSuffix(strings.TrimSuffix(message, ".")+". "+advice[reason], " ")
}

// Sort puts the most severe problems first, and otherwise keeps their order.
func Sort(all []*Problem) {
	slices.SortStableFunc(all, func(a, b *Problem) int { return cmp.Compare(b.GetLevel(), a.GetLevel()) })
}

// Worst returns the most severe of some problems, or nil.
func Worst(all []*Problem) (worst *Problem) {
	for _, p := range all {
		if p.GetLevel() > worst.GetLevel() {
			worst = p
		}
	}
	return worst
}

// Age is the time since then in whole seconds; nil: then is unknown. Clocks may be set back: it is never negative.
func Age(then, now time.Time) *durationpb.Duration {
	if then.IsZero() {
		return nil
	}
	return durationpb.New(max(now.Sub(then), 0).Truncate(time.Second))
}

// IsHealthy reports whether there is nothing that a person should look at.
func IsHealthy(all []*Problem) bool {
	return Worst(all).GetLevel() <= Note
}

// advice says how to fix the problems of a reason. Reasons that need nothing done have none.
var advice = map[string]string{ //nolint:gosec // G101: it names tokens, and has none
	// Of an inventory.
	"AddressesNotSynced":  "Known addresses stay. Check the IONOS API and its token, or SECURED_SUBNET_CIDR.",
	"AmbiguousServer":     "Set the Node's provider ID to ionos://SERVER-ID of the server that it runs on.",
	"ClusterNotReached":   "Check SECURED_KUBECONFIG, the network and the ServiceAccount.",
	"ControlPlane":        "If it is a worker, remove the label, or set worker to true in its record.",
	"ExcludedByLabel":     "Remove the label, or set it to \"false\", to include the node.",
	"InvalidRecord":       "Correct the data where it comes from. Until then, what is published of the node stays.",
	"MembershipNotSynced": "Known nodes stay. Check what SOURCE_KIND reads; preflight names missing permissions.",
	"NoAddressOnLAN":      "Attach a NIC to the LAN, and check IONOS_PRIVATE_LAN_ID; without IONOS, check the node's InternalIP.",
	"NoNodeReady":         "Look at the nodes in the secured cluster, and at CORDONED, WORKLOAD and NODE_SELECTOR.",
	"NodeNotReady":        "Look at the node in the secured cluster.",
	"NodeUnknown":         "Check the name, and that this inventory reads the node's cluster.",
	"NotFoundInIONOS":     "Check IONOS_DATACENTER_ID and the Node's provider ID, or delete the Node if its server is gone.",
	"NotObserved":         "Wait, or fix what the message says; preflight checks what the inventory needs.",
	"NotPublished":        "Wait for the next listing of the cloud, or fix the problems of the nodes.",
	"NotResolvedYet":      "Wait for the next listing of the cloud, within a minute.",
	"NotSelected":         "To publish it, label the Node, or change NODE_SELECTOR.",
	"OutsideSubnet":       "Check SECURED_SUBNET_CIDR.",
	"RequestBudgetUsedUp": "Find out what needs so many listings, or raise IONOS_REQUEST_BUDGET.",
	"ServiceNotInUse":     "Check the name, and that a writer requests this Service.",
	"ServiceNotSynced":    "Check that the Service exists and has the labels that SOURCE_SERVICE_SELECTOR requires.",
	"SharedAddress":       "Give each server an address of its own, and delete the Nodes that are gone.",
	"SubscriberSlow":      "Check the writer and the network to it. It gets the newest state once it reads again.",
	"TokenExpired":        "Create a new token. IONOS_TOKEN_FILE is read again without a restart.",
	"TokenExpires":        "Create a new token. IONOS_TOKEN_FILE is read again without a restart.",
	"TokenUnreadable":     "Check IONOS_TOKEN_FILE.",

	// Of a writer, about itself and its sources.
	"CachesNotSynced":       "Check that the API server of the consuming cluster responds, and the writer's permissions.",
	"ServiceImportsMissing": "Install the CustomResourceDefinition of sigs.k8s.io/mcs-api, or unset SERVICE_IMPORTS.",
	"InitialSyncIncomplete": "Wait until each Service has its first decision. If this persists, read the writer's log.",
	"NoServices":            "Check the label slicefeed.dev/class of the Service, and that the writer watches its namespace.",
	"SourceDegraded":        "Nodes that are new or have moved are missing until then. See the report of its inventory.",
	"SourceDisconnected":    "Check the inventory and the link to it: the writer's log has the reason. The last reports stay in effect.",

	// Guards.
	"AddressNotAllowed": "If the addresses are right, extend ALLOWED_CIDRS, or cidrs in SOURCES_FILE.",
	"SourceNotSynced":   "Only probes change its endpoints. Check the link to its inventory, and that it exports the Service and grants it.",
	"AllProbesFailing":  "Usually the writer cannot reach the backends: check the network between them, then the backends.",
	"SourceEmpty":       "They leave once EMPTY_RESULT_THRESHOLD observations confirm it. If this is unexpected, check its inventory.",
	"SourceNotTrusted":  "Only probes change them. Check its inventory and the link to it.",
	"SourceExpired":     "They return once it is trusted. Check its inventory and the link to it.",
	"FailoverActive":    "They leave once enough others have been ready for a minute. Check the inventories and backends of those.",
	"LastEndpointsKept": "They may still answer. To empty the Service, delete it or opt it out.",
	"ShrinkLimited":     "At most half leave per SHRINK_WINDOW, each batch after a newer observation. If this is unexpected, check its inventory.",

	// A Service that is not managed, or not as it asks for.
	"ServiceNotFound":      "Create it without a selector.",
	"ServiceHasSelector":   "Remove spec.selector, then delete what remains: the Endpoints object of its name, and its slices with label endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io.",
	"ExternalName":         "Use ClusterIP, NodePort or LoadBalancer.",
	"LocalTrafficPolicy":   "Set it to Cluster.",
	"TooManyPorts":         "Split it.",
	"NamedTargetPort":      "Use a number, such as the NodePort in the secured cluster.",
	"InvalidTargetPort":    "Use 1 to 65535.",
	"AmbiguousTargetPort":  "Unset it and give each port a numeric targetPort.",
	"NoProbePort":          "Set slicefeed.dev/probe-port, or turn probing off.",
	"InvalidServiceImport": "Correct the ServiceImport.",
	"LegacyEndpoints":      "Delete the Endpoints object of its name: its addresses would be mixed with ours.",
	"OwnedByOtherWriter":   "Give one of the two installations another CLASS.",
	"OrphanedSlices":       "Label it slicefeed.dev/class=CLASS to manage them again, or slicefeed.dev/class=none to delete them. Those of an earlier TARGET_MANAGED_BY, delete by hand.",
	"InvalidAnnotation":    "Correct the annotations of the Service. Until then settings accepted before stay in effect; without any it is not managed.",
	"SourceRequired":       "Set annotation slicefeed.dev/source to one or more of them.",
	"UnknownSource":        "Correct slicefeed.dev/source, or add it to SOURCES_FILE.",
	"NamespaceNotAllowed":  "Use another source, or add the namespace to it in SOURCES_FILE.",
	"PortNotAllowed":       "Change it, set slicefeed.dev/ports.SOURCE, or add it to ALLOWED_PORTS or to the source's ports in SOURCES_FILE.",
	"LabelRemoved":         "To keep them, label it slicefeed.dev/class=CLASS again; to delete them now, slicefeed.dev/class=none.",
	"ClassChanged":         "The slices of this class are deleted then. To keep them, change the label back.",
	"Paused":               "Remove annotation slicefeed.dev/paused to resume.",

	// What else a person should know of a Service.
	"OutOfSync":                "If this persists, see its last writes, and the Event WriteRejected.",
	"NoNodeSelected":           "Correct the annotation; EXPORT_LABELS of the inventory must name its labels, and a node needs an address of the Service's family.",
	"NoReadyEndpoints":         "See the addresses of the Service in the report: each says why it is not ready.",
	"ForeignSlices":            "Consumers use their endpoints too. Delete them unless this is intended.",
	"OtherClass":               "Its writer deletes them within a minute after a change of class. Delete them if that writer no longer runs.",
	"PublishNotReadyAddresses": "kube-proxy and CoreDNS ignore it on slices, others may not: set it to false, or slicefeed.dev/list-unready: \"false\".",
	"TrafficDistribution":      "Endpoints of this writer have no zone hints. Remove it, unless another consumer such as a mesh reads it.",
	"SourcePortMismatch":       "Set targetPort or TARGET_PORT unless this is intended.",
	"WriteRejected":            "The Service keeps its current endpoints. Fix the permission, admission policy or quota.",
	"RepairsBackedOff":         "Stop the other writer of the slice.",
	"ChangedByAdmission":       "It stays as it is: a repair would be changed too. Unless this is intended, exempt EndpointSlices from that policy or webhook.",

	// An address.
	"NotReported":  "See the report of the inventory that should publish it: it says why a node is omitted. Check the node selector of the Service.",
	"ProbeFailing": "Check the backend at this address and the network between writer and backend.",
	"ProbePending": "A new address is listed once its probe passes.",
	"StateUnknown": "Update the writer: the inventory is newer.",
}
