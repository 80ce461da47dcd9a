package load

import (
	"context"
	"crypto/tls"
	"testing"
	"time"
)

// scene is what the parts of the run share. Each part finds the crowd in step and leaves
// it so.
type scene struct {
	t         *testing.T
	inventory *Server
	fleet     *Fleet
	crowd     *Crowd
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t}
	s.fleet = must(NewFleet(t.TempDir(), nodes))(t)
	s.inventory = must(must(NewSite(t.TempDir()))(t).Inventory(s.fleet))(t)
	t.Cleanup(func() {
		if err := s.inventory.Stop(20 * time.Second); err != nil {
			t.Errorf("the inventory did not end in order: %v", err)
		}
	})
	s.crowd = must(NewCrowd(s.inventory, subscribers, nodes))(t)
	return s
}

func (s *scene) as(name string) *tls.Config { return must(s.inventory.As(name))(s.t) }

func (s *scene) address() string { return s.inventory.Address() }

func (s *scene) memory() Memory { return must(s.inventory.Memory())(s.t) }

func (s *scene) metrics() Metrics { return must(s.inventory.Metrics())(s.t) }

func (s *scene) flip(numbers ...int) time.Time { return must(s.fleet.Flip(numbers...))(s.t) }

func (s *scene) come() Times { return must(s.crowd.Come(s.t.Context()))(s.t) }

func (s *scene) leave() {
	s.t.Helper()
	if err := s.crowd.Leave(); err != nil {
		s.t.Error(err)
	}
}

func (s *scene) until(what string, within time.Duration, is func() bool) {
	s.t.Helper()
	if err := s.inventory.Until(s.t.Context(), what, within, func() (bool, error) { return is(), nil }); err != nil {
		s.t.Fatal(err)
	}
}

// newcomer is one more subscriber: it returns how long it took to have the whole set.
func (s *scene) newcomer() time.Duration {
	s.t.Helper()
	synced := make(chan time.Time, 1)
	one := &Subscriber{number: -1, nodes: nodes, address: s.address(), tls: s.as(visitor), onSynced: func(*Subscriber) {
		select {
		case synced <- time.Now():
		default:
		}
	}}
	ctx, end := context.WithTimeout(s.t.Context(), time.Minute)
	defer end()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- one.live(ctx) }()
	select {
	case at := <-synced:
		end()
		<-ended
		return at.Sub(began)
	case err := <-ended:
		s.t.Fatalf("a newcomer did not get the set: %v", err)
		return 0
	}
}
