package kubeservice

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/inventory/kubewatch"
)

// Catalog knows which Services of a namespace are exported, by one watch: a request for any other costs the API
// server nothing. Only Run is safe for concurrent use.
type Catalog struct {
	watch    *kubewatch.Watch[bool]
	changed  chan struct{} // capacity 1
	exported map[string]bool
	problem  string
}

// CatalogConfig is what a Catalog needs. All fields are mandatory unless stated.
type CatalogConfig struct {
	Client    kubernetes.Interface
	Namespace string // empty: all
	Exported  labels.Selector
	Log       *slog.Logger
	Metrics   *kubewatch.Metrics
}

// NewCatalog returns a catalog that knows no Services yet; Run fills it.
func NewCatalog(cfg CatalogConfig) *Catalog {
	c := &Catalog{changed: make(chan struct{}, 1), exported: map[string]bool{}, problem: "the exported Services have not been listed yet"}
	c.watch = kubewatch.New(kubewatch.Kind[bool]{
		Resource: "services", Example: &corev1.Service{},
		Requests: cluster.NewRequests(cfg.Client.CoreV1().Services(cfg.Namespace), cfg.Exported.String(), ""),
		Extract: func(o runtime.Object) bool {
			s, _ := o.(*corev1.Service)
			return s != nil && s.DeletionTimestamp == nil
		},
		Equal: func(a, b bool) bool { return a == b },
	}, kubewatch.Config{Client: cfg.Client, Log: cfg.Log, Metrics: cfg.Metrics, Changed: c.changed})
	return c
}

// Run watches the Services until ctx is done, and then returns nil.
func (c *Catalog) Run(ctx context.Context) error { return c.watch.Run(ctx) }

// Changed receives a signal when there is something to take. It holds one signal, which stands
// for any number of changes.
func (c *Catalog) Changed() <-chan struct{} { return c.changed }

// Take takes the changes since the previous Take, and returns the names of the Services that they are about, as
// namespace/name.
func (c *Catalog) Take() (names []string) {
	changes := c.watch.Take()
	for _, o := range changes.Changed {
		c.exported[o.Name] = o.Value
		names = append(names, o.Name)
	}
	for _, name := range changes.Removed {
		delete(c.exported, name)
	}
	switch {
	case changes.Failure != "":
		c.problem = "the exported Services cannot be listed: " + changes.Failure
	case !changes.LastContact.IsZero():
		c.problem = ""
	}
	return append(names, changes.Removed...)
}

// Has reports whether a Service is exported, as of the last Take.
func (c *Catalog) Has(name string) bool { return c.exported[name] }

// Problem is why Services may be missing, as of the last Take; empty: none is.
func (c *Catalog) Problem() string { return c.problem }
