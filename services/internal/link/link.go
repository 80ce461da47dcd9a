// Package link implements both ends of every gRPC connection between components, including the
// writer's own API: mutual TLS 1.3, which clients may call which methods, and limits. It guarantees that
// every peer has an affordable chain to a trusted CA, for the usage of its end, that only keys that such a CA signed check
// signatures, that every client is listed when it connects and when it calls, and that no client can use more than its
// share. Changed files take effect without a restart. It does not offer plaintext or default permissions.
package link

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
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
)

// streamLimits are the limits of streams.
type streamLimits struct {
	// perConn is the number of concurrent streams of one connection. A further stream gets an error. At HTTP/2's own
	// limit, calls, it would wait without one.
	perConn int32

	// calls is the number of concurrent calls of one connection, streams included. Further calls wait at the client.
	// A call counts until the client has read its response, so this also bounds the memory for a client that does not
	// read.
	calls uint32

	// All streams of a client can reconnect twice at the same time, and then every few seconds. Resuming a stream is
	// cheap.
	rate  rate.Limit // starts of one client per second
	burst int
}

// The limits of a server with one stream for each subscriber, and of one with a stream for each Service of a
// subscriber: that opens all of them on one connection.
var (
	fewStreams  = streamLimits{perConn: 8, calls: 16, rate: 20, burst: 128}
	manyStreams = streamLimits{perConn: MaxStreamsPerConn, calls: 528, rate: 200, burst: 1024}
)

// MaxStreamsPerConn is the number of concurrent streams of one connection to a server with a stream for each Service.
const MaxStreamsPerConn = 512

// Config is what NewClient and NewServer have in common.
type Config struct {
	Component  string // "inventory" or "writer": metrics are slicefeed_<component>_…
	Name       string // of the link, for the metrics' label `link`: a source's or listener's name
	Files      Files
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	// SubscriberServices are the full names of the services that clients with the role subscriber may
	// call, besides gRPC health and reflection. Operators may call every service. Only for servers.
	SubscriberServices []string

	ManyStreams bool // a subscriber has a stream for each Service. Only for servers.
}

func (c Config) streamLimits() streamLimits {
	if c.ManyStreams {
		return manyStreams
	}
	return fewStreams
}

// ofLink returns the configuration with the link's name in its metrics and log lines.
func (c Config) ofLink() Config {
	c.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"link": c.Name}, c.Registerer)
	c.Logger = c.Logger.With("link", c.Name)
	return c
}

// counter returns the options of a metric of the component.
func (c Config) counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: "slicefeed", Subsystem: c.Component, Name: name, Help: help}
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
