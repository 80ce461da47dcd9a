package sim

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	writerreport "github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// writer is a process of the writer: the product's reconciler with queues that the world serves.
type writer struct {
	*world

	name    string
	wires   []*wire // to each source
	lives   int
	alive   bool
	stopped int      // it stands still
	put     []func() // off until it goes on
	cutOff  int      // from everything
	blind   int      // its probes reach nothing
	fence   func(c *cluster) netip.Prefix
	allowed []uint16 // ports

	// What follows is gone with the process.
	subs    []*subscription
	probes  *probes
	lease   *candidate
	catalog *catalog
	loop    *reconciler.Reconciler
	applier *applier.Applier
	store   *store
	write   *write
	poked   bool   // a decision is due
	ordered bool   // a write is due
	wake    *event // of the next decision
	retry   *event // of the next write
	guards  string // as was told

	withheld map[string]int // by source, of the shrink budget, as was told
}

func newWriter(w *world, n int) *writer {
	one := &writer{
		world:   w,
		name:    fmt.Sprintf("writer-%d", n),
		fence:   func(c *cluster) netip.Prefix { return c.cidr(16) },
		allowed: answering[:2],
	}
	for _, c := range w.clusters {
		one.wires = append(one.wires, &wire{rand: w.chance(fmt.Sprintf("link %d %s", n, c.name))})
	}
	return one
}

// id is who the process is, for the Lease.
func (w *writer) id() string { return fmt.Sprintf("%s_%d", w.name, w.lives) }

// at has something happen in the process, as long as it lives; while it stands still, when it goes on.
func (w *writer) at(t time.Time, do func()) *event {
	life := w.lives
	e := &event{do: do}
	var attempt func()
	attempt = func() {
		switch {
		case !w.alive || w.lives != life || e.do == nil:
		case w.stopped > 0:
			w.put = append(w.put, attempt)
		default:
			e.do()
		}
	}
	e.within = w.world.at(t, attempt)
	return e
}

// goOn has it do what it has not done while it stood still.
func (w *writer) goOn() {
	if w.stopped--; w.stopped > 0 {
		return
	}
	now := time.Now()
	for _, attempt := range w.put {
		w.world.at(now, attempt)
	}
	w.put = nil
}

func (w *writer) start() {
	w.lives++
	w.alive, w.poked, w.ordered, w.write, w.guards, w.withheld = true, false, false, nil, "", nil
	w.wake, w.retry, w.loop = nil, nil, nil
	w.tellf("%s starts", w.name)
	w.see(oracle.Process{Writer: w.name, Runs: true})
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	w.subs = nil
	setup := &w.script.Setup
	cfg := reconciler.Config{
		Logger: log, Registerer: registry, Zones: map[string]string{},
		Limits: verdict.Limits{
			MaxStaleness: setup.MaxStaleness, ShrinkWindow: setup.ShrinkWindow, EmptyThreshold: setup.EmptyThreshold,
		},
	}
	settings := targets.Config{
		Class: "default", Writer: "writers", Namespaces: []string{namespace},
		Defaults: targets.Settings{
			Probe: probe.Spec{Mode: probe.TCP, Interval: setup.ProbeInterval}, ListUnready: setup.ListOut,
		},
	}
	if !setup.Probing {
		settings.Defaults.Probe.Mode = probe.Off
	}
	for n, c := range w.clusters {
		fence := w.fence(c)
		w.see(oracle.Fenced{Writer: w.name, Source: c.name, Inside: prefixes(fence), Forbidden: []netip.Addr{clusterIP}, Ports: w.allowed})
		s := newSubscription(w, c, w.wires[n])
		w.subs = append(w.subs, s)
		cfg.Sources = append(cfg.Sources, reconciler.Source{Feeds: s, Name: c.name, CIDRs: prefixes(fence)})
		configured := sources.Source{Name: c.name}
		for _, port := range w.allowed {
			configured.Ports = append(configured.Ports, sources.PortRange{First: port, Last: port})
		}
		settings.Sources = append(settings.Sources, configured)
	}
	w.probes = newProbes(w)
	w.lease = &candidate{w: w, rand: w.chance("lease " + w.id())}
	w.store = &store{w: w}
	w.catalog = newCatalog(w, settings)
	cfg.Targets, cfg.Prober, cfg.Lease = w.catalog, w.probes, w.lease
	cfg.Reporter = events.NewReporter(events.Config{Logger: log})
	hooks, of := writerreport.NewHooks(registry, cfg.Reporter, nil), w.store
	cfg.Applier = func() *applier.Applier {
		w.applier = applier.New(applier.Config{
			Store: of, Leading: w.lease.Leading, Confirm: of.confirm, Hooks: hooks, Logger: log,
		})
		return w.applier
	}
	w.loop = reconciler.New(cfg, decisions{w}, writes{w})
	w.catalog.begin()
	w.lease.compete()
	for _, s := range w.subs {
		s.converse()
	}
}

// kill ends the process.
func (w *writer) kill() {
	if !w.alive {
		return
	}
	w.tellf("%s is killed", w.name)
	w.store.kill()
	for _, s := range w.subs {
		s.current.close()
	}
	w.alive = false
	w.lives++ // what was under way is nobody's
	w.see(oracle.Process{Writer: w.name})
}

// restart has it start anew with other settings.
func (w *writer) restart() {
	if !w.alive {
		return
	}
	w.kill()
	w.after(2*time.Second, func() {
		if !w.alive {
			w.start()
		}
	})
}

// poke has the writer decide anew.
func (w *writer) poke() {
	if w.poked || !w.alive || w.loop == nil {
		return
	}
	w.poked = true
	w.at(time.Now(), func() {
		w.poked = false
		w.loop.Decide(target, time.Now())
		w.confide()
		w.mayWrite()
	})
}

// mayWrite begins the write that is due, unless one is under way or a decision comes first: what is written is what
// follows from all that is known.
func (w *writer) mayWrite() {
	if w.ordered && w.write == nil && !w.poked {
		w.ordered = false
		w.store.begin(func(ctx context.Context) { w.loop.Write(ctx, target, time.Now()) })
	}
}

// decisions is the queue of decisions of a writer, which has one target.
type decisions struct{ w *writer }

// Add has the target decided.
func (q decisions) Add(targets.Key) { q.w.poke() }

// AddAfter has it decided later, if not before.
func (q decisions) AddAfter(_ targets.Key, wait time.Duration) {
	q.w.wake = q.w.sooner(q.w.wake, wait, q.w.poke)
}

// writes is the queue of writes of a writer.
type writes struct{ w *writer }

// Add has the target written, once the decision that asks for it is over.
func (q writes) Add(targets.Key) { q.w.ordered = true }

// AddAfter has it written later, if not before.
func (q writes) AddAfter(_ targets.Key, wait time.Duration) {
	q.w.retry = q.w.sooner(q.w.retry, wait, func() { q.w.ordered = true; q.w.mayWrite() })
}

// sooner has something happen after a while, unless it happens before by the earlier event.
func (w *writer) sooner(earlier *event, wait time.Duration, do func()) *event {
	at := time.Now().Add(max(0, wait))
	if earlier != nil && earlier.do != nil && !earlier.within.at.After(at) {
		return earlier
	}
	earlier.cancel()
	var e *event
	e = w.at(at, func() { e.do = nil; do() })
	return e
}

// planned tells that there is something to write, and how much of it, which the product's loop
// keeps to itself.
func (w *writer) planned() uint64 {
	w.plans++
	view := w.catalog.Get(target, w.catalog.leadingSince)
	current := w.applier.Observed(view.Slices, view.ResourceVersion)
	desired := view.Desired()
	writes := planner.Withdraw(desired, current).Writes()
	if view.State != targets.Leaving {
		desired.Endpoints, desired.PortGroups = reconciler.ListedEndpoints(w.loop.Decision(target).Endpoints, view.Allows)
		writes = planner.Compute(desired, current).Writes()
	}
	w.see(oracle.Planned{Writer: w.name, Target: target.String(), Plan: w.plans, Writes: writes})
	if slices.ContainsFunc(w.loop.Decision(target).Endpoints, func(e verdict.Endpoint) bool { return e.Rule == verdict.RuleTable }) {
		w.covers(verdict.RuleTable)
	}
	return w.plans
}

// covers notes that a rule spoke, and while which faults.
func (w *writer) covers(rule verdict.Rule) {
	for kind := range w.inForce {
		w.result.Covered[Cell{kind, string(rule)}]++
	}
}

// confide tells what guards act, and notes while which faults they did.
func (w *writer) confide() {
	d := w.loop.Decision(target)
	var guards []string
	withheld := map[string]int{}
	for _, g := range d.Guards {
		if g.Rule == verdict.RuleShrink {
			withheld[g.Source] = g.Held
		}
		guards = append(guards, string(g.Rule))
		w.covers(g.Rule)
	}
	guards = slices.Compact(guards)
	text := strings.Join(guards, ", ")
	if text != w.guards || !maps.Equal(withheld, w.withheld) {
		if w.trace != nil && text != w.guards {
			w.tellf("%s: guards: %s", w.name, text)
			for _, g := range d.Guards {
				w.tellf("%s:   %s", w.name, g.Message)
			}
		}
		w.guards, w.withheld = text, withheld
		w.see(oracle.Acts{Writer: w.name, Target: target.String(), Guards: guards, Withheld: withheld})
	}
}

// catalog is what a writer has seen of the consuming cluster, judged as the product does it.
type catalog struct {
	*follower[runtime.Object]

	w      *writer
	cfg    targets.Config
	synced bool
	known  map[string]runtime.Object
	rv     uint64
	memory targets.Memory
	told   string // to the oracle

	leadingSince time.Time // as of the last decision
}

func newCatalog(w *writer, cfg targets.Config) *catalog {
	c := &catalog{w: w, cfg: cfg, known: map[string]runtime.Object{}}
	server := w.consuming
	c.follower = &follower[runtime.Object]{
		of: server.objects, rand: server.rand, at: w.at, behind: func() time.Duration { return server.lag },
		fails: func() string {
			if server.down > 0 {
				return "503 Service Unavailable"
			}
			return ""
		},
		hangs: func() bool { return server.hanging+w.cutOff > 0 },
		replace: func(all map[string]runtime.Object, rv uint64) {
			c.synced, c.known, c.rv = true, all, rv
			c.confide()
		},
		handle: func(e entry[runtime.Object]) {
			if c.rv = e.rv; e.gone {
				delete(c.known, e.name)
			} else {
				c.known[e.name] = e.is
			}
			c.confide()
		},
		failed: func(string) {},
	}
	return c
}

// Get judges the Service.
func (c *catalog) Get(key targets.Key, leadingSince time.Time) targets.Resolution {
	if c.leadingSince = leadingSince; !c.synced {
		return targets.Resolution{}
	}
	found := targets.Input{Key: key, Previous: c.memory, Now: time.Now(), LeadingSince: leadingSince}
	for _, name := range slices.Sorted(maps.Keys(c.known)) {
		switch o := c.known[name].(type) {
		case *corev1.Service:
			found.Service = o
		case *discoveryv1.EndpointSlice:
			found.Slices = append(found.Slices, o)
		}
	}
	view, memory := targets.Resolve(c.cfg, found)
	c.memory = memory
	view.ResourceVersion = strconv.FormatUint(c.rv, 10)
	view.ClusterIPs = map[netip.Addr]struct{}{clusterIP: {}}
	return view
}

// TakeChanged returns nothing: the writer is poked.
func (c *catalog) TakeChanged() []targets.Key { return nil }

// Changed delivers nothing, for the same reason.
func (c *catalog) Changed() <-chan struct{} { return nil }

// Synced is whether all was read.
func (c *catalog) Synced() error { return nil }

// confide tells the oracle what the writer knows of the settings, and pokes the writer.
func (c *catalog) confide() {
	c.w.see(oracle.Noticed{Writer: c.w.name, Target: target.String(), Version: c.rv})
	view := c.Get(target, c.leadingSince)
	s := view.Settings
	is := oracle.Configured{
		Writer:         c.w.name,
		Target:         target.String(),
		Out:            !view.Active(),
		Paused:         view.Settings.Paused,
		Sources:        s.AllSources(),
		Failover:       s.Failover,
		FailoverBelow:  max(1, s.FailoverBelow),
		ExpireAfter:    s.ExpireAfter,
		Probe:          probeName(s.Probe),
		NoOut:          !s.ListUnready,
		IPv4:           true,
		Ports:          map[string]uint16{},
		Follows:        s.PortsFromSource,
		ShrinkWindow:   c.w.script.Setup.ShrinkWindow,
		EmptyThreshold: c.w.script.Setup.EmptyThreshold,
		MaxStaleness:   c.w.script.Setup.MaxStaleness,
	}
	for _, p := range view.Ports {
		is.Port = uint16(*p.Port)
	}
	for source, numbers := range s.Ports {
		is.Ports[source] = numbers["http"]
	}
	if s.NodeSelector != nil && !s.NodeSelector.Empty() {
		_, pool, _ := strings.Cut(s.NodeSelector.String(), "=")
		is.Selector = map[string]string{poolLabel: pool}
	}
	if text := fmt.Sprint(is); text != c.told {
		c.told = text
		c.w.see(is)
	}
	c.w.poke()
}

func prefixes(all ...netip.Prefix) []netip.Prefix { return all }
