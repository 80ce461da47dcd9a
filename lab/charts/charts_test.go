package charts

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	inventory = "slicefeed-inventory"
	writer    = "slicefeed-writer"
)

func TestMain(m *testing.M) {
	if !netns.Inside() { // inside there is no network
		if _, err := Definitions(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	controlplane.Main(m, pair.SecuredAddress)
}

// cluster is an API server that knows the custom resources which the charts can use.
type cluster struct {
	*controlplane.ControlPlane

	t    *testing.T
	root string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	root, err := pair.Root()
	c.must(err)
	c.root = root
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	c.must(err)
	c.ControlPlane, err = controlplane.Start(t.Context(), controlplane.Options{
		Programs: programs, Address: pair.SecuredAddress, Dir: t.TempDir(),
	})
	c.must(err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	files, err := Definitions(t.Context())
	c.must(err)
	c.must(c.Apply(t.Context(), files...))
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// namespace is a manifest. Its namespace admits no Pod that the restricted Pod Security Standard rejects.
const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}"

// render renders a chart's release into the namespace of its name, which it creates with all others of its objects.
func (c *cluster) render(release, chart, flags string) (text string, objects []*unstructured.Unstructured) {
	c.t.Helper()
	text, err := Run(c.t.Context(), fmt.Sprintf("helm template %[1]s deploy/%[2]s -n %[1]s %[3]s", release, chart, flags))
	c.must(err)
	objects, err = Parse(text)
	c.must(err)
	namespaces := []string{release}
	for _, o := range objects {
		namespaces = append(namespaces, cmp.Or(o.GetNamespace(), release))
	}
	slices.Sort(namespaces)
	for _, name := range slices.Compact(namespaces) {
		c.must(c.ApplyYAML(c.t.Context(), fmt.Appendf(nil, namespace, name)))
	}
	return text, objects
}
