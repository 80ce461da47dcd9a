package kubelet

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

var (
	planeAddress = netip.MustParseAddr("10.0.0.11")
	nodeAddress  = netip.MustParseAddr("10.0.0.31")
)

func TestMain(m *testing.M) {
	if os.Getenv(appEnv) != "" {
		app(os.Args[1:])
	}
	controlplane.Main(m, planeAddress, nodeAddress)
}

const manifest = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: app, namespace: shop}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: app, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: app}
subjects: [{kind: ServiceAccount, name: app}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: mine, namespace: shop}
data: {list.yaml: "a list", other: "another"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      serviceAccountName: app
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: app
        image: example.org/app:1.0
        args: [serve]
        terminationMessagePolicy: FallbackToLogsOnError
        env:
        - {name: SLICEFEED_TEST_APP, value: "1"}
        - {name: GREETING, value: hello}
        - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
        resources: {limits: {memory: 64Mi}}
        securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        ports: [{name: admin, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /readyz, port: admin}}
        livenessProbe: {httpGet: {path: /readyz, port: admin}}
        volumeMounts:
        - {name: secret, mountPath: /etc/app/secret, readOnly: true}
        - {name: config, mountPath: /etc/app/config, readOnly: true}
        - {name: none, mountPath: /etc/app/none}
        - {name: scratch, mountPath: /scratch}
      volumes:
      - {name: secret, secret: {secretName: key, optional: true}}
      - {name: config, configMap: {name: mine, items: [{key: list.yaml, path: list}]}}
      - {name: none, configMap: {name: none, optional: true}}
      - {name: scratch, emptyDir: {}}
`

func TestADeploymentRuns(t *testing.T) {
	w := build(t)
	defer func() {
		if err := w.kubelet.Stop(); err != nil {
			t.Error(err)
		}
	}()
	step := func(name string, do func(*world)) {
		if !t.Run(name, func(t *testing.T) { inner := *w; inner.t = t; do(&inner) }) {
			t.FailNow()
		}
	}
	step("what misses a Secret says so in its status and its log, and starts again", func(w *world) {
		w.until("both have crashed twice", func() bool {
			all := w.pods()
			for _, p := range all {
				if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount < 2 ||
					p.Status.ContainerStatuses[0].State.Waiting == nil {
					return false
				}
			}
			return len(all) == 2
		})
		last := w.pods()[0].Status.ContainerStatuses[0].LastTerminationState.Terminated
		const want = "the app needs a key: stat /etc/app/secret/key: no such file or directory\n"
		if last.ExitCode != 2 || last.Message != want {
			w.t.Errorf("it ended with %d: %q, want %q", last.ExitCode, last.Message, want)
		}
		if out, _ := w.kubectlRun("logs", w.pods()[0].Name); out != want {
			w.t.Errorf("kubectl logs prints %q", out)
		}
	})
	step("it comes up with the Secret", func(w *world) {
		w.secret("first")
		if out, code := w.kubectlRun("rollout", "status", "deployment/app", "--timeout=60s"); code != 0 {
			w.t.Fatalf("%s", out)
		}
	})
	step("the program sees what the template says and nothing else", func(w *world) {
		p := w.pods()[0]
		got := w.report(p)
		if got.APIError != "" {
			w.t.Error(got.APIError)
		}
		var root []string
		for _, name := range got.Root {
			if name != "lib" && name != "lib64" && name != "usr" { // with the race detector
				root = append(root, name)
			}
		}
		got.Root = root
		want := report{
			UID: 65532, Host: p.Name,
			Env:   map[string]string{"GREETING": "hello", "NAME": p.Name, "NAMESPACE": "shop", "GOMEMLIMIT": "67108864"},
			Files: map[string]string{"/etc/app/secret/key": "first", "/etc/app/config/list": "a list"},
			Root:  []string{"dev", "etc", "kubelet.test", "proc", "scratch", "var"}, Writable: []string{"/scratch"},
			Version: "200 OK",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			w.t.Error(diff)
		}
	})
	step("a Secret that changes is in the running container", func(w *world) {
		before := w.pods()
		w.secret("second")
		w.until("the program reads it", func() bool {
			return w.report(before[0]).Files["/etc/app/secret/key"] == "second" &&
				w.report(before[1]).Files["/etc/app/secret/key"] == "second"
		})
		for _, p := range w.pods() {
			if n := p.Status.ContainerStatuses[0].RestartCount; n != before[0].Status.ContainerStatuses[0].RestartCount &&
				n != before[1].Status.ContainerStatuses[0].RestartCount {
				w.t.Errorf("%s was started again", p.Name)
			}
		}
	})
	step("kubectl logs, exec and port-forward work", func(w *world) {
		p := w.pods()[0]
		if out, _ := w.kubectlRun("logs", "--tail=1", p.Name); out != "serving hello\n" {
			w.t.Errorf("kubectl logs prints %q", out)
		}
		if out, _ := w.kubectlRun("logs", "--previous", p.Name); !strings.Contains(out, "the app needs a key") {
			w.t.Errorf("kubectl logs --previous prints %q", out)
		}
		if out, code := w.kubectlRun(
			"exec",
			p.Name,
			"--",
			"/kubelet.test",
			"say",
			"it",
		); !strings.HasPrefix(out, "said it\n") ||
			code != 7 {
			w.t.Errorf("kubectl exec prints %q and ends with %d", out, code)
		}
		w.forward(p, func(address string) {
			answer, err := http.Get("http://" + address + "/readyz")
			if err != nil {
				w.t.Fatal(err)
			}
			_ = answer.Body.Close()
		})
	})
	step("a container that ends is started again", func(w *world) {
		p := w.pods()[0]
		before := p.Status.ContainerStatuses[0].RestartCount
		answer, err := http.Get("http://" + p.Status.PodIP + ":8080/end")
		if err == nil {
			_ = answer.Body.Close()
		}
		w.until("it runs again", func() bool {
			for _, now := range w.pods() {
				if now.UID == p.UID && ready(now) && now.Status.ContainerStatuses[0].RestartCount > before {
					last := now.Status.ContainerStatuses[0].LastTerminationState.Terminated
					return last != nil && last.ExitCode == 3
				}
			}
			return false
		})
	})
	step("a Pod that is deleted ends in order, and another takes its place", func(w *world) {
		p := w.pods()[0]
		if out, code := w.kubectlRun("delete", "pod", p.Name); code != 0 {
			w.t.Fatal(out)
		}
		w.until("two are ready", func() bool { all := w.pods(); return len(all) == 2 && ready(all[0]) && ready(all[1]) })
		for _, now := range w.pods() {
			if now.UID == p.UID || now.Status.PodIP == p.Status.PodIP {
				w.t.Errorf("%s is there still", p.Name)
			}
		}
	})
	step("an update never has fewer than were wanted", func(w *world) {
		fewest := make(chan int)
		ctx, stop := context.WithCancel(w.t.Context())
		go func() { fewest <- w.fewestReady(ctx) }()
		w.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"GREETING","value":"bye"}]}]}}}}`)
		out, code := w.kubectlRun("rollout", "status", "deployment/app", "--timeout=60s")
		stop()
		if n := <-fewest; n < 2 || code != 0 {
			w.t.Errorf("there were %d ready; %s", n, out)
		}
		w.until("the old ones are gone", func() bool { return len(w.pods()) == 2 })
		if got := w.report(w.pods()[0]).Env["GREETING"]; got != "bye" {
			w.t.Errorf("the greeting is %q", got)
		}
	})
	step("what is not understood is refused, and told", func(w *world) {
		w.patch(`{"spec":{"template":{"spec":{"hostNetwork":true}}}}`)
		out, code := w.kubectlRun("rollout", "status", "deployment/app", "--timeout=60s")
		if code == 0 || !strings.Contains(out, "exceeded its progress deadline") {
			w.t.Errorf("kubectl rollout status: %d %s", code, out)
		}
		d, err := w.client.AppsV1().Deployments("shop").Get(w.t.Context(), "app", metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		if !anySays(d.Status.Conditions, `{"hostNetwork":true}`) {
			w.t.Errorf("the conditions are %v", d.Status.Conditions)
		}
		w.kubelet.mu.Lock()
		told := len(w.kubelet.errs)
		w.kubelet.errs = nil // it was meant
		w.kubelet.mu.Unlock()
		if told != 1 {
			w.t.Errorf("Stop would tell %d refusals, want one", told)
		}
		w.patch(`{"spec":{"template":{"spec":{"hostNetwork":null}}}}`)
	})
	step("nothing is left of a Deployment that is deleted", func(w *world) {
		if out, code := w.kubectlRun("delete", "deployment", "app"); code != 0 {
			w.t.Fatal(out)
		}
		w.until("its Pods are gone", func() bool { return len(w.pods()) == 0 })
	})
	step("a Pod that is to run once does, and stays with its status and its log", func(w *world) {
		const once = `
apiVersion: v1
kind: Pod
metadata: {name: once, namespace: shop}
spec:
  serviceAccountName: app
  restartPolicy: Never
  containers:
  - {name: app, image: "example.org/app:1.0", args: [say, hello], env: [{name: SLICEFEED_TEST_APP, value: "1"}]}
`
		w.must(w.plane.ApplyYAML(w.t.Context(), []byte(once)))
		w.until("it has failed", func() bool { return w.pods()[0].Status.Phase == corev1.PodFailed })
		p := w.pods()[0]
		if c := p.Status.ContainerStatuses[0]; c.RestartCount != 0 || c.State.Terminated.ExitCode != 7 || c.Ready || p.Spec.NodeName == "" {
			w.t.Errorf("on node %q, %+v", p.Spec.NodeName, c)
		}
		if out, _ := w.kubectlRun("logs", "once"); out != "said hello\n" {
			w.t.Errorf("kubectl logs prints %q", out)
		}
		if out, code := w.kubectlRun("delete", "pod", "once"); code != 0 {
			w.t.Fatal(out)
		}
		w.until("it is gone", func() bool { return len(w.pods()) == 0 })
		w.must(w.plane.ApplyYAML(w.t.Context(), []byte(strings.Replace(once, "restartPolicy", "hostPID: true\n  restartPolicy", 1))))
		w.until("it is refused", func() bool { w.kubelet.mu.Lock(); defer w.kubelet.mu.Unlock(); return len(w.kubelet.errs) > 0 })
		w.kubelet.mu.Lock()
		defer w.kubelet.mu.Unlock()
		if message := w.kubelet.errs[0].Error(); len(w.kubelet.errs) != 1 || !strings.Contains(message, `{"hostPID":true}`) {
			w.t.Errorf("Stop would return %v", w.kubelet.errs)
		}
		w.kubelet.errs = nil // it was meant
	})
}
