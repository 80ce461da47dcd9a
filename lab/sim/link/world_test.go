package link

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// world is two replicas of an inventory and a subscriber, and all that befalls them.
type world struct {
	t     *testing.T
	seed  uint64
	rand  *rand.Rand
	began time.Time
	age   time.Duration // of connections

	truth    nodes
	named    int // nodes there ever were
	status   roster.Status
	lives    int
	replicas [2]*replica
	active   int // which one the name leads to
	wire     *wire
	tamper   *tamper
	calls    *calls
	sub      *subscriber.Feeds

	disturbed time.Time // when anything but the roster was last meddled with
	broke     time.Time // when the wire began to let nothing through from the inventory; zero: it does not

	mu  sync.Mutex
	had map[string]map[string]bool // by life: the sets that it ever had

	story   []string
	steps   map[string]int
	checked int
	took    time.Duration
	failed  bool
}

// live is the whole life of a world.
func live(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 7)), began: time.Now(),
		truth: nodes{}, tamper: &tamper{}, had: map[string]map[string]bool{}, steps: map[string]int{},
		calls: &calls{random: rand.New(rand.NewPCG(seed, 14))},
	}
	w.age = []time.Duration{30 * time.Minute, 2 * time.Minute, 40 * time.Second}[w.rand.IntN(3)]
	w.wire = &wire{conns: map[*conn]struct{}{}}
	w.grow(1 + w.rand.IntN(20))
	w.status = word(1)
	for i := range w.replicas {
		w.begin(i)
	}
	w.follow(func() {
		for range 30 {
			w.step()
			w.quiet()
		}
		w.settle()
	})
	for _, what := range w.calls.judge() {
		w.wrongf("%s", what)
	}
	for _, r := range w.replicas {
		if err := r.end(true); err != nil {
			w.wrongf("%v", err)
		}
	}
	if w.failed {
		t.Errorf("SLICEFEED_SEED=%d replays this\n%s", seed, w.tale())
	}
	return w
}

// follow runs the subscriber while the world goes on, and looks at each thing that it says.
func (w *world) follow(meanwhile func()) {
	dial := func() (*grpc.ClientConn, error) { // as the real link has it
		return grpc.NewClient(
			"passthrough:///inventory",
			grpc.WithContextDialer(w.wire.dial),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(
				keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true},
			),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 4 * time.Second}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4<<20)),
			grpc.WithChainStreamInterceptor(w.calls.intercept, w.tamper.intercept),
		)
	}
	w.sub = subscriber.New(subscriber.Config{
		Source: "default", Dial: dial, Log: slog.New(journal{calls: w.calls}), Metrics: subscriber.NewMetrics(prometheus.NewRegistry()),
		Random: w.calls.draw,
	})
	w.sub.Use("web/shop", "")
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.sub.Run(ctx); err != nil {
			w.wrongf("the subscriber ended: %v", err)
		}
	})
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.sub.Changed():
				w.hadOnce(w.sub.Use("web/shop", ""))
			}
		}
	})
	meanwhile()
	stop()
	running.Wait()
}

// hadOnce holds what the subscriber says against all that was ever so.
func (w *world) hadOnce(s subscriber.Snapshot) {
	if !s.EverSynced {
		if len(s.Members) > 0 {
			w.wrongf("it has a set before any was synced")
		}
		return
	}
	told := told(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	life := lifeOf(s)
	for of, sets := range w.had {
		if (of == life || life == "") && sets[told] {
			return
		}
	}
	w.failed = true
	w.story = append(w.story, fmt.Sprintf("%s WRONG: life %q never had the set that the subscriber has:\n%s", w.clock(), life, told))
}

// lifeOf is whose set the subscriber has; empty: after a breach it does not say, and another
// epoch is none when a stream begins (rule R5).
func lifeOf(s subscriber.Snapshot) string {
	if s.Cursor.Epoch == otherEpoch {
		return ""
	}
	return s.Cursor.Epoch
}

// told is the set that the subscriber has, in words.
func told(s subscriber.Snapshot) string {
	addresses := map[string][]netip.Addr{}
	for _, m := range s.Members {
		addresses[m.Name] = append(addresses[m.Name], m.Address)
	}
	var lines []string
	for _, m := range s.Members {
		all := addresses[m.Name]
		if delete(addresses, m.Name); all == nil {
			continue // its other address came before
		}
		state := strings.ToLower(strings.TrimPrefix(m.State.String(), "NODE_STATE_"))
		lines = append(lines, line(m.Name, fmt.Sprint(all), state, m.Zone+"/"+m.Hostname, orNone(m.Labels)))
	}
	return set(lines)
}

func orNone(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

func (w *world) note(life, set string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.had[life] == nil {
		w.had[life] = map[string]bool{}
	}
	w.had[life][set] = true
}

// begin starts the life of a replica that knows the truth.
func (w *world) begin(i int) {
	w.lives++
	r := start(fmt.Sprintf("life-%d", w.lives), w.age)
	r.learn(w.truth, w.note)
	r.say(w.status)
	w.replicas[i] = r
	w.wire.lead(w.replicas[w.active])
}

// word is a status without a fault.
func word(observation uint64) roster.Status {
	now := time.Now()
	part := roster.PartStatus{Sync: roster.Synced, Since: now}
	return roster.Status{Membership: part, Addresses: part, Observation: observation, ObservedAt: now, Publishable: true}
}

// spread tells the truth to all replicas that do not lag.
func (w *world) spread() {
	for _, r := range w.replicas {
		if !r.lags {
			r.learn(w.truth, w.note)
			r.say(w.status)
		}
	}
}

// quiet lets some time pass, until nothing more happens, and looks at the state of things.
func (w *world) quiet() {
	time.Sleep(time.Duration(w.rand.Int64N(int64([]time.Duration{time.Second, 8 * time.Second, 40 * time.Second}[w.rand.IntN(3)]))))
	synctest.Wait()
	s, now := w.sub.Use("web/shop", ""), time.Now()
	w.hadOnce(s)
	if !w.broke.IsZero() && now.Sub(w.broke) > deaf && s.Connected {
		w.wrongf("the link has been dead for %s and looks alive", now.Sub(w.broke))
	}
	// While a second stream is about to take over, the first one is not read: for as long as a new
	// connection takes, and until three heartbeats are over.
	if !s.Connected || !s.SyncedInStream || !w.wire.whole() || w.calls.under() > 1 {
		return
	}
	life := lifeOf(s)
	at := slices.IndexFunc(w.replicas[:], func(r *replica) bool { return r.life == life })
	if at < 0 && life == "" {
		return
	}
	if at < 0 {
		w.wrongf("it is in step with %q, which has ended", life)
		return
	}
	r := w.replicas[at]
	if r.hasNoStream() {
		// gRPC ends the streams of a connection that is too old and closes it a second later: only then the client knows.
		time.Sleep(1100 * time.Millisecond) // of the bubble's clock
		synctest.Wait()
		if s := w.sub.Use("web/shop", ""); s.Connected && s.SyncedInStream && lifeOf(s) == life && r.hasNoStream() && w.wire.whole() {
			w.wrongf("it is in step with %s, which has had no stream for more than a second", life)
		}
		return
	}
	w.checked++
	if got, want := told(s), r.set(); got != want {
		w.wrongf("the subscriber says that it is in step with %s, and its set differs (-want +got):\n%s", life,
			cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
	if s.Observation != r.status.Observation || int(s.Membership.State) != syncs[r.status.Membership.Sync] ||
		int(s.Addresses.State) != syncs[r.status.Addresses.Sync] {
		w.wrongf("%s says %+v, and the subscriber heard observation %d, membership %s, addresses %s",
			life, r.status, s.Observation, s.Membership.State, s.Addresses.State)
	}
}

var syncs = map[roster.SyncState]int{
	roster.Degraded: int(subscriber.Degraded),
	roster.Synced:   int(subscriber.Synced),
	roster.Unsynced: int(subscriber.Unsynced),
}

// settle ends all faults, and waits until the subscriber is in step.
func (w *world) settle() {
	w.dof("all faults end")
	w.heal()
	w.tamper.begin(0, 0)
	w.status = word(w.status.Observation + 1)
	for _, r := range w.replicas {
		r.lags = false
	}
	w.spread()
	want, at := w.replicas[w.active].set(), time.Now()
	within := converged + w.calls.violationDelay()
	for {
		synctest.Wait()
		s := w.sub.Use("web/shop", "")
		if s.Connected && s.SyncedInStream && s.Observation == w.status.Observation && told(s) == want {
			w.took = time.Since(at)
			return
		}
		if time.Since(at) > within {
			w.wrongf("%s after the last fault the subscriber is not in step (alive %t, synced %t)", within, s.Connected, s.SyncedInStream)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// heal makes the wire whole. Connections of which bytes were lost stay as dead as they are.
func (w *world) heal() {
	w.wire.set(fault{})
	w.broke, w.disturbed = time.Time{}, time.Now()
}

func (w *world) clock() string { return fmt.Sprintf("%9.3f s ", time.Since(w.began).Seconds()) }

func (w *world) dof(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, w.clock()+fmt.Sprintf(format, args...))
}

func (w *world) wrongf(format string, args ...any) {
	w.dof("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
}

func (w *world) tale() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	head := fmt.Sprintf("seed %d: connections end at the age of %s, %d nodes in the end", w.seed, w.age, len(w.truth))
	return head + "\n" + strings.Join(w.story, "\n")
}

// names are the nodes that there are, in order.
func (w *world) names() []string { return slices.Sorted(maps.Keys(w.truth)) }
