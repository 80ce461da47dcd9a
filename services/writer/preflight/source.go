package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/identity"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/nodeclient"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// sourceCheck checks one source.
type sourceCheck struct {
	sources.Source

	checker  *checker
	exports  bool                // Services, found out by the first call: there is a set for each target, which plan waits for
	snapshot subscriber.Snapshot // of its initial sync, once it has one
}

// checkName returns the name of a check of this source, prefixed if there are several sources.
func (sc *sourceCheck) checkName(name string) string {
	if len(sc.checker.sources) == 1 {
		return name
	}
	return sc.Name + ": " + name
}

// peerCACheckName returns the name of the check of its CAs. Sources that share a file share a check.
func (sc *sourceCheck) peerCACheckName() string {
	first := slices.IndexFunc(sc.checker.sources, func(other *sourceCheck) bool { return other.CAFile == sc.CAFile })
	if sc.CAFile == sc.checker.cfg.PeerCA {
		return preflight.PeerCA
	}
	return sc.checker.sources[first].checkName(preflight.PeerCA)
}

// Settings of a source, and their keys in SOURCES_FILE.
var sourcesFileKeys = map[string]string{
	"INVENTORY_ADDRESS":   "address",
	"INVENTORY_SAN":       "san",
	"TLS_PEER_CA_FILE":    "caFile",
	"SECURED_SUBNET_CIDR": "cidrs",
	"ALLOWED_PORTS":       "ports",
}

// exportsDetail is the detail of the checks of an only set.
const exportsDetail = "the inventory exports Services: plan shows the endpoints of each"

// linkChecks returns the checks of the link to the inventory.
func (sc *sourceCheck) linkChecks() []preflight.Check {
	return []preflight.Check{
		{
			Name:      sc.checkName(inventoryCheckName),
			DependsOn: []string{preflight.OwnCertificate, preflight.OwnKey, sc.peerCACheckName()},
			Run:       sc.checkInventory,
		},
		{
			Name: sc.checkName(initialSyncCheckName), DependsOn: []string{sc.checkName(inventoryCheckName)}, Run: sc.checkInitialSync,
		},
	}
}

// settingName returns where to change a setting: its name, or its key in SOURCES_FILE.
func (sc *sourceCheck) settingName(name string) string {
	if sc.checker.cfg.SourcesFile == "" {
		return name
	}
	return fmt.Sprintf("%s of %s in SOURCES_FILE", sourcesFileKeys[name], sc.Name)
}

// openLink opens the link to the inventory, with the credentials of serve.
func (sc *sourceCheck) openLink() (*sources.Link, error) {
	return sc.OpenLink(sc.checker.cfg.TLSFiles(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// checkInventory calls the inventory once. Any response will do.
func (sc *sourceCheck) checkInventory(ctx context.Context) (string, error) {
	inventory, err := sc.openLink()
	if err != nil {
		return "", err
	}
	conn, err := inventory.Dial()
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // only fails if it is closed already
	var header, trailer metadata.MD
	request := &inventoryv1.ListNodesRequest{Names: []string{"preflight"}}
	_, err = inventoryv1.NewInventoryServiceClient(conn).ListNodes(ctx, request,
		grpc.Header(&header), grpc.Trailer(&trailer))
	return sc.explainCallError(err, inventory.HandshakeError(), len(header)+len(trailer) > 0)
}

// explainCallError turns the error of a call, or of the handshake before it, into advice.
func (sc *sourceCheck) explainCallError(err error, handshake *identity.HandshakeError, byServer bool) (string, error) {
	code := status.Code(err)
	notYet := code == codes.Unavailable && byServer // no observation: the check of the initial sync reports that
	sc.exports = code == codes.InvalidArgument      // such an inventory wants the name of a Service
	if code == codes.OK || notYet || sc.exports {
		return fmt.Sprintf("connected to %s at %s", sc.SAN, sc.Address), nil
	}
	if code == codes.Unavailable && handshake != nil {
		return "", sc.explainHandshake(handshake)
	}
	advice := fmt.Sprintf("check %s, that the inventory runs, and the network in between", sc.settingName("INVENTORY_ADDRESS"))
	switch code { //nolint:exhaustive // the others have the same advice
	case codes.PermissionDenied:
		advice = "add the SAN of the writer's certificate to the inventory's ALLOWED_CLIENTS_FILE, as a subscriber"
	case codes.Unimplemented:
		advice = fmt.Sprintf("check that %s is the address of an inventory", sc.settingName("INVENTORY_ADDRESS"))
	}
	return "", fmt.Errorf("%s; %s", status.Convert(err).Message(), advice)
}

// explainHandshake names the settings that cause a failure of the handshake.
func (sc *sourceCheck) explainHandshake(err *identity.HandshakeError) error {
	advice := err.Advice
	switch {
	case errors.Is(err, identity.ErrOtherServer):
		advice = fmt.Sprintf(
			"check %s, and that %s is the inventory's",
			sc.settingName("INVENTORY_SAN"),
			sc.settingName("INVENTORY_ADDRESS"),
		)
	case errors.Is(err, identity.ErrRejected):
		advice = "the inventory rejects the writer's certificate, and its log has the reason; its TLS_PEER_CA_FILE must contain the CA of that certificate, and its ALLOWED_CLIENTS_FILE the SAN"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		advice = sc.settingName("TLS_PEER_CA_FILE") + " must contain the CA that signs the inventory's certificate"
	case errors.As(err, new(tls.RecordHeaderError)):
		advice = sc.settingName("INVENTORY_ADDRESS") + " is the address of a server without TLS; use the inventory's LISTEN_ADDRESS"
	case advice == "":
		advice = fmt.Sprintf("check %s, that the inventory runs, and the network in between", sc.settingName("INVENTORY_ADDRESS"))
	}
	return fmt.Errorf("%w; %s", err.Cause, advice)
}

// checkInitialSync subscribes to the inventory, as serve does, until it has received a complete set.
func (sc *sourceCheck) checkInitialSync(ctx context.Context) (string, error) {
	if sc.exports {
		return exportsDetail, nil
	}
	inventory, err := sc.openLink()
	if err != nil {
		return "", err
	}
	s := nodeclient.New(nodeclient.Config{
		Source:  sc.Name,
		Dial:    func() (nodeclient.Conn, error) { return inventory.Dial() },
		Log:     slog.New(slog.DiscardHandler),
		Metrics: nodeclient.NewMetrics(prometheus.NewRegistry()),
	})
	runCtx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(runCtx) //nolint:errcheck // it only ends when runCtx is done
	}()
	defer func() { stop(); <-done }()
	for !s.Snapshot().SyncedInStream {
		select {
		case <-s.Changed():
		case <-ctx.Done():
			return "", fmt.Errorf(
				"%w: %s; run slicefeed-inventory preflight, or explain, at the inventory",
				context.Cause(ctx),
				s.Snapshot().NotSyncedReason(),
			)
		}
	}
	sc.snapshot = s.Snapshot()
	return evaluateSnapshot(sc.snapshot)
}

// evaluateSnapshot evaluates the first set of an inventory.
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
		return "", preflight.Warning(
			"%s; while membership is not synced changes are ignored, and while addresses are not synced none is added; check the inventory",
			detail,
		)
	case len(s.Members) == 0:
		return "", preflight.Warning(
			"%s; no node is published; check the source of the inventory",
			detail,
		)
	case ready == 0:
		return "", preflight.Warning("%s; only endpoints that pass their probes would stay ready; check the nodes", detail)
	}
	return detail, nil
}
