package kubeservice

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/inventory/kube"
)

// Catalog knows which Services of a namespace are exported, by one watch: a request for any other costs the API
// server nothing. Only Run is safe for concurrent use.
type Catalog struct {
	watch    *kube.Watch[bool]
	changed  chan struct{} // capacity 1
	exported map[string]bool
	problem  string
}

// NewCatalog returns a catalog that knows no Services yet; Run fills it.
func NewCatalog(cfg Config) *Catalog {
	c := &Catalog{changed: make(chan struct{}, 1), problem: "the exported Services have not been listed yet"}
	c.watch = kube.NewWatch(kube.Kind[*corev1.Service, bool]{
		Resource: "services", Example: &corev1.Service{},
		Requests: cluster.NewRequests(cfg.Client.CoreV1().Services(cfg.Service.Namespace), cfg.Exported.String(), ""),
		Extract:  func(s *corev1.Service) bool { return s.DeletionTimestamp == nil },
		Equal:    func(a, b bool) bool { return a == b },
	}, kube.WatchConfig{Client: cfg.Client, Log: cfg.Log, Metrics: cfg.Metrics, Changed: c.changed})
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
	c.exported = changes.Objects
	switch {
	case changes.Failure != "":
		c.problem = "the exported Services cannot be listed: " + changes.Failure
	case !changes.LastContact.IsZero():
		c.problem = ""
	}
	return changes.Names
}

// Has reports whether a Service is exported, as of the last Take.
func (c *Catalog) Has(name string) bool { return c.exported[name] }

// Problem is why Services may be missing, as of the last Take; empty: none is.
func (c *Catalog) Problem() string { return c.problem }
