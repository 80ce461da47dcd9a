// Package link is both ends of the connection between the halves, and of the writer's own
// service: mutual TLS 1.3 whose files are re-read without a restart, who the peer is and
// what it may see, and one set of limits that fits at both ends. It refuses a peer that
// it cannot name: there is no plaintext, no host name fallback and no default permission.
package link

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/keepalive"
)

// Both ends live in one place so that these numbers can be seen to fit. A server that
// allows pings less often than its clients send them answers GOAWAY too_many_pings.
const (
	pingAfter       = 30 * time.Second // either end pings a connection idle for that long
	pingTimeout     = 10 * time.Second // and gives it up without an answer
	minPingInterval = 10 * time.Second // the server's least interval between a client's pings

	maxConnAge   = 30 * time.Minute // of a connection (grpc adds jitter of 10%): spreads clients anew, bounds a revoked CA
	connAgeGrace = 30 * time.Second // for calls under way then; grpc's default is for ever

	handshakeTimeout = 10 * time.Second
	// connectTimeout ends a client's attempt to connect, TLS included. A peer whose host is away drops what
	// is sent: TCP then sends its SYN after 0, 1, 3 and 7 s, so that a longer attempt would wait in vain
	// for up to 4 s, and then for the delay of rule R14 too.
	connectTimeout = 4 * time.Second

	maxMessageBytes   = 4 << 20                  // the contract's bound of what a server sends (R3)
	maxResponseBytes  = maxMessageBytes + 64<<10 // what a client accepts: a margin for framing, not for more nodes
	maxRequestBytes   = 64 << 10                 // requests are a cursor and a few names
	maxHeaderBytes    = 16 << 10                 // of one call, in bytes
	readBufferBytes   = 4 << 10                  // of each connection of a server: what comes in is small
	clientWindowBytes = 1 << 20                  // what may be under way to a client: the set of 5,000 nodes
	shutdownGrace     = 10 * time.Second         // for calls under way when the server stops

	// maxConnStreams is how many streams may be under way in one connection; a subscriber has one
	// or two. The next one is refused, so HTTP/2 has room for more than that.
	maxConnStreams = 8

	// maxConnCalls is how many calls of any kind may be under way in one connection. An answer counts
	// until its client has read it, so this also bounds what a client that asks and does not
	// read makes us keep. What goes beyond waits at the client.
	maxConnCalls = 2 * maxConnStreams

	// defaultRefreshInterval is how often files are read again. Reading beats watching here: what
	// kubelet mounts are symbolic links that are swapped, and a missed event would be silent.
	defaultRefreshInterval = 10 * time.Second
)

// Files are the PEM files of one end.
type Files struct {
	Cert   string // our certificate and its intermediates
	Key    string // its private key
	PeerCA string // the CAs that sign the *other* side's certificates
}

// Config is what either end needs.
type Config struct {
	Component       string // "inventory" or "writer": metrics are slicefeed_<half>_…
	Name            string // which link of that half, the label `link` of its metrics: a source's name, or the listener's
	Files           Files
	RefreshInterval time.Duration // how often files are re-read; 0: 10 s
	Logger          *slog.Logger
	Registerer      prometheus.Registerer
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
