package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

// world is a control plane with a kubelet and the app's Deployment, whose Secret is missing.
type world struct {
	t       *testing.T
	plane   *controlplane.ControlPlane
	kubelet *Kubelet
	client  *kubernetes.Clientset
	kubectl string
}

func build(t *testing.T) *world {
	t.Helper()
	programs, err := controlplane.Build(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, kubectl: programs.Kubectl}
	w.plane, err = controlplane.Start(t.Context(), controlplane.Options{Programs: programs, Address: planeAddress, Accounts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	if w.client, err = kubernetes.NewForConfig(w.plane.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.kubelet, err = Start(t.Context(), Options{
		ControlPlane: w.plane, Address: nodeAddress, Pods: netip.MustParsePrefix("10.244.1.0/24"),
		Images: map[string]string{"example.org/app": self}, Env: []string{"GORACE=atexit_sleep_ms=0"},
		Hosts: map[string]netip.Addr{"inventory.example.org": nodeAddress},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.plane.ApplyYAML(t.Context(), []byte(manifest)); err != nil {
		t.Fatal(err)
	}
	return w
}

// pods are those of the app, as the API server has them.
func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.client.CoreV1().Pods("shop").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *world) until(what string, yes func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			raw, _ := json.MarshalIndent(w.pods(), "", " ")
			w.t.Fatalf("waited until %s; the Pods: %s", what, raw)
		}
	}
}

// kubectlRun runs kubectl as admin and returns what it prints and its exit code.
func (w *world) kubectlRun(words ...string) (string, int) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.kubectl, append([]string{"-n", "shop"}, words...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.AdminKubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (w *world) secret(value string) {
	w.t.Helper()
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"key","namespace":"shop"},"stringData":{"key":%q}}`, value)
	if err := w.plane.ApplyYAML(w.t.Context(), []byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) report(p corev1.Pod) report {
	w.t.Helper()
	answer, err := http.Get("http://" + p.Status.PodIP + ":8080/report")
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	var r report
	if err := json.NewDecoder(answer.Body).Decode(&r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func ready(p corev1.Pod) bool {
	return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready && p.DeletionTimestamp == nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) patch(text string) {
	w.t.Helper()
	_, err := w.client.AppsV1().
		Deployments("shop").
		Patch(w.t.Context(), "app", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func anySays(all []appsv1.DeploymentCondition, text string) bool {
	for _, c := range all {
		if strings.Contains(c.Message, text) {
			return true
		}
	}
	return false
}

// fewestReady watches how many Pods are ready until ctx ends.
func (w *world) fewestReady(ctx context.Context) int {
	fewest := 99
	for ctx.Err() == nil {
		list, err := w.client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
		if err != nil {
			break
		}
		n := 0
		for _, p := range list.Items {
			if ready(p) {
				n++
			}
		}
		fewest = min(fewest, n)
	}
	return fewest
}

// forward forwards a port of ours to the one on the Pod's loopback meanwhile.
func (w *world) forward(p corev1.Pod, meanwhile func(address string)) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.kubectl, "-n", "shop", "port-forward", "pod/"+p.Name, ":6060")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.AdminKubeconfig())
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		w.t.Fatalf("%v %s", err, complaints.String())
	}
	var local int
	if _, err := fmt.Sscanf(string(line[:n]), "Forwarding from 127.0.0.1:%d", &local); err != nil {
		w.t.Fatalf("%q: %v", line[:n], err)
	}
	meanwhile(fmt.Sprintf("127.0.0.1:%d", local))
}
