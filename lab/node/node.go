// Package node runs a Node as it is in production: kubelet, kube-proxy, kube-scheduler and kube-controller-manager, built
// from their modules, with Debian's containerd, runc and CNI plugins, beside a control plane of the lab. Pods are
// containers of images that are on the disk. It guarantees that nothing of it outlives the program, and that no
// setting of the machine is changed. It does not pull images, and it needs root.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/process"
)

// Options describe a Node. All are mandatory, but for Hosts.
type Options struct {
	ControlPlane *controlplane.ControlPlane
	Address      netip.Addr            // of the Node
	Pods         netip.Prefix          // where Pods get their addresses from
	Hosts        map[string]netip.Addr // what DNS knows
	Images       []string              // archives, as docker save writes them
	Dir          string                // for everything that it writes
}

// Node is a running Node.
type Node struct {
	options   Options
	name      string
	client    *kubernetes.Clientset
	host      *netns.Host
	programs  map[string]string
	processes []*process.Process // in the order in which they were started
	kubelet   *process.Process
	dns       io.Closer
}

// Start starts everything and returns when the Node is ready.
func Start(ctx context.Context, options Options) (*Node, error) {
	n := &Node{options: options, name: options.ControlPlane.Name() + "-node", programs: map[string]string{}}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the Node of %s: %w%s", options.ControlPlane.Name(), err, n.tails()), n.Stop())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) (err error) {
	paths, err := controlplane.BuildPrograms(ctx, os.Stderr, programs...)
	if err != nil {
		return err
	}
	for i, name := range programs {
		n.programs[name] = paths[i]
	}
	if n.client, err = kubernetes.NewForConfig(n.options.ControlPlane.AdminConfig()); err != nil {
		return err
	}
	if err := n.network(); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	if n.dns, err = serveDNS(netip.AddrPortFrom(n.options.ControlPlane.Endpoint().Addr(), 53), n.options.Hosts); err != nil {
		return err
	}
	admin := "--kubeconfig=" + n.options.ControlPlane.AdminKubeconfig()
	for _, command := range [][]string{
		{
			"kube-controller-manager", admin, "--leader-elect=false", "--secure-port=0", "--root-ca-file=" + n.file("ca.crt"),
			// The workers of a pair have no kubelets: each would be taken for dead.
			"--controllers=*,-node-lifecycle-controller",
		},
		{"kube-scheduler", admin, "--leader-elect=false", "--secure-port=0"},
	} {
		if err := n.run(command[0], append([]string{n.programs[command[0]]}, command[1:]...)...); err != nil {
			return err
		}
	}
	if err := n.runtime(ctx); err != nil {
		return err
	}
	err = n.runOnHost("kube-proxy", n.programs["kube-proxy"], admin,
		"--hostname-override="+n.name, "--proxy-mode=nftables", "--cluster-cidr="+n.options.Pods.String(),
		// These are settings of the whole machine, which a namespace may not change.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
	)
	if err != nil {
		return err
	}
	if err := n.StartKubelet(ctx); err != nil {
		return err
	}
	// It is one of the control plane, so that no inventory takes it for a worker. A kubelet may not say so of itself.
	label := []byte(`{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`)
	_, err = n.client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, label, metav1.PatchOptions{})
	return err
}

// network makes the machine that the Node is.
func (n *Node) network() (err error) {
	if err := netns.AddAddr(n.options.Address); err != nil {
		return err
	}
	if n.host, err = netns.NewHost(n.options.Address); err != nil {
		return err
	}
	return n.host.Route(n.options.Pods)
}

func (n *Node) configure() error {
	for _, dir := range []string{"", "cni"} {
		if err := os.MkdirAll(n.file(dir), 0o700); err != nil {
			return err
		}
	}
	dir := n.options.Dir
	for name, text := range map[string]string{
		"ca.crt":               string(n.options.ControlPlane.AdminConfig().CAData),
		"containerd.toml":      fmt.Sprintf(containerdConfig, dir),
		"cni/10-pods.conflist": fmt.Sprintf(cniConfig, dir, n.options.Pods),
		"kubelet.yaml":         fmt.Sprintf(kubeletConfig, dir, n.options.Address, n.options.ControlPlane.Endpoint().Addr()),
	} {
		if err := os.WriteFile(n.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// runtime starts containerd with the images.
func (n *Node) runtime(ctx context.Context) error {
	if err := n.runOnHost("containerd", "containerd", "--config", n.file("containerd.toml")); err != nil {
		return err
	}
	err := n.until(ctx, "containerd answers", func() error {
		_, err := n.ctr(ctx, "version")
		return err
	})
	if err != nil {
		return err
	}
	for _, image := range n.options.Images {
		if _, err := n.ctr(ctx, "images", "import", image); err != nil {
			return err
		}
	}
	return nil
}

// ctr runs a command of containerd's client on the containers of Pods.
func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", n.file("containerd.sock"), "--namespace", "k8s.io"}, args...)
	out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Kill kills the process of a container.
func (n *Node) Kill(ctx context.Context, container string) error {
	_, err := n.ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", container)
	return err
}

// removeContainers ends the processes of all containers and removes their cgroups, which are the machine's.
func (n *Node) removeContainers() error {
	err := n.until(context.Background(), "no container runs", func() error {
		ctx := context.Background()
		tasks, err := n.ctr(ctx, "tasks", "list", "--quiet")
		if err != nil || tasks == "" {
			return err
		}
		for task := range strings.FieldsSeq(tasks) {
			_, err = n.ctr(ctx, "tasks", "delete", "--force", task) // containerd may be removing it too
		}
		return fmt.Errorf("of %s: %w", tasks, err)
	})
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		empty, _ := filepath.Glob(pattern)
		for _, dir := range empty {
			_ = os.Remove(dir) // the other Node's containers, or the machine's, may be in it
		}
	}
	return err
}

// StartKubelet starts the kubelet, again after StopKubelet, and returns when it says that the Node is ready.
func (n *Node) StartKubelet(ctx context.Context) (err error) {
	begun := metav1.Now().Rfc3339Copy()
	n.kubelet, err = n.launch("kubelet", n.host.Command(n.programs["kubelet"],
		"--config="+n.file("kubelet.yaml"), "--kubeconfig="+n.options.ControlPlane.AdminKubeconfig(),
		"--hostname-override="+n.name, "--node-ip="+n.options.Address.String(),
		"--root-dir="+n.file("kubelet"), "--cert-dir="+n.file("kubelet/pki"),
	))
	if err != nil {
		return err
	}
	return n.until(ctx, "the Node is ready", func() error {
		select {
		case <-n.kubelet.Done():
			return fmt.Errorf("the kubelet has ended: %w", n.kubelet.Wait())
		default:
		}
		node, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Before(&begun) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v, its taints %v", node.Status.Conditions, node.Spec.Taints)
	})
}

// StopKubelet kills the kubelet. Its containers run on.
func (n *Node) StopKubelet() error { return n.kubelet.Stop(0) }

func (n *Node) file(name string) string { return filepath.Join(n.options.Dir, name) }

func (n *Node) run(name string, command ...string) error {
	p, err := n.launch(name, command)
	if err == nil {
		n.processes = append(n.processes, p)
	}
	return err
}

func (n *Node) runOnHost(name string, command ...string) error {
	return n.run(name, n.host.Command(command...)...)
}

func (n *Node) launch(name string, command []string) (*process.Process, error) {
	return process.Start(process.Spec{
		Name: n.name + "'s " + name, Path: command[0], Args: command[1:], Log: n.file(name + ".log"),
	})
}

// until waits until a check passes.
func (n *Node) until(ctx context.Context, what string, check func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, last)
	}
	return nil
}

// tails are the ends of all logs.
func (n *Node) tails() string {
	var all strings.Builder
	for _, p := range slices.Concat(n.processes, []*process.Process{n.kubelet}) {
		if p != nil {
			fmt.Fprintf(&all, "\n%s:\n%s", p.Log(), p.Tail())
		}
	}
	return all.String()
}

// Balance leads an address outside of the cluster to the Pods of a Service, as a load balancer does that the cloud
// made: kube-proxy sends on what arrives at the Node for it.
func (n *Node) Balance(service *corev1.Service, at netip.Addr) (io.Closer, error) {
	service = service.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: at.String()}}
	if _, err := n.client.CoreV1().
		Services(service.Namespace).
		UpdateStatus(context.Background(), service, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	if err := netns.DelAddr(at); err != nil {
		return nil, err
	}
	return io.NopCloser(nil), n.host.Route(netip.PrefixFrom(at, at.BitLen()))
}

// Stop ends everything.
func (n *Node) Stop() error {
	var errs []error
	if n.kubelet != nil {
		errs = append(errs, n.kubelet.Stop(0), n.removeContainers(), unmount(n.options.Dir))
	}
	for _, p := range slices.Backward(n.processes) {
		errs = append(errs, p.Stop(0))
	}
	if n.dns != nil {
		errs = append(errs, n.dns.Close())
	}
	if n.host != nil {
		errs = append(errs, n.host.Close())
	}
	return errors.Join(errs...)
}
