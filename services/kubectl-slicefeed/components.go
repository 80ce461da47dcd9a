package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

const (
	nameLabel   = "app.kubernetes.io/name" // of Deployments, ReplicaSets and Pods
	maxObjects  = 1000                     // of each kind, in one cluster
	askTimeout  = 30 * time.Second         // for one cluster's lists, and for one installation
	callTimeout = 15 * time.Second         // for one request to an API server
)

// options are the flags of all commands.
type options struct {
	kubeconfig              string
	all, secured, consuming side
	debugPort               int

	getenv  func(string) string
	forward func(ctx context.Context, c *cluster, pod *corev1.Pod, port int) (address string, err error)
}

// side is where a component is looked for.
type side struct {
	context, namespace string
	addresses          []string
}

// answer is what one installation of a component responded: a report or an error.
type answer struct {
	Component string      `json:"component"`
	Where     string      `json:"installation"`
	Pod       string      `json:"pod,omitempty"`
	Error     string      `json:"error,omitempty"`
	Report    report.JSON `json:"report,omitzero"`

	err error
}

// failed adds the error of an installation, unless there is none.
func (a *answer) failed(err error) {
	if err != nil {
		a.err = fmt.Errorf("%s %s: %w", a.Component, a.Where, err)
		a.Error = a.err.Error()
	}
}

// ask requests the reports of all installations of some components. An error is about the flags.
func (o *options) ask(ctx context.Context, filter string, components ...string) (all []answer, err error) {
	secured, consuming := o.secured, o.consuming
	secured.context = cmp.Or(secured.context, o.all.context, o.getenv(securedContextEnv))
	consuming.context = cmp.Or(consuming.context, o.all.context, o.getenv(consumingContextEnv))
	for _, component := range components {
		where, other := secured, consuming
		if component == report.Writer {
			where, other = consuming, secured
		}
		for _, address := range where.addresses {
			a := answer{Component: component, Where: "at " + address}
			a.Report.Report, err = report.Fetch(ctx, component, address, filter)
			a.failed(err)
			all = append(all, a)
		}
		if len(where.addresses) > 0 || where.context == "" && (other.context != "" || len(other.addresses) > 0) {
			continue
		}
		where.namespace = cmp.Or(where.namespace, o.all.namespace)
		c, err := o.newCluster(where.context)
		if err != nil {
			return nil, err
		}
		all = append(all, o.askCluster(ctx, c, component, where.namespace, filter)...)
	}
	if len(all) == 0 {
		return nil, settings.NewConfigError(fmt.Errorf("this command asks %s; set the context of its cluster", components[0]))
	}
	for _, a := range all {
		if errors.Is(a.err, settings.ErrConfiguration) {
			return nil, a.err
		}
	}
	return all, nil
}

// cluster is one cluster, as its context names it.
type cluster struct {
	context string
	config  *rest.Config
	client  kubernetes.Interface
}

// newCluster sends no request.
func (o *options) newCluster(name string) (*cluster, error) {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: name}
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, settings.NewConfigError(fmt.Errorf("context %q: %w", name, err))
	}
	config.QPS, config.Timeout = -1, callTimeout // one person's requests
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, settings.NewConfigError(fmt.Errorf("context %q: %w", name, err))
	}
	return &cluster{context: cmp.Or(name, "current"), config: config, client: client}, nil
}

// askCluster requests the report of each installation in a cluster. There is at least one answer.
func (o *options) askCluster(ctx context.Context, c *cluster, component, namespace, filter string) (all []answer) {
	found, err := c.installations(ctx, component, namespace)
	if err != nil {
		all = []answer{{Component: component, Where: "in context " + c.context}}
		all[0].failed(err)
	}
	for _, i := range found {
		a := answer{Component: component, Where: fmt.Sprintf("in context %s, Deployment %s", c.context, i.name)}
		a.Pod, a.Report.Report, err = o.askPods(ctx, c, component, i.pods, filter)
		a.failed(err)
		all = append(all, a)
	}
	return all
}

// installation is a Deployment of a component.
type installation struct {
	name string // with its namespace
	pods []corev1.Pod
}

// installations returns the Deployments of a component, and their running Pods, ready ones first. A Pod that only has the
// label belongs to none. There is at least one.
func (c *cluster) installations(ctx context.Context, component, namespace string) (all []installation, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	selector := metav1.ListOptions{LabelSelector: nameLabel + "=" + component, Limit: maxObjects}
	deployments, errDeployments := c.client.AppsV1().Deployments(namespace).List(ctx, selector)
	replicaSets, errReplicaSets := c.client.AppsV1().ReplicaSets(namespace).List(ctx, selector)
	pods, errPods := c.client.CoreV1().Pods(namespace).List(ctx, selector)
	if err := cmp.Or(errDeployments, errReplicaSets, errPods); err != nil {
		return nil, err
	}
	if len(deployments.Items) == 0 {
		return nil, fmt.Errorf("no Deployment with label %s=%s in %s; check the context and namespace", nameLabel, component,
			cmp.Or(namespace, "any namespace"))
	}
	sets := map[types.UID]*appsv1.ReplicaSet{}
	for i := range replicaSets.Items {
		sets[replicaSets.Items[i].UID] = &replicaSets.Items[i]
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		found := installation{name: d.Namespace + "/" + d.Name}
		for _, p := range pods.Items {
			owner := metav1.GetControllerOfNoCopy(&p)
			if owner == nil || sets[owner.UID] == nil || !metav1.IsControlledBy(sets[owner.UID], d) {
				continue
			}
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				found.pods = append(found.pods, p)
			}
		}
		slices.SortStableFunc(found.pods, func(a, b corev1.Pod) int { return cmp.Compare(unreadiness(&a), unreadiness(&b)) })
		all = append(all, found)
	}
	return all, nil
}

// unreadiness is 0 for a ready Pod and 1 for another.
func unreadiness(pod *corev1.Pod) int {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return 0
		}
	}
	return 1
}

// askPods requests a report of an installation's Pods: of the leading writer, or else of the first Pod that responds.
func (o *options) askPods(
	ctx context.Context, c *cluster, component string, pods []corev1.Pod, filter string,
) (pod string, found report.Report, err error) {
	if len(pods) == 0 {
		return "", nil, errors.New("no Pod runs")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var problems []error
	for i := range pods {
		name := pods[i].Namespace + "/" + pods[i].Name
		address, err := o.forward(ctx, c, &pods[i], o.debugPort)
		if err == nil {
			var r report.Report
			if r, err = report.Fetch(ctx, component, address, filter); err == nil {
				if w, isWriter := r.(*writerv1.WriterReport); !isWriter || w.GetLeading() {
					return name, r, nil
				}
				pod, found = cmp.Or(pod, name), cmp.Or(found, r)
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("connect to Pod %s: %w", name, err))
		}
	}
	if found != nil {
		return pod, found, nil
	}
	return "", nil, errors.Join(problems...)
}
