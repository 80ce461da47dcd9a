package kubenodes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/inventory/source"
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
	maxLabelKey   = 253 + 1 + 63
	maxLabelValue = 63
	maxIdentifier = 1024
	maxAddresses  = 64
)

// CordonPolicy is the effect of a cordon on the state of a node.
type CordonPolicy uint8

const (
	// KeepCordoned gives a cordon no effect, because draining on cordon has caused outages.
	KeepCordoned CordonPolicy = iota
	// DrainCordoned makes a cordoned node draining.
	DrainCordoned
)

// Rules decide whether a Node is eligible, and its state. The zero value selects every worker.
type Rules struct {
	Selector labels.Selector // nil: every worker
	Cordoned CordonPolicy
	Workload *Workload // nil: the state of a node does not depend on Pods
}

// nodeSummary is what is kept of a Node. Its candidate has no state yet: that may depend on the
// Pods of the workload.
type nodeSummary struct {
	candidate source.Candidate
	signals   signals
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
	return s.signals == o.signals && s.candidate.Equal(o.candidate)
}

// EvaluateNode returns the candidate for a Node on which no Pod of the workload runs. It never
// fails: the candidate omits invalid fields of the Node.
func EvaluateNode(node *corev1.Node, rules Rules) source.Candidate {
	return summarizeNode(node, rules).evaluate(rules, podCounts{})
}

// evaluate returns the candidate for a Node with these Pods.
func (s nodeSummary) evaluate(rules Rules, pods podCounts) source.Candidate {
	c := s.candidate
	c.State = s.evaluateState(rules.Cordoned, rules.Workload != nil, pods)
	c.Steps = slices.Concat(c.Steps, s.explainState(rules, pods, c.State))
	return c
}

func summarizeNode(node *corev1.Node, rules Rules) nodeSummary {
	if node == nil {
		node = &corev1.Node{}
	}
	s := nodeSummary{
		candidate: source.Candidate{
			Name:        node.Name,
			UID:         string(node.UID),
			ProviderID:  source.KeepValid(node.Spec.ProviderID, maxIdentifier),
			SystemUUID:  source.KeepValid(node.Status.NodeInfo.SystemUUID, maxIdentifier),
			InternalIPs: internalIPs(node.Status.Addresses),
			Zone:        source.KeepValid(node.Labels[corev1.LabelTopologyZone], maxLabelValue),
			Region:      source.KeepValid(node.Labels[corev1.LabelTopologyRegion], maxLabelValue),
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
	c.Excluded, c.Advice, c.Steps = checkEligibility(node.Labels, rules.Selector)
	return s
}

// checkEligibility returns why the labels exclude a node, or 0. It evaluates all labels, including
// invalid ones, which are not published. The first rule that fails decides.
func checkEligibility(
	all map[string]string,
	selector labels.Selector,
) (excluded source.OmissionReason, advice string, steps []source.Step) {
	rule := func(question string, failed bool, reason source.OmissionReason, detail, adviceIfFailed string) {
		step := source.Step{Stage: source.StageEligibility, Question: question, Result: source.Passed, Detail: detail}
		if failed {
			step.Result = source.Failed
			if excluded == 0 {
				excluded, advice = reason, adviceIfFailed
			}
		}
		steps = append(steps, step)
	}
	role, isControl := "", false
	for _, label := range []string{labelControlPlane, labelMaster} {
		if _, ok := all[label]; ok && !isControl {
			role, isControl = label, true
		}
	}
	rule("Is it a worker?", isControl, source.ControlPlane, choose(isControl, "label "+role, "no control plane label"),
		fmt.Sprintf("The Node has the label %s, so it is not a worker. Remove the label if it is one.", role))

	value, isExcluded := all[labelExclude]
	detail := choose(isExcluded, fmt.Sprintf("%s is %q", labelExclude, source.KeepValid(value, maxLabelValue)), "no label "+labelExclude)
	rule("May load balancers use it?", isExcluded && value != "false", source.ExcludedByLabel, detail,
		fmt.Sprintf("The Node has the label %s. Remove it, or set it to \"false\", to include the node.", labelExclude))

	if selector == nil || selector.Empty() {
		return excluded, advice, append(steps, source.Step{
			Stage:    source.StageEligibility,
			Question: "Does NODE_SELECTOR match?",
			Result:   source.Skipped,
			Detail:   "NODE_SELECTOR is not set",
		})
	}
	matches := selector.Matches(labels.Set(all))
	rule("Does NODE_SELECTOR match?", !matches, source.NotSelected,
		fmt.Sprintf("%q %s the labels", selector, choose(matches, "matches", "does not match")),
		fmt.Sprintf("The Node's labels do not match NODE_SELECTOR %q. Label the Node or change the selector.", selector))
	return excluded, advice, steps
}

func choose(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

// evaluateState returns a node's state, which may depend on the Pods of a workload. A shutdown by the cloud
// provider comes first: a machine that is off cannot drain. A node that is being deleted is
// draining even if its kubelet is not ready: it may still serve open connections, and it must
// not get new ones.
//
// A workload takes precedence over a cordon or the autoscaler's taint: a node with a ready Pod is
// ready, so that a drain ends when the last Pod has left. A node whose only ready Pods are being
// deleted is draining, as they are.
func (s nodeSummary) evaluateState(policy CordonPolicy, needsPods bool, pods podCounts) source.NodeState {
	isLeaving := s.signals.scaleDownTaint || s.signals.cordoned && policy == DrainCordoned
	switch {
	case s.signals.shutdown:
		return source.NotReady
	case s.signals.deleting:
		return source.Draining
	case needsPods:
		return s.stateFromWorkload(isLeaving, pods)
	case isLeaving:
		return source.Draining
	case !s.signals.ready:
		return source.NotReady
	}
	return source.Ready
}

func (s nodeSummary) stateFromWorkload(isLeaving bool, pods podCounts) source.NodeState {
	switch {
	case s.signals.ready && pods.ready > 0:
		return source.Ready
	case s.signals.ready && pods.readyDeleting > 0, isLeaving:
		return source.Draining
	}
	return source.NotReady
}

// explainState returns one step for each signal, in order of precedence. A step fails if its signal is
// set and has an effect.
func (s nodeSummary) explainState(rules Rules, pods podCounts, state source.NodeState) []source.Step {
	var steps []source.Step
	check := func(question string, isSet, hasEffect bool, ifSet, ifUnset string) {
		step := source.Step{Stage: source.StageState, Question: question, Result: source.Passed, Detail: ifUnset}
		switch {
		case isSet && hasEffect:
			step.Result, step.Detail = source.Failed, ifSet
		case isSet:
			step.Result, step.Detail = source.Skipped, ifSet
		}
		steps = append(steps, step)
	}
	check("Is the machine running?", s.signals.shutdown, true, "taint "+taintShutdown, "no taint "+taintShutdown)
	check("Does the Node stay?", s.signals.deleting, true, "deletion timestamp is set", "no deletion timestamp")
	check(
		"Does the autoscaler keep it?",
		s.signals.scaleDownTaint,
		rules.Workload == nil || pods.ready == 0,
		"taint "+taintAutoscaler,
		"no taint "+taintAutoscaler,
	)
	check(
		"Is it schedulable?",
		s.signals.cordoned,
		rules.Cordoned == DrainCordoned && (rules.Workload == nil || pods.ready == 0),
		"cordoned"+choose(
			rules.Cordoned == DrainCordoned,
			", and CORDONED is drain",
			", without effect because CORDONED is keep",
		),
		"not cordoned",
	)
	check("Is its kubelet ready?", !s.signals.ready, true, "condition Ready is not True", "condition Ready is True")
	if rules.Workload != nil {
		check("Does a ready Pod of WORKLOAD run on it?", pods.ready == 0, true, pods.String(), pods.String())
	}
	return append(steps, source.Step{Stage: source.StageState, Question: "Resulting state", Detail: state.String()})
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
		if k != "" && k == source.KeepValid(k, maxLabelKey) && v == source.KeepValid(v, maxLabelValue) && len(valid) < maxLabels {
			valid[k] = v
		}
	}
	return valid
}
