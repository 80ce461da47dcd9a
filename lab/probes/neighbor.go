package probes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// The neighbor is a Service whose probe port is filtered: none of its probes ends before its timeout.
const (
	neighborNodes   = 600
	neighborTimeout = time.Minute
	// So many of its probes under way show that it takes what it can get.
	neighborProbes = 200
	// The Service beside it is a common one, of which these refuse and as many fall silent.
	besideEach = few / 2
	// A death that is not noticed so long after the last one counts with the time that it took by then.
	lastNotice = 25 * time.Second
)

// beside is the detection of a Service that shares a prober with the neighbor.
type beside struct {
	probes       int // of the neighbor that were under way
	refuse, drop noticed
}

// measureBeside has the backends of one Service die and come back while the neighbor holds its places. It lasts longer
// than the neighbor's timeout, since all of its probes end and start again at once then.
func (p plan) measureBeside(ctx context.Context) (found *beside, err error) {
	b := Start()
	defer func() { err = errors.Join(err, b.Stop()) }()
	addresses := make([]netip.Addr, 2*besideEach)
	for i := range addresses {
		addresses[i] = netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + i)})
	}
	subjects, err := b.AddService("web/service", Ways[0], addresses...)
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		if _, err := s.Until(ctx, prober.Passing); err != nil {
			return nil, err
		}
	}
	found = &beside{}
	if found.probes, err = startNeighbor(ctx, b); err != nil {
		return nil, err
	}
	end := time.Now().Add(p.beside)
	ctx, cancel := context.WithDeadline(ctx, end.Add(lastNotice))
	defer cancel()
	var dying sync.WaitGroup
	failed := make([]error, len(subjects))
	for i, s := range subjects {
		mode, times := backend.Refuse, &found.refuse
		if i >= besideEach {
			mode, times = backend.Silent, &found.drop
		}
		dying.Go(func() { failed[i] = dieUntil(ctx, end, s, mode, times) })
	}
	dying.Wait()
	return found, errors.Join(failed...)
}

// startNeighbor adds the neighbor and returns how many of its probes are under way once it has taken its places.
func startNeighbor(ctx context.Context, b *Bench) (int, error) {
	keys := Many(0, neighborNodes, SilentPort, probe.TCP)
	for i := range keys {
		keys[i].Spec.Timeout = neighborTimeout
	}
	b.Set("web/neighbor", requestsFor("blue", keys...))
	AnyTime(ctx, time.Second, time.Second+time.Millisecond)
	n, err := Connections()
	if err == nil && n < neighborProbes {
		err = fmt.Errorf("the neighbor has %d probes under way, want at least %d: it delays no other", n, neighborProbes)
	}
	return n, err
}

// dieUntil kills the backend and brings it back until the end, and notes how long each death took to be noticed: at the
// end of ctx, how long it has not been noticed.
func dieUntil(ctx context.Context, end time.Time, s *Subject, mode backend.Mode, times *noticed) error {
	for {
		AnyTime(ctx, 0, probe.DefaultInterval)
		if time.Now().After(end) {
			return nil
		}
		began := time.Now()
		if err := s.Set(mode); err != nil {
			return err
		}
		_, unnoticed := s.Until(ctx, prober.Failing)
		times.note(true, time.Since(began))
		if unnoticed != nil {
			return nil //nolint:nilerr // it is measured
		}
		AnyTime(ctx, 0, probe.DefaultInterval)
		began = time.Now()
		if err := s.Set(backend.Serve); err != nil {
			return err
		}
		if _, unnoticed := s.Until(ctx, prober.Passing); unnoticed != nil {
			return nil //nolint:nilerr // deaths are what is measured
		}
		times.note(false, time.Since(began))
	}
}
