package load

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

// ClusterAddress is where a cluster's API server is: the namespace needs it.
var ClusterAddress = netip.MustParseAddr("172.30.0.1")

// Cluster is a real control plane with Nodes that an inventory takes its nodes from.
type Cluster struct {
	plane  *controlplane.ControlPlane
	client *kubernetes.Clientset
	ready  []bool
}

// StartCluster starts a control plane with so many Nodes, all of them ready. Stop it.
func StartCluster(ctx context.Context, out io.Writer, nodes int) (*Cluster, error) {
	programs, err := controlplane.Build(ctx, out)
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Programs: programs, Address: ClusterAddress})
	if err != nil {
		return nil, err
	}
	c := &Cluster{plane: plane, ready: make([]bool, nodes)}
	if err := c.populate(ctx); err != nil {
		_ = plane.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) populate(ctx context.Context) (err error) {
	config := c.plane.AdminConfig()
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range 16 {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(c.ready) {
					return nil
				}
				c.ready[i] = true
				if _, err := c.client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("make Node %d: %w", i, err)
				}
			}
		})
	}
	return g.Wait()
}

func node(i int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(i)}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress(i)}},
	}}
}

// Flip alters a Node, Ready to not and back, and returns when the patch was sent.
func (c *Cluster) Flip(ctx context.Context, number int) (time.Time, error) {
	status := corev1.ConditionFalse
	if c.ready[number] = !c.ready[number]; c.ready[number] {
		status = corev1.ConditionTrue
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	now := time.Now()
	_, err := c.client.CoreV1().Nodes().Patch(ctx, NodeName(number), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return now, err
}

// Stop ends the control plane.
func (c *Cluster) Stop() error { return c.plane.Stop() }

func (c *Cluster) env() []string {
	return []string{"SOURCE_KIND=kubernetes", "SECURED_KUBECONFIG=" + c.plane.AdminKubeconfig(), "RESOLVER=node-address"}
}
