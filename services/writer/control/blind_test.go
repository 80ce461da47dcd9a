package control

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// statuses is a prober that says one thing of whatever is probed.
type statuses struct {
	asked

	now prober.Status
}

func (s *statuses) Status(prober.Key) prober.Status { return s.now }

func TestALeaderThatCannotProbeStepsDown(t *testing.T) {
	key := targets.Key{Namespace: "web", Name: "shop"}
	yes, port := true, int32(30080)
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{
		{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes}},
	}}
	slice.Namespace, slice.Name = "web", "shop-slicefeed"
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: "ours"}
	for _, tt := range []struct {
		name     string
		status   prober.Status
		released int
	}{
		{"out of sockets", prober.Status{Expired: true, Detail: "too many open files"}, 1},
		{"not judged yet", prober.Status{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lead, probed := &alternate{term: 1}, &statuses{now: prober.Status{Health: prober.Passing}}
			s := NewStepper(Config{
				Targets: &only{view: targets.Resolution{
					Synced: true, Relevant: true, Slices: []*discoveryv1.EndpointSlice{slice},
					Target: targets.Target{
						Key: key, UID: "uid", ManagedBy: "ours", FirstName: "shop-slicefeed", ProbePort: 30080,
						Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}, Ports: []discoveryv1.EndpointPort{{Port: &port}},
						Settings: targets.Settings{Probe: prober.Spec{Mode: prober.TCP}, ListUnready: true},
					},
				}},
				Prober: probed, Lease: lead, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
				Reporter: events.NewReporter(events.Config{Logger: slog.New(slog.DiscardHandler)}),
				Applier:  func() *applier.Applier { return applier.New(applier.Config{}) },
			})
			now := time.Now()
			decide := func() {
				for range 2 { // what is probed follows from the first decision
					s.Step(key, now)
				}
				for _, one := range s.controls.running {
					one.writing = false // nothing of it is carried out here
				}
			}
			decide()
			s.StepDown(now)
			now = now.Add(time.Minute)
			decide()
			probed.now = tt.status
			decide()
			s.StepDown(now)
			now = now.Add(nonePassingFor)
			decide()
			s.StepDown(now)
			if lead.released != tt.released {
				t.Errorf("the Lease was released %d times, want %d; the decision: %+v", lead.released, tt.released, s.Decision(key))
			}
			if e := s.Decision(key).Endpoints; len(e) != 1 || !e[0].Listed || !e[0].Conditions.Ready {
				t.Errorf("the endpoint does not stay as it was: %+v", e)
			}
		})
	}
}
