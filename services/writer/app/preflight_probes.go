package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Bounds of what is dialled for one source: enough to know whether there is a way.
const (
	maxDialedMembers   = 10 // at one port
	maxDialedPorts     = 50
	maxConcurrentDials = 50 // at one time
	maxDialTimeout     = 5 * time.Second
)

// portCheck is a port at which a source's members would be probed.
type portCheck struct {
	port      uint16
	timeout   time.Duration
	services  []string     // that would have it probed
	addresses []netip.Addr // of members inside of the fence, ready ones first
	denied    int          // that the fence keeps out: those are not asked either
	results   []error      // of the first addresses; nil: it accepts connections
}

// probeCheck connects once to some of the source's members, at each port that would be probed.
func (o *sourceCheck) probeCheck() preflight.Check {
	skipped := 0
	name := o.checkName("probes")
	return checkGroup{
		Check:      preflight.Check{Name: name, DependsOn: []string{o.checkName(initialSyncCheckName), servicesCheckName}, Timeout: groupTimeout},
		linePrefix: name + " at ",
		collect: func(ctx context.Context) ([]finding, error) {
			ports := o.portChecks()
			skipped = max(0, len(ports)-maxDialedPorts)
			return o.dialAll(ctx, ports[:len(ports)-skipped]), nil
		},
		summarize: func(passed []string, all int) string {
			if all == 0 {
				return "no Service that has this source is probed"
			}
			detail := fmt.Sprintf("connections are accepted at %d of %d ports", len(passed), all)
			if skipped > 0 {
				detail += fmt.Sprintf(" (%d more were not asked)", skipped)
			}
			return detail
		},
	}.toCheck()
}

// portChecks are sorted by port.
func (o *sourceCheck) portChecks() []*portCheck {
	byPort := map[uint16]*portCheck{}
	seen := map[netip.AddrPort]bool{}
	for _, view := range o.checker.resolutions {
		t := view.Target
		if view.Rejection != nil || view.OptedOut || t.Settings.Probe.Mode == prober.Off || !slices.Contains(t.Settings.Sources, o.Name) {
			continue
		}
		p := byPort[t.ProbePort]
		if p == nil {
			p = &portCheck{port: t.ProbePort}
			byPort[t.ProbePort] = p
		}
		p.services = append(p.services, t.String())
		p.timeout = min(max(p.timeout, cmp.Or(t.Settings.Probe.Timeout, prober.DefaultTimeout)), maxDialTimeout)
		for _, a := range o.addressesFor(t) {
			endpoint := netip.AddrPortFrom(a, t.ProbePort)
			switch {
			case seen[endpoint]:
			case o.allowsAddress(a):
				p.addresses = append(p.addresses, a)
			default:
				p.denied++
			}
			seen[endpoint] = true
		}
	}
	return slices.SortedFunc(maps.Values(byPort), func(a, b *portCheck) int { return cmp.Compare(a.port, b.port) })
}

// addressesFor are those that the source tells for a Service, ready members first.
func (o *sourceCheck) addressesFor(t targets.Target) []netip.Addr {
	var ready, others []netip.Addr
	for _, m := range o.snapshot.Members {
		if s := t.Settings.NodeSelector; s != nil && !s.Matches(labels.Set(m.Labels)) {
			continue
		}
		for _, a := range m.Addresses {
			switch {
			case !slices.Contains(t.Families, planner.FamilyOf(a)):
			case m.State == subscriber.Ready:
				ready = append(ready, a)
			default:
				others = append(others, a)
			}
		}
	}
	return append(ready, others...)
}

// dialAll connects once to some of the addresses at each door.
func (o *sourceCheck) dialAll(ctx context.Context, ports []*portCheck) []finding {
	var g errgroup.Group
	g.SetLimit(maxConcurrentDials)
	for _, p := range ports {
		p.results = make([]error, min(len(p.addresses), maxDialedMembers))
		for i := range p.results {
			g.Go(func() error {
				p.results[i] = p.dial(ctx, p.addresses[i])
				return nil
			})
		}
	}
	g.Wait() //nolint:errcheck // what is wrong is judged door by door
	all := make([]finding, len(ports))
	for i, p := range ports {
		all[i] = o.evaluatePort(p)
	}
	return all
}

func (p *portCheck) dial(ctx context.Context, a netip.Addr) error {
	dialer := net.Dialer{Timeout: p.timeout}
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a, p.port).String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// evaluatePort says how many of those that were asked let us in.
func (o *sourceCheck) evaluatePort(p *portCheck) finding {
	found := finding{name: strconv.Itoa(int(p.port))}
	dialed := len(p.results)
	failed := slices.DeleteFunc(p.results, func(err error) bool { return err == nil })
	found.detail = fmt.Sprintf("%d of %d addresses accept connections at port %d", dialed-len(failed), dialed, p.port)
	if skipped := len(p.addresses) - dialed; skipped > 0 {
		found.detail += fmt.Sprintf(" (%d more were not asked)", skipped)
	}
	cidrs := o.settingName("SECURED_SUBNET_CIDR")
	switch services := abbreviate(p.services); {
	case dialed == 0 && p.denied > 0:
		found.failure = fmt.Sprintf("all of the %d addresses that the inventory tells for %s are outside of %s: nothing would be written: check %s", p.denied, services, o.describeAllowlist(), cidrs)
	case dialed == 0:
		found.warning = fmt.Sprintf("there is no member of the families and the node selector of %s to try", services)
	case len(failed) == dialed:
		found.failure = fmt.Sprintf("%s, for %s: %v: check the network in between, the Service's targetPort, and that the backends listen there", found.detail, services, failed[0])
	case len(failed) > 0:
		found.warning = fmt.Sprintf("%s, for %s: %s: those that fail would be out", found.detail, services, abbreviateErrors(failed))
	case p.denied > 0:
		found.warning = fmt.Sprintf("%s; %d others are outside of %s and would never be written: check %s", found.detail, p.denied, o.describeAllowlist(), cidrs)
	}
	return found
}

// abbreviateErrors is a few of many errors.
func abbreviateErrors(all []error) string {
	const maxErrors = 3
	text := errors.Join(all[:min(len(all), maxErrors)]...).Error()
	if len(all) > maxErrors {
		text += fmt.Sprintf("\nand %d more", len(all)-maxErrors)
	}
	return strings.ReplaceAll(text, "\n", ", ")
}
