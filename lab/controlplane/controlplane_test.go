package controlplane

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	securedAddress   = netip.MustParseAddr("10.0.0.11")
	consumingAddress = netip.MustParseAddr("10.0.0.12")
)

func TestMain(m *testing.M) { Main(m, securedAddress, consumingAddress) }

// pair starts two control planes at once, as everything that runs both halves does.
func pair(t *testing.T) (secured, consuming *ControlPlane) {
	t.Helper()
	programs, err := Build(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	var group errgroup.Group
	start := func(name string, address netip.Addr, into **ControlPlane) {
		group.Go(func() error {
			cp, err := Start(t.Context(), Options{Programs: programs, Name: name, Address: address})
			*into = cp
			return err
		})
	}
	start("secured", securedAddress, &secured)
	start("consuming", consumingAddress, &consuming)
	err = group.Wait()
	t.Cleanup(func() {
		for _, cp := range []*ControlPlane{secured, consuming} {
			if cp == nil {
				continue
			}
			if err := cp.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("both were ready after %s", time.Since(started).Round(10*time.Millisecond))
	return secured, consuming
}

func client(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"from": name}}
}

const reader = `
apiVersion: v1
kind: Namespace
metadata: {name: slicefeed}
---
# A comment alone is no document.
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: inventory, namespace: slicefeed}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nodes}
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nodes}
subjects:
- {kind: ServiceAccount, name: inventory, namespace: slicefeed}
`

// One test, because the control planes are what takes the time.
func TestAPairOfControlPlanes(t *testing.T) {
	secured, consuming := pair(t)
	ctx := t.Context()
	atSecured, atConsuming := client(t, secured.AdminKubeconfig()), client(t, consuming.AdminKubeconfig())

	t.Run("is two clusters", func(t *testing.T) {
		if _, err := atSecured.CoreV1().ConfigMaps("default").Create(ctx, configMap("secured"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := atConsuming.CoreV1().ConfigMaps("default").Get(ctx, "secured", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})

	t.Run("has Services of both families", func(t *testing.T) {
		policy := corev1.IPFamilyPolicyRequireDualStack
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "both"},
			Spec:       corev1.ServiceSpec{IPFamilyPolicy: &policy, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		made, err := atConsuming.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(made.Spec.ClusterIPs) != 2 {
			t.Errorf("its addresses are %v", made.Spec.ClusterIPs)
		}
	})

	t.Run("takes Pods though no controller makes accounts", func(t *testing.T) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "ingress"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}
		if _, err := atSecured.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("gives service accounts what RBAC says and no more", func(t *testing.T) {
		manifest := filepath.Join(t.TempDir(), "reader.yaml")
		if err := os.WriteFile(manifest, []byte(reader), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // applying again changes nothing
			if err := secured.Apply(ctx, manifest); err != nil {
				t.Fatal(err)
			}
		}
		kubeconfig, err := secured.ServiceAccountKubeconfig(ctx, "slicefeed", "inventory")
		if err != nil {
			t.Fatal(err)
		}
		limited := client(t, kubeconfig)
		if _, err := limited.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("listing nodes: %v", err)
		}
		_, err = limited.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("listing config maps: %v, want forbidden", err)
		}
		_, err = limited.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("making a node: %v, want forbidden", err)
		}
		raw, err := clientcmd.LoadFromFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if got := raw.Contexts[raw.CurrentContext]; raw.CurrentContext != "secured" || got.Namespace != "slicefeed" {
			t.Errorf("the context is %s with namespace %s", raw.CurrentContext, got.Namespace)
		}
	})

	t.Run("has no token for an account that is not there", func(t *testing.T) {
		if _, err := secured.ServiceAccountKubeconfig(ctx, "default", "nobody"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})

	t.Run("refuses manifests with mistakes", func(t *testing.T) {
		for mistake, manifest := range map[string]string{
			"unknown field":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\ndatta: {a: b}\n",
			"duplicate field": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\ndata: {a: b}\ndata: {a: c}\n",
			"unknown kind":    "apiVersion: v1\nkind: ConfigMat\nmetadata: {name: bad}\n",
			"no kind":         "metadata: {name: bad}\n",
		} {
			if err := consuming.ApplyYAML(ctx, []byte(manifest)); err == nil {
				t.Errorf("%s: no error", mistake)
			}
		}
		if _, err := atConsuming.CoreV1().ConfigMaps("default").Get(ctx, "bad", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})

	t.Run("keeps its data while the API server is away", func(t *testing.T) {
		if err := secured.StopAPIServer(); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.DialTimeout("tcp", "10.0.0.11:6443", time.Second); err == nil {
			_ = conn.Close()
			t.Error("something still listens")
		}
		if err := secured.Signal(APIServer, syscall.SIGCONT); err == nil {
			t.Error("signalled a process that does not run")
		}
		if err := secured.StartAPIServer(ctx); err != nil {
			t.Fatal(err)
		}
		if err := secured.StartAPIServer(ctx); err == nil {
			t.Error("started it twice")
		}
		// The clients from before go on: same address, same keys.
		if _, err := atSecured.CoreV1().ConfigMaps("default").Get(ctx, "secured", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("keeps its data while etcd is away, and knows no state from before a compaction", func(t *testing.T) {
		configMaps := atSecured.CoreV1().ConfigMaps("default")
		old, err := configMaps.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		then := metav1.ListOptions{ResourceVersion: old.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1}
		if _, err := configMaps.List(ctx, then); err != nil {
			t.Error(err)
		}
		if _, err := configMaps.Create(ctx, configMap("later"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := secured.StopEtcd(); err != nil {
			t.Fatal(err)
		}
		if err := secured.StartEtcd(ctx); err != nil {
			t.Fatal(err)
		}
		if err := secured.Compact(ctx); err != nil {
			t.Fatal(err)
		}
		if err := secured.StopAPIServer(); err != nil { // its cache would still know
			t.Fatal(err)
		}
		if err := secured.StartAPIServer(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := configMaps.List(ctx, then); !apierrors.IsResourceExpired(err) {
			t.Errorf("a LIST of a state from before: %v, want that it has expired", err)
		}
		if _, err := configMaps.Get(ctx, "later", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("hangs while its etcd is frozen", func(t *testing.T) {
		if err := consuming.Signal(Etcd, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		quorumRead := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			_, err := atConsuming.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1})
			return err
		}
		answers := 0 // it may give a few: a signal takes effect a moment later
		for answers < 20 && quorumRead(time.Second) == nil {
			answers++
		}
		if answers == 20 {
			t.Error("answered")
		}
		if err := consuming.Signal(Etcd, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := quorumRead(30 * time.Second); err != nil {
			t.Errorf("thawed: %v", err)
		}
	})

	t.Run("leaves nothing behind", func(t *testing.T) {
		if err := secured.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(secured.Dir()); !os.IsNotExist(err) {
			t.Errorf("the directory is there still: %v", err)
		}
	})
}

func TestAFailedStartShowsWhatTheProgramPrinted(t *testing.T) {
	programs, err := Build(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Options{
		Programs: programs, Name: "broken", Address: securedAddress,
		Dir: t.TempDir(), APIServerArg: []string{"--no-such-flag"},
	})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v", err)
	}
}

func TestALoopbackAddressIsRefusedAtOnce(t *testing.T) {
	for _, address := range []netip.Addr{{}, netip.MustParseAddr("127.0.0.1")} {
		if _, err := Start(t.Context(), Options{Address: address}); err == nil {
			t.Errorf("%s: no error", address)
		}
	}
}
