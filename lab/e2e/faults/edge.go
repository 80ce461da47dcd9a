package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// edge is a way that one half takes to something else: a TCP proxy that can be poisoned.
type edge struct {
	name  string
	at    netip.AddrPort // where the half connects to
	to    netip.AddrPort // where that leads, when nothing is disturbed
	proxy *toxiproxy.Proxy

	mu   sync.Mutex
	many int // toxics ever added, for their names
}

var proxies = sync.OnceValue(func() *toxiproxy.ApiServer {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics write to the standard error otherwise
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
})

func newEdge(name string, at, to netip.AddrPort) (*edge, error) {
	e := &edge{name: name, at: at, to: to, proxy: toxiproxy.NewProxy(proxies(), name, at.String(), to.String())}
	return e, e.up()
}

// up has it take connections.
func (e *edge) up() error {
	if err := e.proxy.Start(); err != nil {
		return fmt.Errorf("open the edge %s: %w", e.name, err)
	}
	return nil
}

// down ends all connections, and refuses new ones.
func (e *edge) down() { e.proxy.Stop() }

// point leads new connections elsewhere, and ends those that there are.
func (e *edge) point(to netip.AddrPort) error {
	e.down()
	if err := e.proxy.Update(&toxiproxy.Proxy{Listen: e.at.String(), Upstream: to.String()}); err != nil {
		return fmt.Errorf("lead the edge %s to %s: %w", e.name, to, err)
	}
	return e.up()
}

// Toxic is one of toxiproxy's, with its own names for kinds and attributes.
type Toxic struct {
	Kind       string
	Upstream   bool // it is what the half sends that is poisoned, not what it gets
	Toxicity   float32
	Attributes map[string]int
}

// poison adds a toxic, for connections that are open too.
func (e *edge) poison(t Toxic) error {
	e.mu.Lock()
	e.many++
	name := fmt.Sprintf("%s-%d", t.Kind, e.many)
	e.mu.Unlock()
	stream := "downstream"
	if t.Upstream {
		stream = "upstream"
	}
	if t.Toxicity == 0 {
		t.Toxicity = 1
	}
	raw, err := json.Marshal(map[string]any{
		"name": name, "type": t.Kind, "stream": stream, "toxicity": t.Toxicity, "attributes": t.Attributes,
	})
	if err == nil {
		_, err = e.proxy.Toxics.AddToxicJson(strings.NewReader(string(raw)))
	}
	if err != nil {
		return fmt.Errorf("poison the edge %s with %s: %w", e.name, t.Kind, err)
	}
	return nil
}

// clean takes all toxics away. What some have closed stays closed.
func (e *edge) clean(ctx context.Context) { e.proxy.Toxics.ResetToxics(ctx) }

// mend makes the edge as new.
func (e *edge) mend(ctx context.Context) error {
	e.clean(ctx)
	e.proxy.Lock()
	enabled, astray := e.proxy.Enabled, e.proxy.Upstream != e.to.String()
	e.proxy.Unlock()
	switch {
	case astray:
		return e.point(e.to)
	case enabled:
		return nil
	default:
		return e.up()
	}
}
