package health

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Metrics are those of the targets of a process.
type Metrics struct {
	targets []*prometheus.GaugeVec // all that have series for each target

	healthy        *prometheus.GaugeVec
	unhealthySince *prometheus.GaugeVec
	problem        *prometheus.GaugeVec
	endpoints      *prometheus.GaugeVec
	held           *prometheus.GaugeVec
	managed        *prometheus.GaugeVec
	paused         *prometheus.GaugeVec

	mu    sync.Mutex
	since map[targets.Key]time.Time // since when a target has been unhealthy
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{since: map[targets.Key]time.Time{}}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "writer", Name: name, Help: help},
			append([]string{"namespace", "service"}, labels...),
		)
		m.targets = append(m.targets, g)
		reg.MustRegister(g)
		return g
	}
	m.healthy = gauge("target_healthy", "1 if the target is managed and in sync, has a ready endpoint, and no guard is active.")
	m.unhealthySince = gauge(
		"target_unhealthy_since_timestamp_seconds",
		"Unix time since which the target has been unhealthy, as far as this process has observed; 0: it is healthy.",
	)
	m.problem = gauge(
		"target_problem",
		"1 if the target has this problem: rejected, paused, writes_blocked (a guard blocks all writes), out_of_sync (its slices differ from the decision), no_ready_endpoints or guard_active.",
		"problem",
	)
	m.endpoints = gauge(
		"endpoints",
		"Number of endpoints that the decision lists, by state: ready, draining (serving and terminating) or not_ready.",
		"state",
	)
	m.held = gauge("guard_held_endpoints", "Number of endpoints whose change a guard holds.", "guard")
	m.managed = gauge("target_managed", "1 if the target is written; 0 if its Service is missing, rejected or paused.")
	m.paused = gauge("target_paused", "1 if the target's Service is paused, so that nothing is written.")
	return m
}

// setDecision sets what is decided about a target.
func (m *Metrics) setDecision(key targets.Key, d verdict.Decision) {
	states := map[string]int{"ready": 0, "draining": 0, "not_ready": 0}
	for i := range d.Endpoints {
		switch e := &d.Endpoints[i]; {
		case !e.Listed:
		case e.Conditions.Ready:
			states["ready"]++
		case e.Conditions.Serving:
			states["draining"]++
		default:
			states["not_ready"]++
		}
	}
	for state, n := range states {
		m.endpoints.WithLabelValues(key.Namespace, key.TargetName(), state).Set(float64(n))
	}
	held := map[verdict.Rule]int{}
	for _, rule := range verdict.GuardOrder {
		held[rule] = 0
	}
	for _, g := range d.Guards {
		held[g.Rule] += g.Held
	}
	for rule, n := range held {
		m.held.WithLabelValues(key.Namespace, key.TargetName(), string(rule)).Set(float64(n))
	}
}

// setHealth sets whether a target is healthy.
func (m *Metrics) setHealth(key targets.Key, view targets.Resolution, problems map[problem]bool, now time.Time) {
	m.mu.Lock()
	since, unhealthy := m.since[key]
	switch {
	case len(problems) == 0:
		delete(m.since, key)
	case !unhealthy:
		since, m.since[key] = now, now
	}
	m.mu.Unlock()
	seconds := 0.0
	if len(problems) > 0 {
		seconds = float64(since.UnixMilli()) / 1000
	}
	m.healthy.WithLabelValues(key.Namespace, key.TargetName()).Set(gaugeValue(len(problems) == 0))
	m.unhealthySince.WithLabelValues(key.Namespace, key.TargetName()).Set(seconds)
	for _, p := range allProblems {
		m.problem.WithLabelValues(key.Namespace, key.TargetName(), string(p)).Set(gaugeValue(problems[p]))
	}
	m.managed.WithLabelValues(key.Namespace, key.TargetName()).Set(gaugeValue(view.Active() && view.Rejection == nil && !view.Paused))
	m.paused.WithLabelValues(key.Namespace, key.TargetName()).Set(gaugeValue(view.Paused))
}

// Update sets the metrics of a target after a decision. writeFails: the last write of its slices failed.
func (m *Metrics) Update(
	key targets.Key,
	view targets.Resolution,
	input verdict.Input,
	d verdict.Decision,
	writeFails bool,
	now time.Time,
) {
	if view.Active() {
		m.setDecision(key, d)
	} else {
		m.deleteSeries(key)
	}
	m.setHealth(key, view, findProblems(view, input, d, writeFails), now)
}

// Forget removes all series of a target.
func (m *Metrics) Forget(key targets.Key) {
	m.mu.Lock()
	delete(m.since, key)
	m.mu.Unlock()
	m.deleteSeries(key)
}

func (m *Metrics) deleteSeries(key targets.Key) {
	for _, g := range m.targets {
		g.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "service": key.TargetName()})
	}
}

func gaugeValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
