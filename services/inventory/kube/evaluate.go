package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/roster"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Labels and taints that clusters use by convention.
const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	labelMaster       = "node-role.kubernetes.io/master"
	labelExclude      = "node.kubernetes.io/exclude-from-external-load-balancers"
	taintAutoscaler   = "ToBeDeletedByClusterAutoscaler"
	taintShutdown     = "node.cloudprovider.kubernetes.io/shutdown"
)

// Limits of what is copied from a Node; a real API server stays below them.
const (
	maxLabels     = 500
	maxIdentifier = 1024
	maxAddresses  = 64
)

// Rules decide whether a Node is eligible, and its state. The zero value selects every worker.
type Rules struct {
	Selector      labels.Selector // nil: every worker
	DrainCordoned bool            // off by default, because draining on cordon has caused outages
	Workload      *Workload       // nil: the state of a node does not depend on Pods
}

// nodeSummary is what is kept of a Node. Its node has no state yet: that may depend on the
// Pods of the workload.
type nodeSummary struct {
	node    roster.Node
	signals signals
}

// signals are the properties of a Node that determine its state.
type signals struct {
	ready          bool // the kubelet reports it
	deleting       bool // the Node has a deletion timestamp
	shutdown       bool // the cloud provider has shut the machine down
	scaleDownTaint bool // the autoscaler is about to delete the machine
	cordoned       bool
}

func (s nodeSummary) equal(o nodeSummary) bool {
	return s.signals == o.signals && s.node.Equal(o.node)
}

// EvaluateNode evaluates a Node on which no Pod of the workload runs. It never fails: invalid fields of the Node are
// left out.
func EvaluateNode(node *corev1.Node, rules Rules) roster.Node {
	return summarizeNode(node, rules).evaluate(rules, podCounts{})
}

// evaluate returns the node with the state that follows from these Pods.
func (s nodeSummary) evaluate(rules Rules, pods podCounts) roster.Node {
	n := s.node
	n.State, n.StateReason = s.evaluateState(rules, pods)
	return n
}

func summarizeNode(node *corev1.Node, rules Rules) nodeSummary {
	provider := node.Spec.ProviderID // not dropped if it is too long: then the name could pick another server
	s := nodeSummary{
		node: roster.Node{
			Name:        node.Name,
			UID:         string(node.UID),
			ProviderID:  strings.ToValidUTF8(provider[:min(len(provider), maxIdentifier)], "?"),
			SystemUUID:  roster.KeepValid(node.Status.NodeInfo.SystemUUID, maxIdentifier),
			InternalIPs: internalIPs(node.Status.Addresses),
			Zone:        roster.KeepValid(node.Labels[corev1.LabelTopologyZone], contract.MaxLabelValueLength),
			Region:      roster.KeepValid(node.Labels[corev1.LabelTopologyRegion], contract.MaxLabelValueLength),
			Labels:      validLabels(node.Labels),
		},
		signals: signals{
			deleting:       node.DeletionTimestamp != nil,
			shutdown:       hasTaint(node, taintShutdown),
			scaleDownTaint: hasTaint(node, taintAutoscaler),
			cordoned:       node.Spec.Unschedulable,
		},
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			s.signals.ready = true
		}
	}
	s.node.Excluded, s.node.ExcludedBy = checkEligibility(node.Labels, rules.Selector)
	return s
}

// checkEligibility returns why the labels exclude a node, or 0, and what says so. It evaluates all labels,
// including invalid ones, which are not published.
func checkEligibility(all map[string]string, selector labels.Selector) (excluded roster.OmissionReason, by string) {
	for _, label := range []string{labelControlPlane, labelMaster} {
		if _, ok := all[label]; ok {
			return roster.ControlPlane, "it has the label " + label
		}
	}
	if value, ok := all[labelExclude]; ok {
		if excludes, err := strconv.ParseBool(value); err != nil || excludes { // as Kubernetes reads it (kubernetes#131085)
			return roster.ExcludedByLabel, "it has the label " + labelExclude
		}
	}
	if selector != nil && !selector.Matches(labels.Set(all)) {
		return roster.NotSelected, fmt.Sprintf("NODE_SELECTOR %q does not match its labels", selector)
	}
	return 0, ""
}

// evaluateState returns a node's state and why it is that, which may depend on the Pods of a workload. A shutdown
// by the cloud provider comes first: a machine that is off cannot drain. A node that is being deleted is
// draining even if its kubelet is not ready: it may still serve open connections, and it must
// not get new ones.
//
// A workload takes precedence over a cordon or the autoscaler's taint: a node with a ready Pod is
// ready, so that a drain ends when the last Pod has left. A node whose only ready Pods are being
// deleted is draining, as they are.
func (s nodeSummary) evaluateState(rules Rules, pods podCounts) (state roster.NodeState, reason string) {
	kubelet := "its kubelet is ready"
	if !s.signals.ready {
		kubelet = "its kubelet is not ready"
	}
	leaving := ""
	switch {
	case s.signals.scaleDownTaint:
		leaving = "the autoscaler is about to delete its machine (taint " + taintAutoscaler + ")"
	case s.signals.cordoned && rules.DrainCordoned:
		leaving = "it is cordoned, and CORDONED is drain"
	case s.signals.cordoned:
		kubelet += "; it is cordoned, without effect because CORDONED is keep"
	}
	switch {
	case s.signals.shutdown:
		return roster.NotReady, "its machine is shut down (taint " + taintShutdown + ")"
	case s.signals.deleting:
		return roster.Draining, "the Node is being deleted"
	case rules.Workload != nil:
		if leaving != "" {
			kubelet += "; " + leaving
		}
		return s.stateFromWorkload(leaving != "", pods), fmt.Sprintf("%s; Pods of WORKLOAD: %s", kubelet, pods)
	case leaving != "":
		return roster.Draining, leaving
	case !s.signals.ready:
		return roster.NotReady, kubelet
	}
	return roster.Ready, kubelet
}

func (s nodeSummary) stateFromWorkload(isLeaving bool, pods podCounts) roster.NodeState {
	switch {
	case s.signals.ready && pods.ready > 0:
		return roster.Ready
	case s.signals.ready && pods.readyDeleting > 0, isLeaving:
		return roster.Draining
	}
	return roster.NotReady
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// internalIPs returns the valid InternalIPs in canonical form, each once, in the order of the Node: the first of a
// family is the one that Kubernetes uses.
func internalIPs(all []corev1.NodeAddress) []netip.Addr {
	var ips []netip.Addr
	for _, a := range all {
		if a.Type != corev1.NodeInternalIP || len(ips) == maxAddresses {
			continue
		}
		ip, err := netip.ParseAddr(a.Address)
		if ip = ip.Unmap().WithZone(""); err == nil && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// validLabels copies the labels that an API server could have accepted.
func validLabels(all map[string]string) map[string]string {
	valid := make(map[string]string, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		v := all[k]
		if k != "" && k == roster.KeepValid(k, contract.MaxLabelKeyLength) && v == roster.KeepValid(v, contract.MaxLabelValueLength) &&
			len(valid) < maxLabels {
			valid[k] = v
		}
	}
	return valid
}
