package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// dial returns a connection to the inventory, with what serve shows of itself there.
func (f *flight) dial() (*grpc.ClientConn, error) {
	end, err := link.NewClient(link.Config{
		Half: "writer", Name: defaultSource, Files: f.cfg.files(),
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}, f.cfg.InventorySAN)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(f.cfg.Inventory, end.DialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("INVENTORY_ADDRESS=%q: want host:port: %w", f.cfg.Inventory, err)
	}
	return conn, nil
}

// inventory calls the inventory once. What it answers does not matter, if only it does.
func (f *flight) inventory(ctx context.Context) (string, error) {
	conn, err := f.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // all that it can say is that it is closed
	var header, trailer metadata.MD
	_, err = inventoryv1.NewInventoryServiceClient(conn).ListNodes(ctx, &inventoryv1.ListNodesRequest{Names: []string{"preflight"}},
		grpc.Header(&header), grpc.Trailer(&trailer))
	return f.answered(err, len(header)+len(trailer) > 0)
}

// answered tells the ways apart in which a call can fail. grpc has no code for what became
// of a connection, only words.
func (f *flight) answered(err error, byServer bool) (string, error) {
	text := status.Convert(err).Message()
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	var advice string
	switch code := status.Code(err); {
	case code == codes.OK, code == codes.Unavailable && byServer: // it has not looked yet: see the first word
		return fmt.Sprintf("%s at %s lets us in", f.cfg.InventorySAN, f.cfg.Inventory), nil
	case code == codes.PermissionDenied:
		advice = "add the SAN of our certificate to the inventory's ALLOWED_CLIENTS_FILE, as a subscriber"
	case code == codes.Unimplemented:
		advice = "is it an inventory that listens at INVENTORY_ADDRESS?"
	case has("the server's certificate is for"):
		advice = "check INVENTORY_SAN, and that INVENTORY_ADDRESS is the inventory's"
	case has("remote error: tls"), has("broken pipe", "reset by peer", "EOF", "server preface") && !has("while dialing", "handshake failed"):
		// With TLS 1.3 a client's handshake is over before its certificate is judged.
		advice = "the inventory refuses our certificate: its TLS_PEER_CA_FILE must hold the CA that signs ours"
	case has("unknown authority", "x509:"):
		advice = "TLS_PEER_CA_FILE must hold the CA that signs the inventory's certificate"
	case has("not for server auth"):
		advice = "issue the inventory's certificate with the usage server auth"
	case has("first record does not look like a TLS handshake"):
		advice = "INVENTORY_ADDRESS is the address of something that speaks no TLS: give the inventory's LISTEN_ADDRESS"
	default:
		advice = "check INVENTORY_ADDRESS, that the inventory runs, and the network in between"
	}
	return "", fmt.Errorf("%s: %s", text, advice)
}

// firstWord follows the inventory, as serve does, until it has told its set.
func (f *flight) firstWord(ctx context.Context) (string, error) {
	conn, err := f.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // all that it can say is that it is closed
	s := subscriber.New(subscriber.Config{
		Source: defaultSource, Conn: conn, Log: slog.New(slog.DiscardHandler), Metrics: subscriber.NewMetrics(prometheus.NewRegistry()),
		DoubtObservations: f.cfg.EmptyThreshold,
	})
	following, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		s.Run(following) //nolint:errcheck // it ends when told to, and only then
	}()
	defer func() { leave(); <-left }()
	for !s.Snapshot().SyncedEpoch {
		select {
		case <-s.Changed():
		case <-ctx.Done():
			return "", fmt.Errorf("%w: %s: see what slicefeed-inventory says of itself (its preflight, or explain)", context.Cause(ctx), mute(s.Snapshot()))
		}
	}
	f.word = s.Snapshot()
	return judgeWord(f.word)
}

// mute says how far an inventory has come that tells no set.
func mute(s subscriber.Snapshot) string {
	if !s.Alive {
		return "the stream of nodes brings nothing"
	}
	return "it has no complete set yet: " + partsInWords(s)
}

func partsInWords(s subscriber.Snapshot) string {
	var all []string
	for _, p := range []struct {
		name string
		part subscriber.Part
	}{{"membership", s.Membership}, {"addresses", s.Addresses}} {
		text := p.name + " " + p.part.State.String()
		if p.part.State != subscriber.Synced && p.part.Reason != "" {
			text += " (" + p.part.Reason + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// judgeWord judges what an inventory told.
func judgeWord(s subscriber.Snapshot) (string, error) {
	ready := 0
	for _, m := range s.Members {
		if m.State == subscriber.Ready {
			ready++
		}
	}
	saw := fmt.Sprintf("members: %d, ready: %d; %s", len(s.Members), ready, partsInWords(s))
	switch {
	case s.Membership.State != subscriber.Synced || s.Addresses.State != subscriber.Synced:
		return "", preflight.Warning("%s: while membership is not synced nothing new is believed, while addresses are not none is new: see to the inventory", saw)
	case len(s.Members) == 0:
		return "", preflight.Warning("%s: check the inventory's source, and what its ALLOWED_CLIENTS_FILE lets us see", saw)
	case ready == 0:
		return "", preflight.Warning("%s: nothing would serve but what answers probes already", saw)
	}
	return saw, nil
}

// fewProbes bounds how many members are dialled: enough to know whether there is a way.
const fewProbes = 10

// probes connects once to the port of some members, ready ones first.
func (f *flight) probes(ctx context.Context) (string, error) {
	all, fenced := f.addresses()
	if len(all) == 0 && fenced > 0 {
		return "", fmt.Errorf("all of the %d addresses that the inventory tells are outside of %s: nothing would be written: check SECURED_SUBNET_CIDR", fenced, fenceInWords(f.cfg))
	}
	if len(all) == 0 {
		return "", preflight.Warning("there is no member of the Service's families to try")
	}
	asked := all[:min(len(all), fewProbes)]
	problems := make([]error, len(asked))
	var wg sync.WaitGroup
	for i, a := range asked {
		wg.Go(func() { problems[i] = f.connect(ctx, a) })
	}
	wg.Wait()
	failed := slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	saw := fmt.Sprintf("%d of %d addresses accept connections at port %d", len(asked)-len(failed), len(asked), f.target.ProbePort)
	if left := len(all) - len(asked); left > 0 {
		saw += fmt.Sprintf(" (%d more were not asked)", left)
	}
	switch {
	case len(failed) == len(asked):
		return "", fmt.Errorf("%s: %w: check the network in between, the Service's targetPort, and that the backends listen there", saw, failed[0])
	case len(failed) > 0:
		return "", preflight.Warning("%s: %s: those that fail would be out", saw, fewOf(failed))
	case fenced > 0:
		return "", preflight.Warning("%s; %d others are outside of %s and would never be written: check SECURED_SUBNET_CIDR", saw, fenced, fenceInWords(f.cfg))
	}
	return saw, nil
}

// addresses are those of the target's families, ready members first, and how many the
// fence keeps out: those are not asked either.
func (f *flight) addresses() (inside []netip.Addr, fenced int) {
	members := slices.Clone(f.word.Members)
	slices.SortStableFunc(members, func(a, b *subscriber.Member) int {
		switch {
		case a.State == b.State:
			return 0
		case a.State == subscriber.Ready:
			return -1
		case b.State == subscriber.Ready:
			return 1
		default:
			return 0
		}
	})
	for _, m := range members {
		for _, a := range m.Addresses {
			switch {
			case !slices.Contains(f.target.Families, family(a)):
			case insideFence(f.cfg, a):
				inside = append(inside, a)
			default:
				fenced++
			}
		}
	}
	return inside, fenced
}

func (f *flight) connect(ctx context.Context, a netip.Addr) error {
	dialer := net.Dialer{Timeout: f.cfg.ProbeTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(int(f.target.ProbePort))))
	if err != nil {
		return err
	}
	return conn.Close()
}

// fewOf is a few of many errors.
func fewOf(all []error) string {
	const few = 3
	text := errors.Join(all[:min(len(all), few)]...).Error()
	if len(all) > few {
		text += fmt.Sprintf("\nand %d more", len(all)-few)
	}
	return strings.ReplaceAll(text, "\n", ", ")
}
