// Package report is what the reports of both components have in common: how a problem is worded, ordered and
// fixed, and how a report is printed. It guarantees that a problem says the same wherever a person meets it.
// It does not decide what is a problem: the function Problems of each component does.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
)

// maxMessage is the length of a problem's message, in characters.
const maxMessage = 100

// NewProblem returns a problem with the advice for its reason. A message that is too long is cut off.
func NewProblem(level reportv1.Level, reason, object, format string, args ...any) *reportv1.Problem {
	message := strings.ToValidUTF8(fmt.Sprintf(format, args...), "?")
	if utf8.RuneCountInString(message) > maxMessage {
		message = string([]rune(message)[:maxMessage-1]) + "…"
	}
	return &reportv1.Problem{Level: level, Reason: reason, Object: object, Message: message, Advice: advice[reason]}
}

// Sort puts the most severe problems first, and otherwise keeps their order.
func Sort(all []*reportv1.Problem) {
	slices.SortStableFunc(all, func(a, b *reportv1.Problem) int { return cmp.Compare(b.GetLevel(), a.GetLevel()) })
}

// Worst returns the most severe of some problems, or nil.
func Worst(all []*reportv1.Problem) (worst *reportv1.Problem) {
	for _, p := range all {
		if p.GetLevel() > worst.GetLevel() {
			worst = p
		}
	}
	return worst
}

// IsHealthy reports whether there is nothing that a person should look at.
func IsHealthy(all []*reportv1.Problem) bool {
	return Worst(all).GetLevel() <= reportv1.Level_LEVEL_NOTE
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
}
