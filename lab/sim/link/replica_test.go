package link

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// nodes are a roster by name.
type nodes map[string]*roster.Node

// replica is one life of an inventory, from the set of the feed on.
type replica struct {
	life   string
	feed   *feed.Set
	server *feed.Server
	grpc   *grpc.Server
	lis    *bufconn.Listener

	holds  nodes // what it was told, by us
	status roster.Status
	lags   bool // it is not told what changes

	stopRun context.CancelFunc
	ran     chan error
	served  chan error
}

// start begins a life with a roster. Its clients' connections end at the age given.
func start(life string, age time.Duration) *replica {
	r := &replica{
		life: life, feed: feed.NewSet("", life), lis: bufconn.Listen(64 << 10), holds: nodes{},
		ran: make(chan error, 1), served: make(chan error, 1),
	}
	r.server = feed.New(feed.Config{
		Sets: r.feed,
		Identify: func(context.Context) (feed.Client, error) {
			return feed.Client{SAN: "writer"}, nil
		},
		Health: health.NewServer(), Registerer: prometheus.NewRegistry(),
	})
	r.grpc = grpc.NewServer( // as the real link has it, but for the age
		grpc.KeepaliveParams(
			keepalive.ServerParameters{
				Time:                  30 * time.Second,
				Timeout:               10 * time.Second,
				MaxConnectionAge:      age,
				MaxConnectionAgeGrace: 10 * time.Second,
			},
		),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.StaticStreamWindowSize(64<<10),
		grpc.StaticConnWindowSize(64<<10),
		grpc.MaxConcurrentStreams(8),
		grpc.WaitForHandlers(true),
	)
	r.server.Register(r.grpc)
	ctx, stop := context.WithCancel(context.Background())
	r.stopRun = stop
	go func() { r.ran <- r.server.Run(ctx) }()
	go func() { r.served <- r.grpc.Serve(r.lis) }()
	return r
}

func (r *replica) dial(ctx context.Context) (net.Conn, error) { return r.lis.DialContext(ctx) }

// end is the end of a life: a crash, which says nothing, or a shutdown in order.
func (r *replica) end(crash bool) error {
	if crash {
		r.grpc.Stop()
	}
	r.stopRun()
	if err := <-r.ran; err != nil {
		return fmt.Errorf("node server: %w", err)
	}
	cut := time.AfterFunc(10*time.Second, r.grpc.Stop)
	defer cut.Stop()
	r.grpc.GracefulStop()
	<-r.served
	return nil
}

// hasNoStream reports whether it has no subscriber.
func (r *replica) hasNoStream() bool { return len(r.server.Subscribers()) == 0 }

// learn tells it that the roster is this now. The set is noted before anyone can be told it.
func (r *replica) learn(all nodes, note func(life, set string)) {
	var changes []roster.Change
	for _, name := range slices.Sorted(maps.Keys(r.holds)) {
		if all[name] == nil {
			changes = append(changes, roster.Change{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was := r.holds[name]; was == nil || !was.Equal(*all[name]) {
			changes = append(changes, roster.Change{Name: name, Node: all[name]})
		}
	}
	r.holds = maps.Clone(all)
	note(r.life, r.set())
	r.feed.Publish(r.status, changes)
}

func (r *replica) say(s roster.Status) {
	r.status = s
	r.feed.Publish(s, nil)
}

// set is what the subscriber should be told, in words. It is made from what we told the
// replica and not from its set, which may be wrong.
func (r *replica) set() string {
	var lines []string
	for _, n := range r.holds {
		state := [...]string{"?", "ready", "draining", "not_ready"}[n.State]
		lines = append(lines, line(n.Name, fmt.Sprint(n.Addresses), state, n.Zone+"/"+n.Hostname, orNone(n.Labels)))
	}
	return set(lines)
}

func line(name, addresses, state, zone string, labels map[string]string) string {
	return strings.Join([]string{name, addresses, state, cmp.Or(zone, "-"), fmt.Sprint(labels)}, " ")
}

func set(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
