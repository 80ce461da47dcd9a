package kubenodes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// What clusters say about nodes by convention.
const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	labelMaster       = "node-role.kubernetes.io/master"
	labelExclude      = "node.kubernetes.io/exclude-from-external-load-balancers"
	taintAutoscaler   = "ToBeDeletedByClusterAutoscaler"
	taintShutdown     = "node.cloudprovider.kubernetes.io/shutdown"
)

// Bounds of what is taken over; a real API server stays below them.
const (
	maxLabels     = 500
	maxKey        = 253 + 1 + 63
	maxValue      = 63
	maxIdentifier = 1024
	maxAddresses  = 64
)

// Cordoned is what a cordon means.
type Cordoned uint8

// Keep: a cordon changes nothing (draining on cordon has caused outages). Drain: a
// cordoned node is draining.
const (
	Keep Cordoned = iota
	Drain
)

// Rules are what makes a Node a worker that counts. The zero value selects every worker.
type Rules struct {
	Selector labels.Selector // nil: every worker
	Cordoned Cordoned
}

// Judge reduces a Node to what the roster judges by. It never fails: what cannot be read
// of a Node is left out of the candidate.
func Judge(node *corev1.Node, rules Rules) roster.Candidate {
	c := roster.Candidate{
		Name:        node.Name,
		UID:         string(node.UID),
		ProviderID:  bounded(node.Spec.ProviderID, maxIdentifier),
		SystemUUID:  bounded(node.Status.NodeInfo.SystemUUID, maxIdentifier),
		InternalIPs: internalIPs(node.Status.Addresses),
		State:       state(node, rules.Cordoned),
		Zone:        bounded(node.Labels[corev1.LabelTopologyZone], maxValue),
		Region:      bounded(node.Labels[corev1.LabelTopologyRegion], maxValue),
		Labels:      readable(node.Labels),
	}
	c.Excluded, c.Advice = exclusion(node.Labels, rules.Selector)
	return c
}

// exclusion says why the labels keep a node out, if they do. It judges by all labels,
// also those that are too odd to be told on.
func exclusion(all map[string]string, selector labels.Selector) (roster.Reason, string) {
	for _, role := range []string{labelControlPlane, labelMaster} {
		if _, ok := all[role]; ok {
			return roster.ControlPlane, fmt.Sprintf("The Node has the label %s, and only workers count: remove the label if it is a worker.", role)
		}
	}
	if v, ok := all[labelExclude]; ok && v != "false" {
		return roster.ExcludedByLabel, fmt.Sprintf("The Node has the label %s: remove it, or set it to \"false\", to count the node.", labelExclude)
	}
	if selector != nil && !selector.Matches(labels.Set(all)) {
		return roster.NotSelected, fmt.Sprintf("The Node's labels do not match NODE_SELECTOR %q: label the node, or change the selector.", selector)
	}
	return 0, ""
}

// state judges a node's state. A shutdown that the cloud has seen outweighs everything: who
// is off drains nothing. A leaving node is draining whatever its kubelet says,
// because a node that is not ready may still be served to, and one that leaves must not get more.
func state(node *corev1.Node, cordoned Cordoned) roster.State {
	switch {
	case tainted(node, taintShutdown):
		return roster.NotReady
	case node.DeletionTimestamp != nil, tainted(node, taintAutoscaler):
		return roster.Draining
	case cordoned == Drain && node.Spec.Unschedulable:
		return roster.Draining
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return roster.Ready
		}
	}
	return roster.NotReady
}

func tainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// internalIPs returns the readable InternalIPs, canonical, sorted, each once.
func internalIPs(all []corev1.NodeAddress) []netip.Addr {
	var ips []netip.Addr
	for _, a := range all {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && len(ips) < maxAddresses {
			ips = append(ips, ip.Unmap().WithZone(""))
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}

// readable copies the labels that an API server could have let in.
func readable(all map[string]string) map[string]string {
	fit := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		v := all[k]
		if k != "" && k == bounded(k, maxKey) && v == bounded(v, maxValue) && len(fit) < maxLabels {
			fit[strings.Clone(k)] = strings.Clone(v)
		}
	}
	return fit
}

// bounded returns s, or nothing when it is too long or no text.
func bounded(s string, most int) string {
	if len(s) > most || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// alike reports whether the roster would judge the two the same.
func alike(a, b roster.Candidate) bool {
	return a.Name == b.Name && a.UID == b.UID && a.ProviderID == b.ProviderID && a.SystemUUID == b.SystemUUID &&
		a.State == b.State && a.Zone == b.Zone && a.Region == b.Region && a.Excluded == b.Excluded && a.Advice == b.Advice &&
		slices.Equal(a.InternalIPs, b.InternalIPs) && maps.Equal(a.Labels, b.Labels)
}

// trim keeps of a Node what is judged by.
func trim(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			Labels: node.Labels, DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{
			ProviderID: node.Spec.ProviderID, Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable,
		},
		Status: corev1.NodeStatus{
			Conditions: node.Status.Conditions, Addresses: node.Status.Addresses,
			NodeInfo: corev1.NodeSystemInfo{SystemUUID: node.Status.NodeInfo.SystemUUID},
		},
	}, nil
}
