package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func (s *story) cloudFails(ctx context.Context) error {
	for _, one := range []struct {
		fault ionosapi.Fault
		tells string
	}{
		{ionosapi.Fault{Kind: ionosapi.TooManyRequestsSeconds, Wait: ionosapi.Duration(time.Second)}, "429, with Retry-After: 1"},
		{ionosapi.Fault{Kind: ionosapi.ServerError}, "500"},
		{ionosapi.Fault{Kind: ionosapi.Truncated}, "200, with truncated JSON"},
		{ionosapi.Fault{Kind: ionosapi.EmptyList}, "200, with an empty but valid list of servers"},
	} {
		d, err := s.pair.Cloud.Strike(ctx, one.fault, 1)
		if err != nil {
			return err
		}
		s.tookf(d, "The IONOS API answers %s.", one.tells)
	}
	begun := time.Now()
	if _, err := s.pair.Cloud.WaitListing(ctx); err != nil {
		return err
	}
	s.tookf(time.Since(begun), "Then it answers normally again.")
	if err := s.allServe(); err != nil {
		return err
	}
	s.sayf("Errors remove no node, and a resolved address stays: all three serve.")
	return nil
}

func (s *story) blind(ctx context.Context) error {
	outage, err := s.pair.Cloud.AddFault(ionosapi.Fault{Kind: ionosapi.Unavailable})
	if err != nil {
		return err
	}
	if err := s.pair.Inventory.Kill(); err != nil {
		return err
	}
	s.sayf("It is killed (SIGKILL) while the IONOS API is down (503), and restarted immediately.")
	begun := time.Now()
	if err := s.pair.Inventory.Launch(); err != nil {
		return err
	}
	if err := s.pair.WaitSubscribed(ctx, len(s.pair.Writers)); err != nil {
		return err
	}
	s.tookf(time.Since(begun), "It is back, and both writers have reconnected.")
	reason := s.pair.Inventory.Check(ctx, "/readyz")
	if reason == nil {
		return errors.New("the inventory says that it is ready, though it cannot have seen the cloud")
	}
	s.sayf("It knows the Nodes but no addresses, and reports that instead of an empty list:")
	for line := range strings.Lines(reason.Error()) {
		if strings.Contains(line, "failed:") {
			s.quote(line)
		}
	}
	event, err := s.pair.WaitEvent(ctx, reasonIs("trust"))
	if err != nil {
		return err
	}
	s.sayf("So the writers keep the current endpoints, and an Event on the Service says so:")
	s.quoteEvent(event)
	if err := s.pair.Cloud.RemoveFault(outage); err != nil {
		return err
	}
	begun = time.Now()
	if err := s.pair.Inventory.Ready(ctx); err != nil {
		return err
	}
	s.tookf(time.Since(begun), "The IONOS API is back: the inventory makes a complete observation, with the same nodes as before.")
	return nil
}

func (s *story) leaderDies(ctx context.Context) error {
	leader, err := s.pair.Leading(ctx)
	if err != nil {
		return err
	}
	holder := s.pair.Leader()
	begun := time.Now()
	if err := leader.Kill(); err != nil {
		return err
	}
	s.sayf("%s is killed (SIGKILL), so its Lease is not released; it expires after 12 s.", leader.Name)
	if _, err := s.pair.WaitLeader(ctx, holder); err != nil {
		return err
	}
	next, err := s.pair.WaitLeading(ctx)
	if err != nil {
		return err
	}
	s.tookf(time.Since(begun), "%s leads. It subscribed and probed all the time, so it has nothing to write.", next.Name)
	if err := leader.Start(ctx); err != nil {
		return err
	}
	s.sayf("%s is started again, as a standby.", leader.Name)
	return nil
}

func (s *story) fence(ctx context.Context) error {
	stray, err := s.pair.AddWorker(pair.WorkerOptions{Name: "standardnodes-stray", Address: netip.MustParseAddr("10.0.9.9")})
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := stray.Join(ctx); err != nil {
		return err
	}
	event, err := s.pair.WaitEvent(ctx, reasonIs("addressnotallowed"))
	if err != nil {
		return err
	}
	s.tookf(
		time.Since(begun),
		"%s has the address %s, and the writer's allowlist is %s: it writes nothing, and an Event on the Service says why.",
		stray.Name,
		stray.Address,
		pair.Subnet,
	)
	s.quoteEvent(event)
	if err := stray.Leave(ctx); err != nil {
		return err
	}
	return stray.Destroy()
}

func (s *story) empty(ctx context.Context) error {
	s.pair.Inventory.Set("NODE_SELECTOR", "pool=bleu")
	begun := time.Now()
	if err := s.restart(ctx); err != nil {
		return err
	}
	s.sayf(
		"An operator restarts it with a typing mistake, NODE_SELECTOR=pool=bleu. It sees everything and selects nothing: a complete and empty list.",
	)
	event, err := s.pair.WaitEvent(ctx, reasonIs("empty"))
	if err != nil {
		return err
	}
	s.tookf(
		time.Since(begun),
		"The writer waits until 3 complete observations, at least 4 s apart, agree (EMPTY_RESULT_THRESHOLD), and an Event on the Service says so.",
	)
	s.quoteEvent(event)
	if err := s.pair.WaitObservations(ctx, 2); err != nil {
		return err
	}
	s.sayf("Two more observations report the same. They are too close together: the slices stay as they are.")
	s.pair.Inventory.Set("NODE_SELECTOR", "")
	begun = time.Now()
	if err := s.restart(ctx); err != nil {
		return err
	}
	if err := s.pair.WaitSubscribed(ctx, len(s.pair.Writers)); err != nil {
		return err
	}
	s.tookf(time.Since(begun), "The mistake is corrected in time: nothing was removed, all three serve.")
	return s.allServe()
}

func (s *story) goesOn(ctx context.Context) error {
	last, err := s.pair.AddWorker(pair.WorkerOptions{Name: "standardnodes-w2h9r", Address: worker(15)})
	if err != nil {
		return err
	}
	if _, err := s.pair.Cloud.WaitListing(ctx); err != nil {
		return err
	}
	s.workers = append(s.workers, last)
	d, err := s.propagated(ctx, last.Join, pair.AreJust(pair.Ready, s.addresses()...))
	if err != nil {
		return err
	}
	s.tookf(d, "A fourth worker joins, and is in the slice.")
	return nil
}

// allServe wants the slices to have just the present workers, all ready.
func (s *story) allServe() error {
	if !pair.AreJust(pair.Ready, s.addresses()...)(s.pair.Now()) {
		return fmt.Errorf("not all workers serve, and no others; the EndpointSlices say: %s", pair.Describe(s.pair.Now()))
	}
	return nil
}

func (s *story) restart(ctx context.Context) error {
	if err := s.pair.Inventory.Terminate(10 * time.Second); err != nil {
		return err
	}
	return s.pair.Inventory.Start(ctx)
}

func reasonIs(guard string) func(*eventsv1.Event) bool {
	return func(e *eventsv1.Event) bool {
		return e.Type == corev1.EventTypeWarning && strings.Contains(strings.ToLower(e.Reason), guard)
	}
}

func (s *story) quoteEvent(e *eventsv1.Event) {
	s.quote(fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
}
