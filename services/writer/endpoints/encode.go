package endpoints

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/stream"
)

// Limits of slicefeed.writer.v1. Lengths are in bytes.
const (
	maxBackends          = 10_000 // of a group, which has to fit into one message
	maxSelectors         = 100    // of one request
	maxNameLength        = 63     // of namespaces, ports, sources and zones
	maxServiceLength     = 77     // of Services: 63, and .serviceimport after the name of a ServiceImport
	maxFeedLength        = 191    // of a source, followed by /namespace/name of a Service that it exports
	maxKeyLength         = 256
	maxAppProtocolLength = 317 // a prefix of 253, a slash and a name of 63
	maxReasonLength      = 128 // of a target's reason
	maxSources           = 64
)

type entry = stream.Entry[*writerv1.Entry]

// encodeEntries returns what is published, sorted by key: the target, and each port with all of its addresses, or each
// address of each port.
func (p *publishedState) encodeEntries(of ServiceName, grouped bool) (all []*entry) {
	group, status := of.groupKey(), p.TargetStatus
	status.Ports = status.Ports[:min(len(status.Ports), max(1, maxAddresses/max(1, len(p.backends))))]
	add := func(key string, e *writerv1.Entry) {
		e.Key, e.Namespace, e.Service = key, of.Namespace, of.Service
		added := stream.NewEntry(group, key, e, e)
		e.Fingerprint = added.Fingerprint[:]
		all = append(all, added)
	}
	add(group, &writerv1.Entry{Kind: &writerv1.Entry_Target{Target: encodeTarget(&status)}})
	for _, port := range status.Ports {
		key, backends := group+"/"+port.Name, p.backendsOf(port)
		if grouped {
			n := min(len(backends), maxBackends)
			g := &writerv1.Group{Port: encodePort(port), Omitted: uint32(len(backends) - n)}
			for i := range n {
				g.Backends = append(g.Backends, encodeBackend(&backends[i]))
			}
			add(key, &writerv1.Entry{Kind: &writerv1.Entry_Group{Group: g}})
			continue
		}
		for _, b := range backends {
			own := port
			own.Number, b.Port = cmp.Or(b.Port, port.Number), 0
			add(key+"/"+b.Address.String(), &writerv1.Entry{
				Kind: &writerv1.Entry_Endpoint{Endpoint: &writerv1.Endpoint{Port: encodePort(own), Backend: encodeBackend(&b)}},
			})
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

func truncateText(text string) string { return display.Truncate(text, contract.MaxTextLength) }

func truncateName(text string) string { return display.Truncate(text, maxNameLength) }

func encodeTarget(s *TargetStatus) *writerv1.Target {
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

func encodePort(p Port) *writerv1.Port {
	return &writerv1.Port{
		Name: truncateName(p.Name), Protocol: truncateName(p.Protocol), Number: uint32(p.Number),
		AppProtocol: display.Truncate(p.AppProtocol, maxAppProtocolLength), ServicePort: uint32(p.ServicePort),
	}
}

func encodeBackend(b *Backend) *writerv1.Backend {
	return &writerv1.Backend{
		Address: b.Address.String(),
		Ready:   b.Conditions.Ready, Serving: b.Conditions.Serving, Terminating: b.Conditions.Terminating,
		Source: truncateName(b.Source), Zone: truncateName(b.Zone), Hostname: truncateName(b.Hostname), Port: uint32(b.Port),
	}
}

// encodeMessage encodes one message of a stream.
func encodeMessage(p stream.Part[*writerv1.Entry, Status]) *writerv1.WatchEndpointsResponse {
	m := &writerv1.WatchEndpointsResponse{
		Reset_: p.Reset, Status: encodeStatus(p.Status, p.Selection), Removed: p.Removed, Upserts: make([]*writerv1.Entry, len(p.Upserts)),
	}
	for i, e := range p.Upserts {
		m.Upserts[i] = e.Value
	}
	if p.Synced != nil {
		at := &p.Synced.At
		m.Synced, m.Cursor = true, &writerv1.Cursor{Epoch: at.Epoch, Revision: at.Revision}
		m.Digest, m.Count = at.Digest[:], uint32(p.Synced.Count)
	}
	if p.HeartbeatInterval > 0 {
		m.HeartbeatInterval = durationpb.New(p.HeartbeatInterval)
	}
	return m
}

func encodeStatus(s Status, selection *stream.Selection) *writerv1.WriterStatus {
	w := &writerv1.WriterStatus{Leading: s.Leading, Held: uint32(s.countHeld(selection))}
	if !s.Synced {
		w.Reason = "initial sync incomplete: not every target has a decision yet"
	}
	for _, source := range s.Sources[:min(len(s.Sources), maxSources)] {
		w.Sources = append(w.Sources, &writerv1.SourceStatus{
			Name: display.Truncate(source.Name, maxFeedLength), Connected: source.Connected, Reason: truncateText(source.Reason),
		})
	}
	return w
}

func encodeView(v View) *writerv1.ListedTarget {
	return &writerv1.ListedTarget{
		Namespace: v.Namespace, Service: v.Service, Target: encodeTarget(&v.TargetStatus),
		Ready: uint32(v.Ready), Draining: uint32(v.Draining), NotReady: uint32(v.NotReady), OutOfSync: uint32(v.OutOfSync),
	}
}
