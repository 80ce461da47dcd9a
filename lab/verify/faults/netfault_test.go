package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// faultProxy is a TCP proxy between two parts.
type faultProxy struct {
	name  string
	at    netip.AddrPort // where the client connects
	to    netip.AddrPort // where that leads when nothing is disturbed
	proxy *toxiproxy.Proxy

	removed atomic.Bool // with its machine: it stays down, whatever the end of a fault does
}

var proxyServer = sync.OnceValue(func() *toxiproxy.ApiServer {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics write to the standard error otherwise
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
})

func newFaultProxy(name string, at, to netip.AddrPort) (*faultProxy, error) {
	p := &faultProxy{name: name, at: at, to: to, proxy: toxiproxy.NewProxy(proxyServer(), name, at.String(), to.String())}
	return p, p.up()
}

// up accepts connections.
func (p *faultProxy) up() error {
	if p.removed.Load() {
		return nil
	}
	if err := p.proxy.Start(); err != nil {
		return fmt.Errorf("start the proxy to the %s: %w", p.name, err)
	}
	return nil
}

// down closes all connections, and new ones are refused.
func (p *faultProxy) down() { p.proxy.Stop() }

func (p *faultProxy) remove() {
	p.removed.Store(true)
	p.down()
}

// pointTo closes all connections and leads new ones to another address.
func (p *faultProxy) pointTo(to netip.AddrPort) error {
	p.down()
	if err := p.proxy.Update(&toxiproxy.Proxy{Listen: p.at.String(), Upstream: to.String()}); err != nil {
		return fmt.Errorf("point the proxy to the %s at %s: %w", p.name, to, err)
	}
	return p.up()
}

// toxic is one of toxiproxy, with its names for kinds and attributes. It concerns what the client receives, or what it
// sends.
type toxic struct {
	kind       string
	upstream   bool
	attributes map[string]int
}

// add adds a toxic, for connections that are open too.
func (p *faultProxy) add(t toxic) error {
	stream := "downstream"
	if t.upstream {
		stream = "upstream"
	}
	raw, err := json.Marshal(
		map[string]any{"name": t.kind + "-" + stream, "type": t.kind, "stream": stream, "toxicity": 1, "attributes": t.attributes},
	)
	if err == nil {
		_, err = p.proxy.Toxics.AddToxicJson(strings.NewReader(string(raw)))
	}
	if err != nil {
		return fmt.Errorf("add %s to the proxy to the %s: %w", t.kind, p.name, err)
	}
	return nil
}

// clear removes all toxics. What they have closed stays closed.
func (p *faultProxy) clear(ctx context.Context) { p.proxy.Toxics.ResetToxics(ctx) }

// repair makes the proxy as new.
func (p *faultProxy) repair(ctx context.Context) error {
	p.clear(ctx)
	p.proxy.Lock()
	enabled, moved := p.proxy.Enabled, p.proxy.Upstream != p.to.String()
	p.proxy.Unlock()
	switch {
	case moved:
		return p.pointTo(p.to)
	case enabled:
		return nil
	default:
		return p.up()
	}
}

// The toxics, by what people call them.
var (
	verySlow  = toxic{kind: "latency", attributes: map[string]int{"latency": 2000}}
	jittery   = toxic{kind: "latency", attributes: map[string]int{"latency": 150, "jitter": 150}}
	narrow    = toxic{kind: "bandwidth", attributes: map[string]int{"rate": 1}} // KB/s
	stuck     = toxic{kind: "bandwidth", attributes: map[string]int{"rate": 0}}
	resets    = toxic{kind: "reset_peer", attributes: map[string]int{"timeout": 0}}
	blackHole = toxic{kind: "timeout", attributes: map[string]int{"timeout": 0}}
	slowClose = toxic{kind: "slow_close", attributes: map[string]int{"delay": 5000}}
	sliced    = toxic{kind: "slicer", attributes: map[string]int{"average_size": 7, "size_variation": 3, "delay": 100}} // microseconds
	torn      = toxic{
		kind:       "limit_data",
		attributes: map[string]int{"bytes": 2000},
	} // in the middle of the TLS handshake
	shortLived = toxic{
		kind:       "limit_data",
		attributes: map[string]int{"bytes": 20000},
	} // a few answers
)

// sent is the same toxic on what the client sends.
func (t toxic) sent() toxic {
	t.upstream = true
	return t
}

// Which connections a fault concerns.
type where func(*run) []*faultProxy

func toSecured(r *run) []*faultProxy { return []*faultProxy{r.toSecured} }
func toCloud(r *run) []*faultProxy   { return []*faultProxy{r.toCloud} }

func toInventory(from components) where {
	return func(r *run) []*faultProxy { return proxiesOf(r.toInventory, from(r)) }
}

func toSecond(from components) where {
	return func(r *run) []*faultProxy { return proxiesOf(r.toSecond, from(r)) }
}

func toConsuming(from components) where {
	return func(r *run) []*faultProxy { return proxiesOf(r.toConsuming, from(r)) }
}

func proxiesOf(all map[*pair.Component]*faultProxy, writers []*pair.Component) []*faultProxy {
	var some []*faultProxy
	for _, writer := range writers {
		some = append(some, all[writer])
	}
	return some
}

func toAllBackends(r *run) []*faultProxy {
	var all []*faultProxy
	for _, n := range r.allNodes() {
		all = append(all, r.toBackend[n.Address])
	}
	return all
}

// toOneBackend is that of a node that no change concerns.
func toOneBackend(r *run) []*faultProxy {
	return []*faultProxy{r.toBackend[r.nodesOf(first)[3].Address]}
}

// toAllAPIs are all connections of our components except those to backends.
func toAllAPIs(r *run) []*faultProxy {
	var all []*faultProxy
	for _, some := range []where{toSecured, toCloud, toInventory(bothWriters), toSecond(bothWriters), toConsuming(bothWriters)} {
		all = append(all, some(r)...)
	}
	return all
}

// toxics adds toxics to the connections.
func toxics(at where, all ...toxic) fault {
	return func(r *run) {
		for _, p := range at(r) {
			r.onEnd(func(ctx context.Context) error {
				p.clear(ctx)
				return nil
			})
			for _, t := range all {
				r.must(p.add(t))
			}
		}
	}
}

func isBlackHole(at where) fault { return toxics(at, blackHole, blackHole.sent()) }

// refused closes the connections, and new ones are refused.
func refused(at where) fault {
	return func(r *run) {
		for _, p := range at(r) {
			r.onEnd(func(context.Context) error { return p.up() })
			p.down()
		}
	}
}

// flaps refuses connections and accepts them again, over and over.
func flaps(at where, downFor, upFor time.Duration) fault {
	return repeated(at, func(ctx context.Context, p *faultProxy) error {
		p.down()
		wait(ctx, downFor)
		err := p.up()
		wait(ctx, upFor)
		return err
	})
}

// repeated does something to each connection until the fault ends, to each in its own time.
func repeated(at where, do func(context.Context, *faultProxy) error) fault {
	return func(r *run) {
		ctx, stop := context.WithCancel(r.ctx)
		var all errgroup.Group
		r.onEnd(func(context.Context) error {
			stop()
			return all.Wait()
		})
		for _, p := range at(r) {
			all.Go(func() error {
				for ctx.Err() == nil {
					if err := do(ctx, p); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// movedToReplica points the connections to the second replica of the inventory.
func movedToReplica(at where) fault {
	return func(r *run) {
		for _, p := range at(r) {
			r.onEnd(func(context.Context) error { return p.pointTo(p.to) })
			r.must(p.pointTo(netip.AddrPortFrom(replicaAddress, pair.LinkPort)))
		}
	}
}

// reconnect closes the connections of the writers to the inventory. They can be made again immediately.
func reconnect(r *run) {
	for _, p := range r.toInventory {
		p.down()
		r.must(p.up())
	}
}

// cut loses every packet from hosts to these addresses: a cable that is pulled out somewhere, which nobody is told.
func cut(from components, to ...netip.Prefix) fault {
	return func(r *run) {
		for _, component := range from(r) {
			host := r.hosts[component]
			for _, prefix := range to {
				r.must(host.Cut(prefix))
				r.onEnd(func(context.Context) error { return host.Mend(prefix) })
			}
		}
	}
}

func only(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

// components are the processes that a fault concerns.
type components func(*run) []*pair.Component

func theInventory(r *run) []*pair.Component { return []*pair.Component{r.Inventory} }
func theReplica(r *run) []*pair.Component   { return []*pair.Component{r.replica} }
func theSecond(r *run) []*pair.Component    { return []*pair.Component{r.second.Component} }
func bothWriters(r *run) []*pair.Component  { return r.Writers }

func theLeader(r *run) []*pair.Component {
	leader, err := r.WaitLeading(r.ctx)
	r.must(err)
	return []*pair.Component{leader}
}

func these(all ...components) components {
	return func(r *run) []*pair.Component {
		var halves []*pair.Component
		for _, some := range all {
			halves = append(halves, some(r)...)
		}
		return halves
	}
}
