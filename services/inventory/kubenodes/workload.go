package kubenodes

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ParseWorkload reads <namespace>/<label selector>, such as ingress/app=gateway. A selector
// that selects every Pod of the namespace is refused: it is rather a slip than a wish.
func ParseWorkload(text string) (*Workload, error) {
	namespace, selector, ok := strings.Cut(text, "/")
	if !ok {
		return nil, errors.New("it has no slash")
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, fmt.Errorf("%q is no namespace", namespace)
	}
	s, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	if s.Empty() {
		return nil, errors.New("the label selector is empty")
	}
	return &Workload{Namespace: namespace, Selector: s}, nil
}

// String is the workload as it is configured.
func (w *Workload) String() string { return w.Namespace + "/" + w.Selector.String() }

// podState is what a Pod of the workload says of its node. The zero Pod runs nowhere.
type podState struct {
	node            string
	ready, deleting bool
}

// readPod reduces a Pod that runs. A Pod that is being deleted may still be ready: it serves
// what is under way.
func readPod(p *corev1.Pod) podState {
	if p == nil {
		return podState{}
	}
	is := podState{node: validOrEmpty(p.Spec.NodeName, maxIdentifier), deleting: p.DeletionTimestamp != nil}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			is.ready = true
		}
	}
	return is
}

// podCounts counts the Pods of the workload on one node.
type podCounts struct {
	all, ready, deleting int // leaving: ready, and being deleted
}

// plus returns the crew with the Pod come (1) or gone (-1).
func (c podCounts) plus(p podState, by int) podCounts {
	c.all += by
	switch {
	case p.ready && p.deleting:
		c.deleting += by
	case p.ready:
		c.ready += by
	}
	return c
}

func (c podCounts) String() string {
	switch {
	case c.all == 0:
		return "no running Pod of it"
	case c.deleting > 0:
		return fmt.Sprintf("%d running, %d ready, %d ready and being deleted", c.all, c.ready, c.deleting)
	}
	return fmt.Sprintf("%d running, %d ready", c.all, c.ready)
}
