package charts

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

var (
	replicas  = regexp.MustCompile(`(?m)^  replicas: \d+$`)
	namespace = regexp.MustCompile(`(?m)^ +namespace: "?([a-z0-9-]+)"?$`)
)

// TestEveryOptionIsUnderstoodByTheAPIServer has API servers judge what the charts render at most, each
// field of it, the objects of the Prometheus operator and of cert-manager included.
func TestEveryOptionIsUnderstoodByTheAPIServer(t *testing.T) {
	s := enter(t)
	files, err := Definitions(s.ctx())
	s.must(err)
	for _, plane := range []*controlplane.ControlPlane{s.Secured, s.Consuming} {
		s.must(plane.Apply(s.ctx(), files...))
	}
	for _, row := range []struct {
		name, chart, values string
		custom              []string // of the objects that are not Kubernetes' own
	}{
		{"inventory-all", Inventory, "-f deploy/slicefeed-inventory/tests/everything.yaml", []string{"certificates", "podmonitors", "prometheusrules"}},
		{"inventory-service", Inventory, "-f deploy/slicefeed-inventory/examples/minimal.yaml --set settings.SOURCE_KIND=service --set settings.SOURCE_SERVICE=shop/web --set service.type=NodePort --set service.nodePort=30443", nil},
		{"writer-all", Writer, "-f deploy/slicefeed-writer/tests/everything.yaml", []string{"certificates", "podmonitors", "prometheusrules"}},
		{"writer-sources", Writer, "-f deploy/slicefeed-writer/examples/several-sources.yaml", nil},
		{"writer-everywhere", Writer, "-f deploy/slicefeed-writer/examples/minimal.yaml --set settings.WATCH_NAMESPACES='*' --set policy.namespaces='{shop}'", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &stage{s.World, t}
			plane := s.Secured
			if row.chart == Writer {
				plane = s.Consuming
			}
			out := s.run(fmt.Sprintf("helm template --skip-tests %s deploy/%s -n %[1]s %[3]s", row.name, row.chart, row.values))
			if got := len(replicas.FindAllString(out, -1)); got != 1 {
				t.Fatalf("%d Deployments, want one", got)
			}
			out = replicas.ReplaceAllString(out, "  replicas: 0") // it is to be judged, not to be run
			for _, found := range append(namespace.FindAllStringSubmatch(out, -1), []string{"", row.name}) {
				s.must(plane.ApplyYAML(s.ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+found[1]+"}}")))
			}
			s.must(plane.ApplyYAML(s.ctx(), []byte(out)))
			s.run(
				fmt.Sprintf(
					"helm template --show-only templates/test-preflight.yaml %s deploy/%s -n %[1]s %[3]s | kubectl --context %[4]s create --dry-run=server --validate=strict -f -",
					row.name,
					row.chart,
					row.values,
					plane.Name(),
				),
			)
			client, err := dynamic.NewForConfig(plane.AdminConfig())
			s.must(err)
			for _, resource := range row.custom {
				kind := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: resource}
				if resource == "certificates" {
					kind.Group = "cert-manager.io"
				}
				list, err := client.Resource(kind).Namespace(row.name).List(s.ctx(), metav1.ListOptions{})
				if err != nil || len(list.Items) == 0 {
					t.Errorf("there are no %s: %v", resource, err)
				}
			}
		})
	}
}

func TestAWrongValueFailsByItsNameAndInstallsNothing(t *testing.T) {
	s := enter(t)
	for _, row := range []struct{ chart, flags, want string }{
		{Inventory, "--set settings.IONOS_PRIVATE_LAN=2", "IONOS_PRIVATE_LAN"},
		{Inventory, "--set settings.SECURED_SUBNET_CIDR=10.0.1", "/settings/SECURED_SUBNET_CIDR"},
		{Inventory, "--set-json 'allowedClients=[]'", "allowedClients is empty"},
		{Inventory, "--set replicas=two", "/replicas"},
		{Writer, "--set settings.INVENTORY_ADDRESS=", "INVENTORY_ADDRESS"},
		{Writer, "--set settings.HEALTH_CHECK_MODE=ping", "/settings/HEALTH_CHECK_MODE"},
		{Writer, "--set settings.IONOS_TOKEN=eyJ0", "IONOS_TOKEN"},
		{Writer, "--set settings.TARGET_NAMESPACE=shop", "settings.TARGET_SERVICE_NAME"},
	} {
		side := map[string]string{Inventory: Secured, Writer: Consuming}[row.chart]
		out, err := s.Run(
			s.ctx(),
			fmt.Sprintf(
				"helm --kube-context %s install wrong deploy/%s -n wrong --create-namespace -f deploy/%[2]s/examples/minimal.yaml %[3]s",
				side,
				row.chart,
				row.flags,
			),
		)
		if err == nil || !strings.Contains(out, row.want) {
			t.Errorf("%s %s: want %q:\n%s", row.chart, row.flags, row.want, out)
		}
		if _, err := s.Client(side).
			CoreV1().
			ServiceAccounts("wrong").
			Get(s.ctx(), "wrong", metav1.GetOptions{}); !apierrors.IsNotFound(
			err,
		) {
			t.Errorf("%s %s: something was installed: %v", row.chart, row.flags, err)
		}
	}
}
