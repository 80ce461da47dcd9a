package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// sourceCheck is one source of a flight.
type sourceCheck struct {
	sources.Source

	checker  *preflightChecker
	snapshot subscriber.Snapshot // its first, once it was heard
}

// checkName is the name of a check of this source; while there is one source, it needs no other.
func (o *sourceCheck) checkName(name string) string {
	if len(o.checker.sources) == 1 {
		return name
	}
	return o.Name + ": " + name
}

// peerCACheckName is the name of the check of its CAs, which is made once for each file.
func (o *sourceCheck) peerCACheckName() string {
	first := slices.IndexFunc(o.checker.sources, func(other *sourceCheck) bool { return other.CAFile == o.CAFile })
	if o.CAFile == o.checker.cfg.PeerCA {
		return preflight.PeerCA
	}
	return o.checker.sources[first].checkName(preflight.PeerCA)
}

func (o *sourceCheck) tlsFiles() link.Files {
	return link.Files{Cert: o.checker.cfg.CertFile, Key: o.checker.cfg.KeyFile, PeerCA: o.CAFile}
}

// Settings of a source, and what they are called in SOURCES_FILE.
var sourcesFileKeys = map[string]string{
	"INVENTORY_ADDRESS": "address", "INVENTORY_SAN": "san", "TLS_PEER_CA_FILE": "caFile", "SECURED_SUBNET_CIDR": "cidrs", "ALLOWED_PORTS": "ports",
}

// linkChecks are those of the link to it.
func (o *sourceCheck) linkChecks() []preflight.Check {
	return []preflight.Check{
		{Name: o.checkName(inventoryCheckName), DependsOn: []string{preflight.OwnCertificate, preflight.OwnKey, o.peerCACheckName()}, Run: o.checkInventory},
		{Name: o.checkName(initialSyncCheckName), DependsOn: []string{o.checkName(inventoryCheckName)}, Run: o.checkInitialSync},
	}
}

// settingName is what to mend: the setting of that name, or what stands for it in SOURCES_FILE.
func (o *sourceCheck) settingName(name string) string {
	if o.checker.cfg.SourcesFile == "" {
		return name
	}
	return fmt.Sprintf("%s of %s in SOURCES_FILE", sourcesFileKeys[name], o.Name)
}

// dial returns a connection to the inventory, with what serve shows of itself there.
func (o *sourceCheck) dial() (*grpc.ClientConn, error) {
	s, err := openSource(o.checker.cfg, o.Source, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	return s.dial()
}

// inventoryCheckName calls the inventory once. What it answers does not matter, if only it does.
func (o *sourceCheck) checkInventory(ctx context.Context) (string, error) {
	conn, err := o.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // all that it can say is that it is closed
	var header, trailer metadata.MD
	_, err = inventoryv1.NewInventoryServiceClient(conn).ListNodes(ctx, &inventoryv1.ListNodesRequest{Names: []string{"preflight"}},
		grpc.Header(&header), grpc.Trailer(&trailer))
	return o.explainCallError(err, len(header)+len(trailer) > 0)
}

// explainCallError tells the ways apart in which a call can fail. grpc has no code for what became
// of a connection, only words.
func (o *sourceCheck) explainCallError(err error, byServer bool) (string, error) {
	text := status.Convert(err).Message()
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(w string) bool { return strings.Contains(text, w) })
	}
	var advice string
	switch code := status.Code(err); {
	case code == codes.OK, code == codes.Unavailable && byServer: // it has not looked yet: see the first word
		return fmt.Sprintf("%s at %s lets us in", o.SAN, o.Address), nil
	case code == codes.PermissionDenied:
		advice = "add the SAN of our certificate to the inventory's ALLOWED_CLIENTS_FILE, as a subscriber"
	case code == codes.Unimplemented:
		advice = fmt.Sprintf("is it an inventory that listens at %s?", o.settingName("INVENTORY_ADDRESS"))
	case has("the server's certificate is for"):
		advice = fmt.Sprintf("check %s, and that %s is the inventory's", o.settingName("INVENTORY_SAN"), o.settingName("INVENTORY_ADDRESS"))
	case has("remote error: tls"), has("broken pipe", "reset by peer", "EOF", "server preface") && !has("while dialing", "handshake failed"):
		// With TLS 1.3 a client's handshake is over before its certificate is judged.
		advice = "the inventory refuses our certificate, and its log says why: its TLS_PEER_CA_FILE must hold the CA that signs ours, and its ALLOWED_CLIENTS_FILE our SAN"
	case has("unknown authority", "x509:"):
		advice = o.settingName("TLS_PEER_CA_FILE") + " must hold the CA that signs the inventory's certificate"
	case has("not for server auth"):
		advice = "issue the inventory's certificate with the usage server auth"
	case has("first record does not look like a TLS handshake"):
		advice = o.settingName("INVENTORY_ADDRESS") + " is the address of something that speaks no TLS: give the inventory's LISTEN_ADDRESS"
	default:
		advice = fmt.Sprintf("check %s, that the inventory runs, and the network in between", o.settingName("INVENTORY_ADDRESS"))
	}
	return "", fmt.Errorf("%s: %s", text, advice)
}

// checkInitialSync follows the inventory, as serve does, until it has told its set.
func (o *sourceCheck) checkInitialSync(ctx context.Context) (string, error) {
	s := subscriber.New(subscriber.Config{
		Source: o.Name, Dial: func() (subscriber.Conn, error) { return o.dial() }, Log: slog.New(slog.DiscardHandler), Metrics: subscriber.NewMetrics(prometheus.NewRegistry()),
		ConfirmObservations: o.checker.cfg.EmptyThreshold,
	})
	runCtx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(runCtx) //nolint:errcheck // it ends when told to, and only then
	}()
	defer func() { stop(); <-done }()
	for !s.Snapshot().SyncedInStream {
		select {
		case <-s.Changed():
		case <-ctx.Done():
			return "", fmt.Errorf("%w: %s: see what slicefeed-inventory says of itself (its preflight, or explain)", context.Cause(ctx), s.Snapshot().NotSyncedReason())
		}
	}
	o.snapshot = s.Snapshot()
	return evaluateSnapshot(o.snapshot)
}

// evaluateSnapshot judges what an inventory told.
func evaluateSnapshot(s subscriber.Snapshot) (string, error) {
	ready := 0
	for _, m := range s.Members {
		if m.State == subscriber.Ready {
			ready++
		}
	}
	detail := fmt.Sprintf("members: %d, ready: %d; %s", len(s.Members), ready, s.Summary())
	switch {
	case s.Membership.State != subscriber.Synced || s.Addresses.State != subscriber.Synced:
		return "", preflight.Warning("%s: while membership is not synced nothing new is believed, while addresses are not none is new: see to the inventory", detail)
	case len(s.Members) == 0:
		return "", preflight.Warning("%s: check the inventory's source, and what its ALLOWED_CLIENTS_FILE lets us see", detail)
	case ready == 0:
		return "", preflight.Warning("%s: nothing would serve but what answers probes already", detail)
	}
	return detail, nil
}
