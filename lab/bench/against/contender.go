package against

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// contender is one way to keep a Service's slices right.
type contender struct {
	name  string
	users []string // that it asks the API servers as

	set     func(ctx context.Context, ready bool) error // changes the outside world
	address netip.Addr                                  // of the endpoint that is to follow
	sight   *floor.Sight
	pause   func() time.Duration // before each change

	usage func() (figures.Usage, error) // of all of its processes
	stop  func() error

	ready bool // what the endpoint is now
	taken taken
}

// taken is what its changes took.
type taken struct {
	times    []time.Duration // from the change being sent to the slice's event
	asked    asked
	cloud    int // requests to the cloud's API
	cpu      time.Duration
	resident int64 // the most that was seen after a block, or while it worked
}

// change makes one change and returns how long it was until the slice was right.
func (c *contender) change(ctx context.Context) (time.Duration, error) {
	select { // not a wait for anything: a change comes when it comes
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(c.pause()):
	}
	ready, address := !c.ready, c.address.String()
	began := time.Now()
	if err := c.set(ctx, ready); err != nil {
		return 0, err
	}
	at, _, err := c.sight.Until(ctx, 1, func(slice *discoveryv1.EndpointSlice) bool { return serves(slice, address) == ready })
	if err != nil {
		return 0, fmt.Errorf("%s: wait until the slices say ready=%t of %s: %w", c.name, ready, address, err)
	}
	c.ready = ready
	return at.Sub(began), nil
}

// warm makes changes that do not count.
func (c *contender) warm(ctx context.Context, changes int) error {
	for range changes {
		if _, err := c.change(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run makes a block of changes, and charges the contender with what it took meanwhile.
func (s *scene) run(ctx context.Context, c *contender, changes int) error {
	asked, err := s.requests.of(c.users)
	if err != nil {
		return err
	}
	cloud := s.Cloud.Asked()
	before, err := c.usage()
	if err != nil {
		return err
	}
	for range changes {
		took, err := c.change(ctx)
		if err != nil {
			return err
		}
		c.taken.times = append(c.taken.times, took)
	}
	after, err := c.usage()
	if err != nil {
		return err
	}
	c.taken.cpu += after.CPU - before.CPU
	c.taken.resident = max(c.taken.resident, after.Resident)
	c.taken.cloud += s.Cloud.Asked() - cloud
	since, err := s.requests.of(c.users)
	c.taken.asked.requests += since.requests - asked.requests
	c.taken.asked.slices += since.slices - asked.slices
	return err
}

// serves reports whether the slice lists the address as ready. Who leaves out what is not ready
// is as right as who lists it so.
func serves(slice *discoveryv1.EndpointSlice, address string) bool {
	for i := range slice.Endpoints {
		if e := &slice.Endpoints[i]; e.Addresses[0] == address {
			return e.Conditions.Ready != nil && *e.Conditions.Ready
		}
	}
	return false
}

// allReady reports whether the slice lists all endpoints as ready.
func allReady(slice *discoveryv1.EndpointSlice) bool {
	for i := range slice.Endpoints {
		if ready := slice.Endpoints[i].Conditions.Ready; ready == nil || !*ready {
			return false
		}
	}
	return len(slice.Endpoints) == endpoints
}

// usageOf sums the usage of processes.
func usageOf(pids ...int) (sum figures.Usage, err error) {
	for _, pid := range pids {
		usage, err := figures.UsageOf(pid)
		if err != nil {
			return figures.Usage{}, err
		}
		sum.CPU += usage.CPU
		sum.Resident += usage.Resident
	}
	return sum, nil
}

// briefly is the pause of those that follow events.
func briefly() time.Duration { return floor.Pause }
