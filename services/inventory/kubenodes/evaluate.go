package kubenodes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"unicode/utf8"
	"unique"

	corev1 "k8s.io/api/core/v1"
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
	maxLabelKey   = 253 + 1 + 63
	maxLabelValue = 63
	maxIdentifier = 1024
	maxAddresses  = 64
)

// CordonPolicy is what a cordon means.
type CordonPolicy uint8

// Keep: a cordon changes nothing (draining on cordon has caused outages). Drain: a
// cordoned node is draining.
const (
	KeepCordoned CordonPolicy = iota
	DrainCordoned
)

// Rules are what makes a Node a worker that counts. The zero value selects every worker.
type Rules struct {
	Selector labels.Selector // nil: every worker
	Cordoned CordonPolicy
	Workload *Workload // nil: a node needs no Pod to be ready
}

// nodeSummary is a Node, reduced to what is judged by. Its candidate lacks the state, which the Pods
// of a workload may decide.
type nodeSummary struct {
	candidate roster.Candidate
	signals   signals
}

// signals are what a Node bears that its state is judged by.
type signals struct {
	ready          bool // the kubelet's own word
	deleting       bool // it has a deletion timestamp
	shutdown       bool // the cloud has shut the machine down
	scaleDownTaint bool // the autoscaler is about to delete it
	cordoned       bool
}

func (s nodeSummary) equal(o nodeSummary) bool {
	return s.signals == o.signals && equalCandidates(s.candidate, o.candidate)
}

// EvaluateNode reduces a Node to what the roster judges by, given no Pod of a workload. It never
// fails: what cannot be read of a Node is left out of the candidate.
func EvaluateNode(node *corev1.Node, rules Rules) roster.Candidate {
	s := summarizeNode(node, rules)
	state, steps := s.evaluateState(rules, podCounts{})
	s.candidate.State, s.candidate.Trail = state, append(s.candidate.Trail, steps...)
	return s.candidate
}

func summarizeNode(node *corev1.Node, rules Rules) nodeSummary {
	if node == nil {
		node = &corev1.Node{}
	}
	s := nodeSummary{
		candidate: roster.Candidate{
			Name:        node.Name,
			UID:         string(node.UID),
			ProviderID:  validOrEmpty(node.Spec.ProviderID, maxIdentifier),
			SystemUUID:  validOrEmpty(node.Status.NodeInfo.SystemUUID, maxIdentifier),
			InternalIPs: internalIPs(node.Status.Addresses),
			Zone:        validOrEmpty(node.Labels[corev1.LabelTopologyZone], maxLabelValue),
			Region:      validOrEmpty(node.Labels[corev1.LabelTopologyRegion], maxLabelValue),
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
	c := &s.candidate
	c.Excluded, c.Advice, c.Trail = checkEligibility(node.Labels, rules.Selector)
	return s
}

// checkEligibility says whether the labels keep a node out, and why. It judges by all labels,
// also those that are too odd to be told on. The first rule that fails decides.
func checkEligibility(all map[string]string, selector labels.Selector) (out roster.Reason, advice string, trail []roster.Step) {
	rule := func(question string, failed bool, reason roster.Reason, saw, tell string) {
		step := roster.Step{Stage: roster.StageEligibility, Question: question, Result: roster.Passed, Saw: saw}
		if failed {
			step.Result = roster.Failed
			if out == 0 {
				out, advice = reason, tell
			}
		}
		trail = append(trail, step)
	}
	role, isControl := "", false
	for _, label := range []string{labelControlPlane, labelMaster} {
		if _, ok := all[label]; ok && !isControl {
			role, isControl = label, true
		}
	}
	rule("Is it a worker?", isControl, roster.ControlPlane, choose(isControl, "it has the label "+role, "no label of a control plane node"),
		fmt.Sprintf("The Node has the label %s, and only workers count: remove the label if it is a worker.", role))

	value, isExcluded := all[labelExclude]
	saw := choose(isExcluded, fmt.Sprintf("%s is %q", labelExclude, validOrEmpty(value, maxLabelValue)), "no label "+labelExclude)
	rule("May load balancers send to it?", isExcluded && value != "false", roster.ExcludedByLabel, saw,
		fmt.Sprintf("The Node has the label %s: remove it, or set it to \"false\", to count the node.", labelExclude))

	if selector == nil || selector.Empty() {
		return out, advice, append(trail, roster.Step{
			Stage: roster.StageEligibility, Question: "Does NODE_SELECTOR match?", Result: roster.Skipped, Saw: "NODE_SELECTOR is not set",
		})
	}
	matches := selector.Matches(labels.Set(all))
	rule("Does NODE_SELECTOR match?", !matches, roster.NotSelected,
		fmt.Sprintf("%q %s the labels", selector, choose(matches, "matches", "does not match")),
		fmt.Sprintf("The Node's labels do not match NODE_SELECTOR %q: label the node, or change the selector.", selector))
	return out, advice, trail
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// evaluateState judges a node's state. A shutdown that the cloud has seen outweighs everything: who
// is off drains nothing. A node that is being deleted drains whatever its kubelet says,
// because a node that is not ready may still be served to, and one that leaves must not get more.
//
// A workload decides in place of a cordon or the autoscaler's mark: as long as a ready Pod of
// it runs there the node is ready, so that a drain ends when the last Pod has left; one
// whose only ready Pods are being deleted is draining, as they are.
func (s nodeSummary) evaluateState(rules Rules, here podCounts) (roster.State, []roster.Step) {
	leaving := s.signals.scaleDownTaint || s.signals.cordoned && rules.Cordoned == DrainCordoned
	state := roster.Ready
	switch {
	case s.signals.shutdown:
		state = roster.NotReady
	case s.signals.deleting:
		state = roster.Draining
	case rules.Workload != nil:
		state = s.stateFromWorkload(leaving, here)
	case leaving:
		state = roster.Draining
	case !s.signals.ready:
		state = roster.NotReady
	}
	return state, s.explainState(rules, here, state)
}

func (s nodeSummary) stateFromWorkload(leaving bool, here podCounts) roster.State {
	switch {
	case s.signals.ready && here.ready > 0:
		return roster.Ready
	case s.signals.ready && here.deleting > 0, leaving:
		return roster.Draining
	}
	return roster.NotReady
}

// explainState tells what the state was judged by, in the order of its weight.
func (s nodeSummary) explainState(rules Rules, here podCounts, state roster.State) []roster.Step {
	var steps []roster.Step
	sign := func(question string, bad, counts bool, saw, not string) {
		step := roster.Step{Stage: roster.StageState, Question: question, Result: roster.Passed, Saw: not}
		switch {
		case bad && counts:
			step.Result, step.Saw = roster.Failed, saw
		case bad:
			step.Result, step.Saw = roster.Skipped, saw
		}
		steps = append(steps, step)
	}
	sign("Is the machine running?", s.signals.shutdown, true, "taint "+taintShutdown, "no taint "+taintShutdown)
	sign("Is the Node to stay?", s.signals.deleting, true, "it has a deletion timestamp", "no deletion timestamp")
	sign("Does the autoscaler keep it?", s.signals.scaleDownTaint, rules.Workload == nil || here.ready == 0, "taint "+taintAutoscaler, "no taint "+taintAutoscaler)
	sign("Is it schedulable?", s.signals.cordoned, rules.Cordoned == DrainCordoned && (rules.Workload == nil || here.ready == 0),
		"cordoned"+choose(rules.Cordoned == DrainCordoned, ", and CORDONED is drain", ", which changes nothing as CORDONED is keep"), "not cordoned")
	sign("Is its kubelet ready?", !s.signals.ready, true, "the condition Ready is not True", "the condition Ready is True")
	if rules.Workload != nil {
		sign("Does a ready Pod of the WORKLOAD run there?", here.ready == 0, true, here.String(), here.String())
	}
	return append(steps, roster.Step{Stage: roster.StageState, Question: "So its state is", Saw: state.String()})
}

func hasTaint(node *corev1.Node, key string) bool {
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

// validLabels copies the labels that an API server could have let in. Nodes share most of their
// texts, and all of their keys: each is kept once.
func validLabels(all map[string]string) map[string]string {
	fit := make(map[string]string, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		v := all[k]
		if k != "" && k == validOrEmpty(k, maxLabelKey) && v == validOrEmpty(v, maxLabelValue) && len(fit) < maxLabels {
			fit[unique.Make(k).Value()] = unique.Make(v).Value()
		}
	}
	return fit
}

// validOrEmpty returns s, or nothing when it is too long or no text.
func validOrEmpty(s string, most int) string {
	if len(s) > most || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// equalCandidates reports whether the roster would judge the two the same, and tell the same of them.
func equalCandidates(a, b roster.Candidate) bool {
	return a.Name == b.Name && a.UID == b.UID && a.ProviderID == b.ProviderID && a.SystemUUID == b.SystemUUID &&
		a.State == b.State && a.Zone == b.Zone && a.Region == b.Region && a.Excluded == b.Excluded && a.Advice == b.Advice &&
		slices.Equal(a.InternalIPs, b.InternalIPs) && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Trail, b.Trail)
}
