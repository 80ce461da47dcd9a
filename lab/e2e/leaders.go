package e2e

import (
	"context"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
)

// IsolateWriters has each writer that takes part run on a host of its own, so that one alone can be cut off and the audit log
// distinguishes them.
func (s *Setup) IsolateWriters() map[*pair.Component]*netns.Host {
	s.T.Helper()
	all := map[*pair.Component]*netns.Host{}
	for _, writer := range s.Replicas() {
		host, leave, err := writer.Settle()
		s.Must(err)
		s.T.Cleanup(func() { s.Must(leave()) })
		all[writer] = host
	}
	return all
}

// Only is the prefix of one address.
func Only(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

// ReadyEndpoints is a writer's count for the own Service.
const ReadyEndpoints = `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`

// WritesSince are the writes of slices by the writers after the first so many.
func (s *Setup) WritesSince(since int) []audit.Write {
	s.T.Helper()
	all, err := s.Writes(s.Ctx())
	s.Must(err)
	return all[since:]
}

// ExpectWritesOnlyBy wants so many writes by this writer since, and none by another: late ones must have been rejected.
func (s *Setup) ExpectWritesOnlyBy(writer *pair.Component, times, since int) {
	s.T.Helper()
	for _, w := range s.WritesSince(since) {
		switch {
		case w.Code >= 300:
			s.T.Logf("%s of %s by %s was refused: %d", w.Verb, w.Name, w.From, w.Code)
		case w.From == writer.Address.String():
			times--
		default:
			s.T.Errorf("%s of %s by %s", w.Verb, w.Name, w.From)
		}
	}
	if times != 0 {
		s.T.Errorf("%s wrote %d times less than expected", writer.Name, times)
	}
}

// ExpectNoWritesBy wants no request to write by a writer since.
func (s *Setup) ExpectNoWritesBy(by *pair.Component, since int) {
	s.T.Helper()
	for _, w := range s.WritesSince(since) {
		if w.From == by.Address.String() {
			s.T.Errorf("%s sent %s of %s, which was answered %d", by.Name, w.Verb, w.Name, w.Code)
		}
	}
}

// AwaitStandby waits until a standby knows as much as the leader.
func (s *Setup) AwaitStandby(writer *pair.Component) {
	s.T.Helper()
	s.AwaitMetric(writer, SourceSynced, Equals(1))
	s.Until("the standby counts as many ready endpoints as the slices have", func() bool {
		ready := 0
		for _, condition := range pair.Conditions(s.Now()) {
			if condition == pair.Ready {
				ready++
			}
		}
		n, err := writer.Metric(s.T.Context(), ReadyEndpoints)
		return err == nil && int(n) == ready
	})
}

// IsLeading reports whether a writer leads.
func (s *Setup) IsLeading(writer *pair.Component) bool {
	s.T.Helper()
	is, err := writer.Metric(s.Ctx(), Leads)
	s.Must(err)
	return is == 1
}

// Takeover is how long a writer may take until it leads when the leader has died, with slack for a busy machine.
const Takeover = 20 * time.Second

// LeaseName is the name of the writers' Lease.
const LeaseName = "slicefeed-default"

// LeaseHolder is the holder of the Lease as the API server has it now.
func (s *Setup) LeaseHolder() string {
	s.T.Helper()
	lease, err := s.ConsumingClient().CoordinationV1().Leases(pair.Namespace).Get(s.Ctx(), LeaseName, metav1.GetOptions{})
	s.Must(err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// StopAPIServer kills a cluster's API server. If the test fails before it starts it again, it is started for the next one.
func (s *Setup) StopAPIServer(cluster *controlplane.ControlPlane) {
	s.T.Helper()
	s.Must(cluster.StopAPIServer())
	s.T.Cleanup(func() {
		if s.T.Failed() {
			_ = cluster.StartAPIServer(context.Background()) // it may run already
		}
	})
}
