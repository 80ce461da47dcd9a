package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// unlisted has a certificate of the right CA and is not on the list of clients.
const unlisted = "unlisted.example"

const (
	honestDials = 11
	fewNodes    = 10
	scrapeCount = 40

	// An attack may slow honest dials to so many times their control of the same moment, or to this.
	slowestRatio = 3.0
	slowestDial  = 20 * time.Millisecond
)

// Honest latency is that from a dial to the first synced set. The control is measured right before
// and right after each attack, since other work on the machine comes and goes.
func TestHonestPeersUnderAttack(t *testing.T) {
	if !enabled() {
		t.Skipf("it compares times, which takes both cores: make load, or %s=1 (make verify does)", gate)
	}
	s := &scene{t: t}
	s.fleet = must(NewFleet(t.TempDir(), fewNodes))(t)
	site := must(NewSite(t.TempDir()))(t)
	site.limits = []string{"GOMEMLIMIT=230MiB"} // what the chart gives
	s.inventory = must(site.Inventory(s.fleet))(t)
	defer func() {
		if err := s.inventory.Stop(20 * time.Second); err != nil {
			t.Errorf("the inventory did not end in order: %v", err)
		}
	}()
	s.crowd = must(NewCrowd(s.inventory, 1, fewNodes))(t)
	s.come()
	defer s.leave()

	for _, c := range []struct {
		name     string
		distance time.Duration
		attack   func(context.Context)
	}{
		{"rapid resets by an unlisted client, 64 connections", 0, func(ctx context.Context) {
			ResetRapidly(ctx, s.address(), s.as(unlisted), 64, time.Second)
		}},
		{"rapid resets by a listed client, 64 connections", 0, func(ctx context.Context) {
			ResetRapidly(ctx, s.address(), s.as(attacker), 64, time.Second)
		}},
		{"rapid resets by a listed client, 8 connections", 0, func(ctx context.Context) {
			ResetRapidly(ctx, s.address(), s.as(attacker), 8, time.Second)
		}},
		// A slow machine makes fewer a second: the distance leaves room for that.
		{"half-open handshakes, 8,500 a second at most, at 300 ms of distance", 300 * time.Millisecond, func(ctx context.Context) {
			openHandshakes(ctx, "127.0.0.2", s.address(), 8500)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := *s
			inner.t = t
			control, _ := inner.dials(c.distance)
			calm := median(inner.propagate(3))
			ctx, end := context.WithCancel(t.Context())
			var attack sync.WaitGroup
			attack.Go(func() { c.attack(ctx) })
			pause(ctx, 2*time.Second) // the budget's burst is used up
			began := inner.metrics()
			attacked, failed := inner.dials(c.distance)
			change := median(inner.propagate(3))
			now := inner.metrics()
			resident := now.Sum("process_resident_memory_bytes") / mb
			end()
			attack.Wait()
			again, _ := inner.dials(c.distance)
			control = append(control, again...)
			peak := must(inner.inventory.peak())(t)
			p50, calmDial := figures.Percentile(attacked, 50), figures.Percentile(control, 50)
			bound := max(slowestDial, time.Duration(slowestRatio*float64(calmDial)))
			fmt.Fprintf(
				os.Stdout,
				"    %s: honest dials p50 %s (control %s), %d of %d failed; a change p50 %s (control %s); resident %.0f MB, peak %.0f MB; "+
					"%.2f s of CPU; %.0f handshakes refused, %.0f limited\n",
				c.name,
				p50.Round(100*time.Microsecond),
				calmDial.Round(100*time.Microsecond),
				failed,
				honestDials,
				change,
				calm,
				resident,
				peak,
				now.CPU()-began.CPU(),
				now.Sum("slicefeed_inventory_tls_handshake_errors_total"),
				now.Sum("slicefeed_inventory_limit_rejections_total"),
			)
			if failed > 0 {
				t.Errorf("%d of %d honest dials failed", failed, honestDials)
			}
			if p50 > bound {
				t.Errorf("honest dials take %s, want at most %s", p50, bound)
			}
		})
	}
	t.Run("a reader of /metrics that gives no window", func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var attack sync.WaitGroup
		attack.Go(func() {
			for ctx.Err() == nil {
				_ = occupyScrapes(ctx, loopback(s.inventory.at.Admin), 50)
				pause(ctx, 10*time.Millisecond)
			}
		})
		pause(ctx, time.Second)
		answered := 0
		for range scrapeCount {
			if _, err := get(s.inventory.admin("/metrics")); err == nil {
				answered++
			}
		}
		end()
		attack.Wait()
		fmt.Fprintf(os.Stdout, "    %d of %d scrapes were answered beside a reader that gives no window\n", answered, scrapeCount)
		if answered < scrapeCount {
			t.Errorf("%d of %d scrapes were answered", answered, scrapeCount)
		}
	})
}

// dials makes honest dials one by one. A dial that takes longer than ten seconds has failed.
func (s *scene) dials(distance time.Duration) (took []time.Duration, failed int) {
	s.t.Helper()
	cfg := s.as(visitor)
	for range honestDials {
		began := time.Now()
		if err := s.dialOnce(cfg, distance); err != nil {
			failed++
			s.t.Logf("an honest dial failed after %s: %v", time.Since(began).Round(time.Millisecond), err)
			took = append(took, 10*time.Second)
			continue
		}
		took = append(took, time.Since(began))
	}
	return took, failed
}

// dialOnce has one connection attempt: a client that tries again hides that the first was cut off.
func (s *scene) dialOnce(cfg *tls.Config, distance time.Duration) error {
	ctx, end := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer end()
	attempts := 0
	dial := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if attempts++; attempts > 1 {
			end()
			return nil, errors.New("the first connection was cut off")
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil || distance == 0 {
			return conn, err
		}
		return &distant{conn, distance}, nil
	})
	synced := false
	one := &Subscriber{number: -1, nodes: fewNodes, address: s.address(), tls: cfg, onSynced: func(*Subscriber) { synced = true; end() }}
	err := one.live(ctx, dial)
	if synced {
		return nil
	}
	return errors.Join(err, context.Cause(ctx))
}
