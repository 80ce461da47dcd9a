package runbooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/charts"
	"github.com/slicefeed/slicefeed/lab/controlplane"
)

const docs = "../../docs/operate/runbooks/"

type events = map[string]func(context.Context) error

// The pages are read in this order, in one world: the README builds it, and each page leaves
// it as sound as it found it.
func TestEveryCommandOfTheRunbooks(t *testing.T) {
	w := begin(t)
	for _, page := range []struct {
		name     string
		events   events
		examples bool // outputs are examples
	}{
		{name: "first-run.md"},
		{name: "endpoints-are-wrong.md", events: events{
			"a worker without a private address joins, and another one's backend dies": func(ctx context.Context) error {
				return errors.Join(w.join(ctx, "worker-4", "10.0.1.14", false, nil), w.set(backend.Refuse, "worker-2"))
			},
			"the server gets its NIC": func(context.Context) error { return w.attach("worker-4") },
			"the backend is repaired": func(context.Context) error { return w.set(backend.Serve, "worker-2") },
		}},
		{name: "../kubectl.md", events: events{
			"a backend dies":          func(context.Context) error { return w.set(backend.Refuse, "worker-2") },
			"the backend is repaired": func(context.Context) error { return w.set(backend.Serve, "worker-2") },
		}},
		{name: "service-is-empty.md", events: events{
			"a deployment removes the Service's label": func(ctx context.Context) error {
				return w.run(ctx, "kubectl --context consuming -n web label service shop slicefeed.dev/class-")
			},
			"all backends die":      func(context.Context) error { return w.set(backend.Refuse, w.names()...) },
			"all backends are back": func(context.Context) error { return w.set(backend.Serve, w.names()...) },
		}},
		{name: "../troubleshooting.md", examples: true},
		{name: "../../use/guards.md", examples: true, events: events{"the annotation is removed": func(ctx context.Context) error {
			return w.run(ctx, "kubectl --context consuming -n web annotate service shop slicefeed.dev/resync-")
		}}},
		{name: "../../use/services.md", examples: true, events: events{
			"kubectl uses the consuming cluster": func(ctx context.Context) error {
				return w.run(ctx, "kubectl config use-context consuming")
			},
			"the annotation and the label are as before": func(ctx context.Context) error {
				return w.run(ctx, "kubectl annotate service -n web shop slicefeed.dev/source-\nkubectl label service -n web shop --overwrite slicefeed.dev/class=default")
			},
			"the Service has a selector and an Endpoints object": func(ctx context.Context) error {
				return w.run(ctx, "kubectl patch service -n web shop -p '{\"spec\":{\"selector\":{\"app\":\"shop\"}}}'\n"+
					"kubectl create -f - <<<'{\"apiVersion\":\"v1\",\"kind\":\"Endpoints\",\"metadata\":{\"name\":\"shop\",\"namespace\":\"web\"}}'")
			},
			"the Service is healthy again": func(ctx context.Context) error {
				return w.run(ctx, "timeout 60 bash -c 'until kubectl get endpointslice -n web shop-slicefeed -o jsonpath={.endpoints[*].conditions.ready} | grep -q true.true.true.true; do sleep 0.3; done'")
			},
		}},
		{name: "replace-a-node.md", events: events{
			"the new node joins":        func(ctx context.Context) error { return w.join(ctx, "worker-5", "10.0.1.15", true, nil) },
			"the old server is deleted": func(context.Context) error { return w.destroy("worker-4") },
		}},
		{name: "drain-a-pool.md", events: events{
			"there is an old pool and a new one": func(ctx context.Context) error {
				old, young := map[string]string{"pool": "old"}, map[string]string{"pool": "new"}
				return errors.Join(w.join(ctx, "worker-6", "10.0.1.16", true, old), w.join(ctx, "worker-7", "10.0.1.17", true, old),
					w.join(ctx, "worker-8", "10.0.1.18", true, young), w.join(ctx, "worker-9", "10.0.1.19", true, young))
			},
			"the old pool is deleted": func(context.Context) error { return w.destroy("worker-6", "worker-7") },
		}},
		{name: "rotate-credentials.md", events: events{
			"there is a new token":     func(context.Context) error { return w.newToken("another-token") },
			"the old token is deleted": func(context.Context) error { return w.acceptToken() },
		}},
		{name: "upgrade.md", events: events{
			"the next release is checked out": func(context.Context) error { return w.checkOut(nextRelease) },
			"an upgrade of the writer goes wrong": func(ctx context.Context) error {
				return w.run(ctx, "helm --kube-context consuming -n web upgrade slicefeed-writer deploy/slicefeed-writer -f writer.yaml --set settings.SECURED_SUBNET_CIDR=10.0.1.7/24")
			},
		}},
		{name: "compromised-component.md", events: events{
			"an attacker has the inventory's keys and its token": func(ctx context.Context) error {
				return w.run(ctx, "kubectl --context secured -n slicefeed create token slicefeed-inventory >stolen-token")
			},
			"there is a new token, and the old one is deleted": func(context.Context) error {
				return errors.Join(w.newToken("a-third-token"), w.acceptToken())
			},
			"both components still have the version of before": func(ctx context.Context) error { return w.runs(ctx, nextRelease) },
			"what was stolen from the inventory is worthless": func(ctx context.Context) error {
				return w.refused(ctx, "kubectl --context secured --token=\"$(cat stolen-token)\" get nodes", w.Secured)
			},
			"an attacker has the writer's keys and its token": func(ctx context.Context) error {
				return w.run(ctx, "kubectl --context consuming -n web create token slicefeed-writer >stolen-token")
			},
			"the writer's stolen token is worthless": func(ctx context.Context) error {
				return w.refused(ctx, "kubectl --context consuming --token=\"$(cat stolen-token)\" -n web get services", w.Consuming)
			},
		}},
		{name: "disaster.md", events: events{
			"all of Slicefeed in the consuming cluster is gone": func(ctx context.Context) error {
				return w.run(ctx, "helm --kube-context consuming -n web uninstall slicefeed-writer\n"+
					"kubectl --context consuming -n web delete endpointslices,secrets,configmaps,leases --all\n")
			},
			"the secured cluster is gone, and there is a new one with two workers": w.rebuild,
		}},
		{name: "../../deploy/uninstall.md"},
		{name: "../../deploy/manifests.md", events: events{"the cloud is another one": w.otherCloudInManifests}},
	} {
		if page.name == "first-run.md" && !t.Run("README", w.readme) {
			return
		}
		run := func(t *testing.T) { w.read(t, docs+page.name, "", page.events) }
		if page.examples {
			run = func(t *testing.T) { w.readCommands(t, docs+page.name, page.events) }
		}
		if !t.Run(page.name, run) {
			return // the next ones would not find what they need
		}
	}
}

// readme deploys both halves as a newcomer does.
func (w *world) readme(t *testing.T) {
	w.read(t, "../../README.md", "Deploying", events{
		"the cluster has three workers": func(ctx context.Context) error {
			return errors.Join(w.join(ctx, "worker-1", "10.0.1.11", true, nil),
				w.join(ctx, "worker-2", "10.0.1.12", true, nil), w.join(ctx, "worker-3", "10.0.1.13", true, nil))
		},
		"the cloud is another one": w.otherCloud,
		// A new leader lets nobody leave in its first window, and these pages have many leaders.
		"the windows are short": func(context.Context) error {
			return w.edit("writer.yaml", "settings:\n", "settings:\n  SHRINK_WINDOW: 2s\n")
		},
	})
}

// otherCloud has the inventory ask the emulator, and more often than one should ask the cloud.
func (w *world) otherCloud(ctx context.Context) error {
	return errors.Join(
		w.TrustCloud(ctx),
		w.edit("inventory.yaml", "settings:\n", "ionos: {caConfigMap: ionos-ca}\nsettings:\n  IONOS_API_URL: "+
			w.Cloud.URL+"\n  IONOS_POLL_INTERVAL: 2s\n  IONOS_REQUEST_BUDGET: 600\n"),
	)
}

// otherCloudInManifests does the same where there is no chart that mounts the CA: the token's Secret has it too.
func (w *world) otherCloudInManifests(ctx context.Context) error {
	ca, err := os.ReadFile(w.Cloud.CAFile)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"stringData": map[string]string{"ca.crt": string(ca)}})
	if err != nil {
		return err
	}
	const first = "        - name: IONOS_DATACENTER_ID\n"
	environment := ""
	for _, variable := range [][2]string{
		{"IONOS_CA_FILE", "/etc/slicefeed/ionos/ca.crt"},
		{"IONOS_API_URL", w.Cloud.URL},
		{"IONOS_POLL_INTERVAL", "2s"},
		{"IONOS_REQUEST_BUDGET", "600"},
	} {
		environment += fmt.Sprintf("        - name: %s\n          value: %q\n", variable[0], variable[1])
	}
	return errors.Join(w.edit("inventory-deployment.yaml", first, environment+first),
		w.run(ctx, "kubectl --context secured -n slicefeed patch secret slicefeed-inventory-ionos --patch '"+string(patch)+"'"))
}

// nextRelease is the version that upgrade.md upgrades to, and that no page after it may leave.
const nextRelease = "0.1.1"

// checkOut puts the charts of another release where the page's reader has those of the one that runs.
func (w *world) checkOut(version string) error {
	deploy := filepath.Join(w.Dir(), "deploy")
	before, err := filepath.EvalSymlinks(deploy)
	if err != nil {
		return err
	}
	if err := os.Remove(deploy); err != nil {
		return err
	}
	if err := os.CopyFS(deploy, os.DirFS(before)); err != nil {
		return err
	}
	of := regexp.MustCompile(`(?m)^(version|appVersion): .*$`)
	for _, chart := range []string{"slicefeed-inventory", "slicefeed-writer"} {
		path := filepath.Join(deploy, chart, "Chart.yaml")
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, of.ReplaceAll(raw, []byte("$1: "+version)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// runs wants both components to have the image and the chart of a version.
func (w *world) runs(ctx context.Context, version string) error {
	for _, c := range []struct {
		clientset       kubernetes.Interface
		namespace, name string
	}{{w.SecuredClient(), charts.InventoryNamespace, "slicefeed-inventory"}, {w.ConsumingClient(), charts.WriterNamespace, "slicefeed-writer"}} {
		d, err := c.clientset.AppsV1().Deployments(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if image, chart := d.Spec.Template.Spec.Containers[0].Image, d.Labels["app.kubernetes.io/version"]; !strings.HasSuffix(
			image,
			":"+version,
		) ||
			chart != version {
			return fmt.Errorf("%s has image %s and chart %s, want version %s", c.name, image, chart, version)
		}
	}
	return nil
}

// newToken puts another token where the page's reader has it; acceptToken has the cloud accept it alone.
func (w *world) newToken(token string) error {
	return os.WriteFile(filepath.Join(w.Dir(), "token"), []byte(token+"\n"), 0o600)
}

func (w *world) acceptToken() error {
	raw, err := os.ReadFile(filepath.Join(w.Dir(), "token"))
	if err == nil {
		w.Cloud.SetToken(strings.TrimSpace(string(raw)))
	}
	return err
}

// refused wants a token to be refused as nobody's: an API server remembers one for ten seconds.
func (w *world) refused(ctx context.Context, command string, plane *controlplane.ControlPlane) error {
	nobody := filepath.Join(w.Dir(), "nobody.kubeconfig")
	shell, err := Open(w.Dir(), append(w.Env(), "KUBECONFIG="+nobody))
	if err != nil {
		return err
	}
	defer shell.Close()
	if err := anonymous(plane, nobody); err != nil {
		return err
	}
	return shell.Do(ctx, Step{Command: command + "\n", Exit: 1, Until: true, Output: "error: You must be logged in to the server (…)\n"})
}

// anonymous writes a kubeconfig that knows where the cluster is, and has no credentials.
func anonymous(plane *controlplane.ControlPlane, path string) error {
	config, err := clientcmd.LoadFromFile(plane.AdminKubeconfig())
	if err != nil {
		return err
	}
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{}
	}
	return clientcmd.WriteToFile(*config, path)
}

// rebuild takes away all of the secured side, and makes two workers of a new one.
func (w *world) rebuild(ctx context.Context) error {
	return errors.Join(w.destroy(w.names()...), w.run(ctx, "helm --kube-context secured -n slicefeed uninstall slicefeed-inventory\n"+
		"kubectl --context secured delete nodes -l kubernetes.io/os=linux,'!node-role.kubernetes.io/control-plane'\n"+
		"kubectl --context secured -n slicefeed delete secrets --all\n"+
		"kubectl --context secured -n slicefeed delete configmap slicefeed-inventory-peer-ca\n"),
		w.join(ctx, "worker-21", "10.0.1.21", true, nil), w.join(ctx, "worker-22", "10.0.1.22", true, nil))
}
