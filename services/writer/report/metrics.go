package report

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Metrics are those of the targets of a process: their problems, and what was decided.
type Metrics struct {
	healthy        *prometheus.GaugeVec
	unhealthySince *prometheus.GaugeVec
	problem        *prometheus.GaugeVec
	endpoints      *prometheus.GaugeVec
	held           *prometheus.GaugeVec
	managed        *prometheus.GaugeVec

	mu    sync.Mutex
	known map[targets.Key]health
}

// health is what the metrics say of a target.
type health struct {
	unhealthySince time.Time                // zero: it is healthy
	problems       map[problemKey]time.Time // since when it has each
	series         map[seriesKey]bool
}

type problemKey struct{ reason, object string }

type seriesKey struct{ reason, level string }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{known: map[targets.Key]health{}}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "writer", Name: name, Help: help},
			append([]string{"namespace", "service"}, labels...),
		)
		reg.MustRegister(g)
		return g
	}
	m.healthy = gauge("target_healthy", "1 if the target has no problem, or only notes.")
	m.unhealthySince = gauge(
		"target_unhealthy_since_timestamp_seconds",
		"Unix time since which the target has been unhealthy, as far as this process has observed; 0: it is healthy.",
	)
	m.problem = gauge(
		"target_problem",
		"1 while the target has a problem, by its reason, such as OutOfSync, and its level: note, warning or error.",
		"reason", "level",
	)
	m.endpoints = gauge(
		"endpoints",
		"Number of endpoints that the decision lists, by state: ready, draining (serving and terminating) or not_ready.",
		"state",
	)
	m.held = gauge("guard_held_endpoints", "Number of endpoints whose change a guard holds.", "guard")
	m.managed = gauge("target_managed", "1 if the target is written; 0 if its Service is missing, rejected or paused.")
	return m
}

// Update sets the metrics of a target after a decision. It returns since when it has each of its problems.
func (m *Metrics) Update(
	key targets.Key,
	view targets.Resolution,
	d verdict.Decision,
	problems []*report.Problem,
	now time.Time,
) (since []time.Time) {
	if view.Active() {
		m.setDecision(key, d)
	} else {
		m.deleteDecision(key)
	}
	m.managed.WithLabelValues(key.Namespace, key.TargetName()).Set(gaugeValue(view.Active() && view.Rejection == nil && !view.Paused))
	return m.setProblems(key, problems, now)
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

// setProblems sets the problems of a target, and returns since when it has each. One that it does not have has no
// series: there are many reasons.
func (m *Metrics) setProblems(key targets.Key, problems []*report.Problem, now time.Time) (since []time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, seconds := m.known[key], 0.0
	current := health{problems: map[problemKey]time.Time{}, series: map[seriesKey]bool{}}
	for _, p := range problems {
		id := problemKey{p.GetReason(), p.GetObject()}
		at, known := before.problems[id]
		if !known {
			at = now
		}
		current.problems[id], since = at, append(since, at)
		level := strings.ToLower(strings.TrimPrefix(p.GetLevel().String(), "LEVEL_"))
		current.series[seriesKey{p.GetReason(), level}] = true
		m.problem.WithLabelValues(key.Namespace, key.TargetName(), p.GetReason(), level).Set(1)
	}
	for s := range before.series {
		if !current.series[s] {
			m.problem.DeleteLabelValues(key.Namespace, key.TargetName(), s.reason, s.level)
		}
	}
	healthy := report.IsHealthy(problems)
	if !healthy {
		if current.unhealthySince = before.unhealthySince; current.unhealthySince.IsZero() {
			current.unhealthySince = now
		}
		seconds = float64(current.unhealthySince.UnixMilli()) / 1000
	}
	m.known[key] = current
	m.healthy.WithLabelValues(key.Namespace, key.TargetName()).Set(gaugeValue(healthy))
	m.unhealthySince.WithLabelValues(key.Namespace, key.TargetName()).Set(seconds)
	return since
}

// Forget removes all series of a target. Like every change of a target, it costs the same however many others there are.
func (m *Metrics) Forget(key targets.Key) {
	m.setProblems(key, nil, time.Time{})
	m.mu.Lock()
	delete(m.known, key)
	m.mu.Unlock()
	m.deleteDecision(key)
	for _, g := range []*prometheus.GaugeVec{m.healthy, m.unhealthySince, m.managed} {
		g.DeleteLabelValues(key.Namespace, key.TargetName())
	}
}

// deleteDecision removes what setDecision sets.
func (m *Metrics) deleteDecision(key targets.Key) {
	for _, state := range []string{"ready", "draining", "not_ready"} {
		m.endpoints.DeleteLabelValues(key.Namespace, key.TargetName(), state)
	}
	for _, rule := range verdict.GuardOrder {
		m.held.DeleteLabelValues(key.Namespace, key.TargetName(), string(rule))
	}
}

func gaugeValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
