// Package exports publishes the endpoints of many Services, each as a set of its own. The stages of a Service are
// created when a client requests it and it is exported, and freed some time after the last client has left. It guarantees
// that a client gets the Services that its entry in the client list allows, and no others, that Services do not affect
// each other, and that a request for one that is not exported costs no request to the API server. It does not decide
// which Services are exported: package kubeservice does, by their labels.
package exports

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/kubeservice"
)

const (
	// unusedTimeout is how long the stages of an exported Service are kept without clients: longer than an
	// upgrade or a short outage of a writer, so that a reader that returns receives a delta rather than a reset.
	unusedTimeout = 10 * time.Minute

	freeInterval = time.Minute

	// maxServices limits the Services in use: each takes some 180 KB of resident memory and a watch, and this many fit
	// into the 256 MiB of the chart.
	maxServices = 1024

	// maxUnexported limits the Services that a client requests although they are not exported: it can make up any number
	// of names. Each is a set without stages.
	maxUnexported = 64

	retryInterval = 2 * time.Second // between two attempts to reach the API server
)

// Config is what Exports needs. All fields are mandatory.
type Config struct {
	// NewCollector creates the stages of an exported Service, which publish into the set and register their metrics with a
	// label of the Service, and a function that has the Service read again.
	NewCollector func(service types.NamespacedName, set *feed.Set, registerer prometheus.Registerer) (p *collector.Collector, recheck func())
	// NewCatalog creates the list of the exported Services of a namespace; empty: of all.
	NewCatalog func(namespace string) Catalog
	// Selector has the labels of exported Services.
	Selector labels.Selector
	// CheckReachable returns nil if the API server responds.
	CheckReachable func(ctx context.Context) error
	Registerer     prometheus.Registerer
	Log            *slog.Logger
}

// Catalog is implemented by kubeservice.Catalog.
type Catalog interface {
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Take() (names []string)
	Has(name string) bool
	Problem() string
}

// Exports has the exported Services that are in use. Its methods are safe for concurrent use.
type Exports struct {
	cfg     Config
	max     int             // Services in use
	running context.Context // of the stages; canceled when Run ends
	stop    context.CancelFunc
	stages  sync.WaitGroup
	ready   chan struct{} // closed once the API server has responded

	mu             sync.Mutex
	unreachable    error              // why the API server did not respond last
	catalogs       map[string]Catalog // by namespace; of those that the entries of clients name
	services       map[types.NamespacedName]*export
	inUse          int    // of them those with stages
	freedRevisions uint64 // of the feeds of Services that were freed
}

// export has one Service that clients request, and its stages.
type export struct {
	*collector.Collector // nil: the Service was not exported yet

	ref         types.NamespacedName
	set         *feed.Set
	recheck     func()
	metrics     *prometheus.Registry // of its stages; registered as one collector
	stop        context.CancelFunc
	users       map[link.SAN]int // calls under way, streams included, by client
	unusedSince time.Time        // valid while there are none
}

// New returns Exports in which no Service is in use.
func New(cfg Config) *Exports {
	e := &Exports{
		cfg:         cfg,
		max:         maxServices,
		ready:       make(chan struct{}),
		catalogs:    map[string]Catalog{},
		services:    map[types.NamespacedName]*export{},
		unreachable: errors.New("no response yet"),
	}
	e.running, e.stop = context.WithCancel(context.Background())
	cfg.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: "inventory", Name: "exported_services",
		Help: "Number of exported Services that clients use, or used a short time ago.",
	}, func() float64 { return float64(len(e.InUse())) }))
	return e
}

// Run frees unused Services until ctx is done, and then stops all stages and waits for them.
func (e *Exports) Run(ctx context.Context) error {
	defer func() {
		e.mu.Lock() // no call starts stages any more
		e.stop()
		e.mu.Unlock()
		e.stages.Wait()
	}()
	e.awaitReachable(ctx)
	ticker := time.NewTicker(freeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			e.freeUnused(now) //nolint:contextcheck // stages run until Run has ended, not only until ctx is done
		}
	}
}

// awaitReachable returns once the API server has responded.
func (e *Exports) awaitReachable(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.cfg.CheckReachable(ctx)
		e.mu.Lock()
		e.unreachable = err
		e.mu.Unlock()
		if err == nil {
			close(e.ready)
			return
		}
		e.cfg.Log.Warn("the API server of the secured cluster does not respond, trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// CheckReachable passes once the API server has responded. Later the last known endpoints
// stay published, as those of a single source do.
func (e *Exports) CheckReachable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unreachable != nil {
		return fmt.Errorf("the API server of the secured cluster: %w", e.unreachable)
	}
	return nil
}

// Ready implements feed.Sets.
func (e *Exports) Ready() (bool, <-chan struct{}) {
	select {
	case <-e.ready:
		return true, e.ready
	default:
		return false, e.ready
	}
}

// Acquire implements feed.Sets. It starts the stages of an exported Service that is not in use.
func (e *Exports) Acquire(client feed.Client, service string) (set *feed.Set, release func(), err error) {
	ref, ok := contract.ParseService(service)
	switch {
	case service == "":
		return nil, nil, status.Error(
			codes.FailedPrecondition,
			"this inventory exports Services, want the service of a request as namespace/name",
		)
	case !ok:
		return nil, nil, status.Errorf(codes.InvalidArgument, "service is %.253q, want namespace/name", service)
	}
	namespace, allowed := client.FindService(service)
	if !allowed {
		return nil, nil, status.Errorf(
			codes.PermissionDenied,
			"service %s is not granted: services of the client's entry in ALLOWED_CLIENTS_FILE must name it",
			service,
		)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running.Err() != nil {
		return nil, nil, status.Error(codes.Unavailable, "server is shutting down")
	}
	e.startCatalog(namespace)
	x := e.services[ref]
	if x == nil {
		x = e.newExport(ref)
		e.update(x)
	}
	if x.Collector == nil && x.users[client.SAN] == 0 && e.countUnexported(client.SAN) >= maxUnexported {
		return nil, nil, status.Errorf(codes.ResourceExhausted,
			"clients of this name request %d services that are not exported, which is the maximum", maxUnexported)
	}
	e.services[ref] = x
	x.users[client.SAN]++
	return x.set, func() { e.release(x, client.SAN) }, nil
}

// startCatalog lists and watches the exported Services of a namespace that an entry of the client list names.
func (e *Exports) startCatalog(namespace string) {
	if e.catalogs[namespace] != nil {
		return
	}
	c := e.cfg.NewCatalog(namespace)
	e.catalogs[namespace] = c
	e.stages.Go(func() {
		if err := c.Run(e.running); err != nil {
			e.cfg.Log.Error("the list of exported Services ended", "namespace", namespace, "error", err)
		}
	})
	e.stages.Go(func() {
		for {
			select {
			case <-e.running.Done():
				return
			case <-c.Changed():
				e.takeCatalog(c)
			}
		}
	})
}

// takeCatalog updates the Services that have changed in a catalog, and those that wait for it.
func (e *Exports) takeCatalog(c Catalog) {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := c.Take()
	for ref, x := range e.services {
		if x.Collector == nil || slices.Contains(names, ref.String()) {
			e.update(x)
		}
	}
}

// newExport returns a Service without stages.
func (e *Exports) newExport(ref types.NamespacedName) *export {
	x := &export{ref: ref, users: map[link.SAN]int{}, metrics: prometheus.NewRegistry()}
	x.set = feed.NewSet(ref.String(), rand.Text())
	x.set.OnDeltaSent = func() { x.RecordSent() }
	return x
}

// update starts the stages of a Service once it is exported, or has it read again. Before that its set has only a status.
func (e *Exports) update(x *export) {
	if x.Collector != nil {
		x.recheck()
		return
	}
	name := x.ref.String()
	c := e.catalogs[x.ref.Namespace]
	if all := e.catalogs[""]; all != nil && (c == nil || c.Problem() != "") {
		c = all
	}
	var problem string
	sync := roster.Withheld
	switch {
	case !c.Has(name) && c.Problem() != "":
		sync, problem = roster.Unsynced, fmt.Sprintf("service %s: %s", name, c.Problem())
	case !c.Has(name):
		problem = kubeservice.NotExported(name, e.cfg.Selector)
	case e.inUse >= e.max && !e.free(func(*export) bool { return true }):
		problem = fmt.Sprintf("%d services are in use, which is the maximum", e.max)
	default:
		e.start(x)
		return
	}
	if now, _ := x.set.Status(); now.Membership.Reason != problem {
		x.set.Publish(roster.Status{
			Membership: roster.PartStatus{Sync: sync, Reason: problem, Since: time.Now()},
			Addresses:  roster.PartStatus{Sync: roster.Unsynced, Reason: problem, Since: time.Now()},
		}, nil)
	}
}

// start creates and runs the stages of a Service.
func (e *Exports) start(x *export) {
	x.Collector, x.recheck = e.cfg.NewCollector(x.ref, x.set, x.metrics)
	e.registerer(x).MustRegister(x.metrics)
	e.inUse++
	running, stop := context.WithCancel(e.running)
	x.stop = stop
	p := x.Collector
	e.stages.Go(func() {
		if err := p.Run(running); err != nil {
			e.cfg.Log.Error("the stages of a Service ended", "service", x.ref.String(), "error", err)
		}
	})
}

// registerer registers the metrics of a Service with its label.
func (e *Exports) registerer(x *export) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"service": x.ref.String()}, e.cfg.Registerer)
}

// countUnexported returns how many Services that are not exported a client requests.
func (e *Exports) countUnexported(client link.SAN) (n int) {
	for _, x := range e.services {
		if x.Collector == nil && x.users[client] > 0 {
			n++
		}
	}
	return n
}

// release ends the use of a Service by one call of a client.
func (e *Exports) release(x *export, client link.SAN) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.users[client]--; x.users[client] == 0 {
		delete(x.users, client)
	}
	x.unusedSince = time.Now()
	if x.Collector == nil && len(x.users) == 0 {
		delete(e.services, x.ref)
	}
}

// freeUnused frees the Services that had no client for unusedTimeout, and starts those that waited for room.
func (e *Exports) freeUnused(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free(func(x *export) bool { return now.Sub(x.unusedSince) >= unusedTimeout })
	for _, x := range e.services {
		if x.Collector == nil {
			e.update(x)
		}
	}
}

// free frees the Services without clients that match, and reports whether there was one.
func (e *Exports) free(match func(*export) bool) (freed bool) {
	for ref, x := range e.services {
		if x.Collector != nil && len(x.users) == 0 && match(x) {
			x.stop()
			e.registerer(x).Unregister(x.metrics)
			e.freedRevisions += x.Set.Revision()
			e.inUse--
			delete(e.services, ref)
			freed = true
		}
	}
	return freed
}

// Revision returns the number of changes over all Services since the start.
func (e *Exports) Revision() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.freedRevisions
	for _, x := range e.services {
		all += x.set.Revision()
	}
	return all
}

// InUse returns the names of the Services in use, sorted.
func (e *Exports) InUse() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := make([]string, 0, e.inUse)
	for ref, x := range e.services {
		if x.Collector != nil {
			names = append(names, ref.String())
		}
	}
	slices.Sort(names)
	return names
}

// Find returns the stages of a Service in use.
func (e *Exports) Find(service string) (p *collector.Collector, found bool) {
	ref, _ := contract.ParseService(service)
	e.mu.Lock()
	defer e.mu.Unlock()
	x, found := e.services[ref]
	if !found || x.Collector == nil {
		return nil, false
	}
	return x.Collector, true
}
