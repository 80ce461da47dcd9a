// Package exports publishes the endpoints of many Services, each as a set of its own. The stages of a Service are
// created when a client requests it, and freed some time after the last client has left. It guarantees that a client
// gets the Services that its entry in the client list allows, and no others, and that Services do not affect each
// other. It does not decide which Services are exported: package kubeservice does, by their labels.
package exports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
)

const (
	// unusedTimeout is how long the stages of an exported Service are kept without clients: longer than an
	// upgrade or a short outage of a writer, so that a reader that returns receives a delta rather than a reset.
	unusedTimeout = 10 * time.Minute

	freeInterval = time.Minute

	// maxServices limits the Services in use: each takes some 200 KB of resident memory and a watch.
	maxServices = 4096

	retryInterval = 2 * time.Second // between two attempts to reach the API server
)

// ServiceRef names a Service.
type ServiceRef struct{ Namespace, Name string }

// ParseServiceRef reads namespace/name.
func ParseServiceRef(text string) (ServiceRef, error) {
	namespace, name, ok := contract.ParseService(text)
	if !ok {
		return ServiceRef{}, errors.New("not namespace/name")
	}
	return ServiceRef{namespace, name}, nil
}

func (r ServiceRef) String() string { return r.Namespace + "/" + r.Name }

// Config is what Exports needs. All fields are mandatory.
type Config struct {
	// NewPipeline creates the stages of a Service, which register their metrics with a label of the Service.
	NewPipeline func(service ServiceRef, registerer prometheus.Registerer) *collector.Pipeline
	// CheckReachable returns nil if the API server responds.
	CheckReachable func(ctx context.Context) error
	Registerer     prometheus.Registerer
	Log            *slog.Logger
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
	unreachable    error // why the API server did not respond last
	services       map[ServiceRef]*export
	freedRevisions uint64 // of the feeds of Services that were freed
}

// export has the stages of one Service in use.
type export struct {
	*collector.Pipeline

	set         *nodeserver.Set
	metrics     registrations
	stop        context.CancelFunc
	users       int       // calls under way, streams included
	unusedSince time.Time // valid while users is 0
}

// New returns Exports in which no Service is in use.
func New(cfg Config) *Exports {
	e := &Exports{
		cfg:         cfg,
		max:         maxServices,
		ready:       make(chan struct{}),
		services:    map[ServiceRef]*export{},
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
	defer e.stages.Wait()
	defer e.stop()
	e.awaitReachable(ctx)
	ticker := time.NewTicker(freeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			e.freeUnused(now)
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

// Ready implements nodeserver.Sets.
func (e *Exports) Ready() (bool, <-chan struct{}) {
	select {
	case <-e.ready:
		return true, e.ready
	default:
		return false, e.ready
	}
}

// Acquire implements nodeserver.Sets. It starts the stages of a Service that is not in use.
func (e *Exports) Acquire(client nodeserver.Client, service string) (set *nodeserver.Set, release func(), err error) {
	ref, err := ParseServiceRef(service)
	switch {
	case service == "":
		return nil, nil, status.Error(
			codes.InvalidArgument,
			"this inventory exports Services, want the service of a request as namespace/name",
		)
	case err != nil:
		return nil, nil, status.Errorf(codes.InvalidArgument, "service is %.253q, want namespace/name", service)
	case client.AllowsService == nil || !client.AllowsService(service):
		return nil, nil, status.Errorf(
			codes.PermissionDenied,
			"client may not see service %s; its entry in ALLOWED_CLIENTS_FILE has to name it in services",
			service,
		)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.services[ref]
	if x == nil {
		if e.running.Err() != nil {
			return nil, nil, status.Error(codes.Unavailable, "server is shutting down")
		}
		if len(e.services) >= e.max {
			e.free(unobserved)
		}
		if len(e.services) >= e.max {
			return nil, nil, status.Errorf(codes.ResourceExhausted, "%d services are in use, which is the maximum", e.max)
		}
		x = e.start(ref)
		e.services[ref] = x
	}
	x.users++
	return x.set, func() { e.release(x) }, nil
}

// start creates and runs the stages of a Service.
func (e *Exports) start(ref ServiceRef) *export {
	x := &export{
		metrics: registrations{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"service": ref.String()}, e.cfg.Registerer)},
	}
	x.Pipeline = e.cfg.NewPipeline(ref, &x.metrics)
	x.set = nodeserver.NewSet(nodeserver.SetConfig{
		Service: ref.String(), Nodes: x.Set, OnDeltaSent: x.RecordSent,
	})
	running, stop := context.WithCancel(e.running)
	x.stop = stop
	e.stages.Go(func() {
		if err := x.Run(running); err != nil {
			e.cfg.Log.Error("the stages of a Service ended", "service", ref.String(), "error", err)
		}
	})
	return x
}

// release ends the use of a Service by one call.
func (e *Exports) release(x *export) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.users--
	x.unusedSince = time.Now()
}

// unobserved reports whether a Service was never published, because it does not exist or is not exported. Clients can
// request any number of such names.
func unobserved(x *export) bool { return x.CheckObserved() != nil }

// freeUnused frees the Services that had no client for unusedTimeout, and those that were never published.
func (e *Exports) freeUnused(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free(func(x *export) bool { return unobserved(x) || now.Sub(x.unusedSince) >= unusedTimeout })
}

// free frees the Services without clients that match.
func (e *Exports) free(match func(*export) bool) {
	for ref, x := range e.services {
		if x.users == 0 && match(x) {
			x.stop()
			x.metrics.unregister()
			e.freedRevisions += x.Set.Revision()
			delete(e.services, ref)
		}
	}
}

// TotalRevisions returns the number of changes over all Services since the start.
func (e *Exports) TotalRevisions() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.freedRevisions
	for _, x := range e.services {
		all += x.Set.Revision()
	}
	return all
}

// InUse returns the names of the Services in use, sorted.
func (e *Exports) InUse() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := make([]string, 0, len(e.services))
	for ref := range e.services {
		names = append(names, ref.String())
	}
	slices.Sort(names)
	return names
}

// Find returns the stages of a Service in use.
func (e *Exports) Find(service string) (p *collector.Pipeline, found bool) {
	ref, _ := ParseServiceRef(service)
	e.mu.Lock()
	defer e.mu.Unlock()
	x, found := e.services[ref]
	if !found {
		return nil, false
	}
	return x.Pipeline, true
}

// registrations is a Registerer that can take back what was registered with it.
type registrations struct {
	prometheus.Registerer

	collectors []prometheus.Collector
}

// MustRegister implements prometheus.Registerer.
func (r *registrations) MustRegister(all ...prometheus.Collector) {
	r.Registerer.MustRegister(all...)
	r.collectors = append(r.collectors, all...)
}

func (r *registrations) unregister() {
	for _, c := range r.collectors {
		r.Unregister(c)
	}
}
