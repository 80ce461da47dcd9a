package endpointserver

import (
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

func truncateText(text string) string { return display.Truncate(text, contract.MaxTextLength) }

func truncateName(text string) string { return display.Truncate(text, maxNameLength) }

func encodeEntry(e *endpoints.Entry) *writerv1.Entry {
	w := &writerv1.Entry{Key: e.Key, Namespace: e.Namespace, Service: e.Service, Fingerprint: e.Fingerprint[:]}
	switch e.Kind {
	case endpoints.KindTarget:
		w.Kind = &writerv1.Entry_Target{Target: encodeTarget(&e.TargetStatus)}
	case endpoints.KindEndpoint:
		w.Kind = &writerv1.Entry_Endpoint{Endpoint: &writerv1.Endpoint{Port: encodePort(e.Port), Backend: encodeBackend(&e.Backends[0])}}
	case endpoints.KindGroup:
		g := &writerv1.Group{Port: encodePort(e.Port), Omitted: uint32(e.Omitted)}
		for i := range e.Backends {
			g.Backends = append(g.Backends, encodeBackend(&e.Backends[i]))
		}
		w.Kind = &writerv1.Entry_Group{Group: g}
	}
	return w
}

func encodeTarget(s *endpoints.TargetStatus) *writerv1.Target {
	t := &writerv1.Target{
		State:       writerv1.TargetState(s.State),
		Reason:      display.Truncate(s.Reason, maxReasonLength),
		Message:     truncateText(s.Message),
		ServiceType: truncateName(s.ServiceType),
	}
	for _, p := range s.Ports {
		t.Ports = append(t.Ports, encodePort(p))
	}
	return t
}

func encodePort(p endpoints.Port) *writerv1.Port {
	return &writerv1.Port{
		Name: truncateName(p.Name), Protocol: truncateName(p.Protocol), Number: uint32(p.Number),
		AppProtocol: display.Truncate(p.AppProtocol, maxAppProtocolLength), ServicePort: uint32(p.ServicePort),
	}
}

func encodeBackend(b *endpoints.Backend) *writerv1.Backend {
	if b == nil {
		return nil
	}
	return &writerv1.Backend{
		Address: b.Address.String(),
		Ready:   b.Conditions.Ready, Serving: b.Conditions.Serving, Terminating: b.Conditions.Terminating,
		Source: truncateName(b.Source), Zone: truncateName(b.Zone), Hostname: truncateName(b.Hostname), Port: uint32(b.Port),
	}
}

func encodeStatus(s endpoints.Status) *writerv1.WriterStatus {
	w := &writerv1.WriterStatus{Leading: s.Leading, Held: uint32(s.Held)}
	if !s.Synced {
		w.Reason = "initial sync incomplete: not every target has a decision yet"
	}
	for _, source := range s.Sources[:min(len(s.Sources), maxSources)] {
		w.Sources = append(w.Sources, encodeSourceStatus(source))
	}
	return w
}

func encodeSourceStatus(s endpoints.SourceStatus) *writerv1.SourceStatus {
	return &writerv1.SourceStatus{Name: display.Truncate(s.Name, maxFeedLength), Connected: s.Connected, Reason: truncateText(s.Reason)}
}

func encodeSummary(l endpoints.Summary) *writerv1.ListedTarget {
	return &writerv1.ListedTarget{
		Namespace: l.Namespace, Service: l.Service, Target: encodeTarget(&l.TargetStatus),
		Ready: uint32(l.Ready), Draining: uint32(l.Draining), NotReady: uint32(l.NotReady), OutOfSync: uint32(l.OutOfSync),
	}
}
