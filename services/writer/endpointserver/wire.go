package endpointserver

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func sentence(text string) string { return stream.TruncateText(text, writerv1.MaxTextLength) }

func name(text string) string { return stream.TruncateText(text, writerv1.MaxNameLength) }

func wireEntry(e *endpoints.Entry) *writerv1.Entry {
	w := &writerv1.Entry{Key: e.Key, Namespace: e.Namespace, Service: e.Service, Fingerprint: e.Fingerprint[:]}
	switch e.Kind {
	case endpoints.KindTarget:
		w.Kind = &writerv1.Entry_Target{Target: wireTarget(e.State, e.Reason, e.Message, e.Ports)}
	case endpoints.KindEndpoint:
		w.Kind = &writerv1.Entry_Endpoint{Endpoint: &writerv1.Endpoint{Port: wirePort(e.Port), Backend: wireBackend(&e.Backends[0])}}
	case endpoints.KindGroup:
		g := &writerv1.Group{Port: wirePort(e.Port), Omitted: uint32(e.LeftOut)}
		for i := range e.Backends {
			g.Backends = append(g.Backends, wireBackend(&e.Backends[i]))
		}
		w.Kind = &writerv1.Entry_Group{Group: g}
	}
	return w
}

func wireTarget(state endpoints.State, reason, message string, ports []endpoints.Port) *writerv1.Target {
	t := &writerv1.Target{State: writerv1.TargetState(state), Reason: stream.TruncateText(reason, writerv1.MaxReasonLength), Message: sentence(message)}
	for _, p := range ports[:min(len(ports), writerv1.MaxPorts)] {
		t.Ports = append(t.Ports, wirePort(p))
	}
	return t
}

func wirePort(p endpoints.Port) *writerv1.Port {
	return &writerv1.Port{
		Name: name(p.Name), Protocol: name(p.Protocol), Number: uint32(p.Number),
		AppProtocol: stream.TruncateText(p.AppProtocol, writerv1.MaxAppProtocolLength),
	}
}

func wireBackend(b *endpoints.Backend) *writerv1.Backend {
	if b == nil {
		return nil
	}
	return &writerv1.Backend{
		Address: b.Address.String(),
		Ready:   b.Conditions.Ready, Serving: b.Conditions.Serving, Terminating: b.Conditions.Terminating,
		Source: name(b.Source), Zone: name(b.Zone),
	}
}

func wireStatus(s endpoints.Status) *writerv1.WriterStatus {
	w := &writerv1.WriterStatus{Leading: s.Leading, Held: uint32(s.HeldBack)}
	if !s.Synced {
		w.Reason = "this writer has not decided yet on all targets that there were when it started"
	}
	for _, source := range s.Sources[:min(len(s.Sources), writerv1.MaxSources)] {
		w.Sources = append(w.Sources, wireSource(source))
	}
	return w
}

func wireSource(s endpoints.Source) *writerv1.SourceStatus {
	return &writerv1.SourceStatus{Name: name(s.Name), Connected: s.Alive, Reason: sentence(s.Reason)}
}

func wireListing(l *endpoints.Listing, now time.Time) *writerv1.ListedTarget {
	w := &writerv1.ListedTarget{
		Namespace: l.Namespace, Service: l.Service, Target: wireTarget(l.State, l.Reason, l.Message, l.Ports),
		Ready: uint32(l.Ready), Draining: uint32(l.Draining), NotReady: uint32(l.Out), NextDecisionIn: until(l.DecidesAt, now),
	}
	for _, s := range l.Sources {
		w.Sources = append(w.Sources, name(s))
	}
	for i := range l.Guards {
		w.Guards = append(w.Guards, wireGuard(&l.Guards[i]))
	}
	return w
}

func wireGuard(g *verdict.Guard) *writerv1.Guard {
	if g == nil {
		return nil
	}
	return &writerv1.Guard{Rule: string(g.Rule), Source: name(g.Source), Held: uint32(g.Held), Message: sentence(g.Message)}
}

func wireExplanation(e *endpoints.Explanation, now time.Time) *writerv1.ExplainEndpointResponse {
	w := &writerv1.ExplainEndpointResponse{
		Namespace: e.Namespace, Service: e.Service, Address: e.Address.String(), Leading: e.Leading,
		Target:  wireTarget(e.State, e.Reason, e.Message, e.Ports),
		Current: wireBackend(e.Held), Desired: wireBackend(e.Told),
		Verdict: writerv1.Verdict(e.Judged.Verdict), Rule: string(e.Judged.Rule), Reason: sentence(e.Judged.Reason),
		Guard: wireGuard(e.Guard), NextDecisionIn: until(e.DecidesAt, now),
		Conclusion: sentence(e.Conclusion), Advice: sentence(e.Advice),
	}
	for i := range e.Witnesses {
		w.Sources = append(w.Sources, wireWitness(&e.Witnesses[i], now))
	}
	if p := e.Probe; p != nil {
		healths := [...]string{verdict.Unjudged: "pending", verdict.Passing: "passing", verdict.Failing: "failing"}
		w.Probe = &writerv1.ProbeStatus{Health: healths[p.Health], Age: since(p.Since, now), Detail: sentence(p.Detail), PassedAge: since(p.Passed, now)}
	}
	return w
}

func wireWitness(s *endpoints.Witness, now time.Time) *writerv1.SourceReport {
	w := &writerv1.SourceReport{
		Source: name(s.Name), Status: wireSource(s.Source), EverSynced: s.Heard,
		Observation: s.Observation, ObservationAge: since(s.ObservedAt, now),
	}
	if m := s.Member; m != nil {
		states := [...]string{verdict.Unknown: "UNKNOWN", verdict.Ready: "READY", verdict.Draining: "DRAINING", verdict.NotReady: "NOT_READY"}
		w.Listed, w.Member, w.State, w.StateAge = true, sentence(m.Name), states[m.State], since(m.Since, now)
	}
	return w
}

// since and until are durations on the wire, where none is negative; nil: of no time.
func since(t, now time.Time) *durationpb.Duration {
	if t.IsZero() {
		return nil
	}
	return durationpb.New(max(now.Sub(t), 0))
}

func until(t, now time.Time) *durationpb.Duration {
	if t.IsZero() {
		return nil
	}
	return durationpb.New(max(t.Sub(now), 0))
}
