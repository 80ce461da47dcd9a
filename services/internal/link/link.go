// Package link implements both ends of every gRPC connection between components, including the
// writer's own API: mutual TLS 1.3, the peer's identity and what it may see, and limits. It
// guarantees that every peer is identified by a listed certificate name and that changed files take
// effect without a restart. It does not offer plaintext, host name verification or default
// permissions.
package link

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/keepalive"
)

// The numbers of both ends are in one place because they depend on each other. For example, a server
// that allows pings less often than its clients send them closes the connection with GOAWAY
// too_many_pings. Rules such as R3 are those of the contract, in inventory.proto.
const (
	pingAfter       = 30 * time.Second // either end pings a connection that was idle for this long
	pingTimeout     = 10 * time.Second // and closes it if no response arrives within this time
	minPingInterval = 10 * time.Second // the shortest interval that the server allows between pings

	maxConnAge   = 30 * time.Minute // rebalances clients, and bounds how long a revoked CA is trusted; grpc adds 10% jitter
	connAgeGrace = 30 * time.Second // for calls in progress at that age; grpc's default is unlimited

	handshakeTimeout = 10 * time.Second
	// connectTimeout ends a client's attempt to connect, including TLS. To a host that is down, TCP sends
	// a SYN after 0, 1, 3 and 7 s. If the host returns after 3 s, a longer attempt would notice it only at
	// 7 s; a new attempt after the delay of rule R14 notices it earlier.
	connectTimeout = 4 * time.Second

	maxMessageBytes   = 4 << 20                  // the contract's bound for messages of a server (R3)
	maxResponseBytes  = maxMessageBytes + 64<<10 // accepted by a client; the margin is for framing, not for more nodes
	maxRequestBytes   = 64 << 10                 // a request is a cursor and a few names
	maxHeaderBytes    = 16 << 10                 // for each call
	readBufferBytes   = 4 << 10                  // for each connection of a server; requests are small
	clientWindowBytes = 1 << 20                  // sent to a client but not read yet; fits a set of 5,000 nodes
	shutdownGrace     = 10 * time.Second         // for calls in progress when the server stops

	// maxConnStreams is the number of concurrent streams of one connection. A subscriber has one.
	// A further stream gets an error. At HTTP/2's own limit, maxConnCalls, it would wait without one.
	maxConnStreams = 8

	// maxConnCalls is the number of concurrent calls of one connection, streams included. Further calls
	// wait at the client. A call counts until the client has read its response, so this also bounds the
	// memory for a client that does not read.
	maxConnCalls = 2 * maxConnStreams

	// defaultRefreshInterval is how often files are read again. Watching them was rejected: kubelet
	// mounts symbolic links and swaps them, and a missed event would go unnoticed.
	defaultRefreshInterval = 10 * time.Second
)

// Files are the PEM files of one end.
type Files struct {
	Cert   string // this end's certificate and its intermediates
	Key    string // its private key
	PeerCA string // the CAs that sign the *other* end's certificates
}

// Config is what NewClient and NewServer have in common.
type Config struct {
	Component       string // "inventory" or "writer": metrics are slicefeed_<component>_…
	Name            string // of the link, for the metrics' label `link`: a source's or listener's name
	Files           Files
	RefreshInterval time.Duration // how often files are read again; 0: 10 s
	Logger          *slog.Logger
	Registerer      prometheus.Registerer

	// SubscriberServices are the full names of the services that clients with the role subscriber may
	// call, besides gRPC health and reflection. Operators may call every service. Only for servers.
	SubscriberServices []string
}

func (c *Config) linkRegisterer() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"link": c.Name}, c.Registerer)
}

func (c *Config) refreshInterval() time.Duration {
	return cmp.Or(c.RefreshInterval, defaultRefreshInterval)
}

func clientKeepalive() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}
}

func serverKeepalive() (keepalive.ServerParameters, keepalive.EnforcementPolicy) {
	return keepalive.ServerParameters{
		Time: pingAfter, Timeout: pingTimeout,
		MaxConnectionAge: maxConnAge, MaxConnectionAgeGrace: connAgeGrace,
	}, keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}
}
