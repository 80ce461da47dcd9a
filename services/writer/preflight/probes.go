package preflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/inputs"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Bounds of what is dialed for one source: enough to know whether its members can be reached.
const (
	maxDialedMembers   = 10 // per port
	maxDialedPorts     = 50
	maxConcurrentDials = 50
	maxDialTimeout     = 5 * time.Second
)

// portCheck is a port at which a source's members would be probed.
type portCheck struct {
	port      uint16
	timeout   time.Duration
	services  []string     // that use this port
	addresses []netip.Addr // of allowed members, ready ones first
	denied    int          // addresses outside the allowlist, which are not dialed
	results   []error      // of the first addresses; nil if it accepts connections
}

// probeCheck connects to some of the source's members, at each port that would be probed.
func (sc *sourceCheck) probeCheck() preflight.Check {
	name := sc.checkName("probes")
	return preflight.Check{
		Name:      name,
		DependsOn: []string{sc.checkName(initialSyncCheckName), servicesCheckName},
		Timeout:   groupTimeout,
		Run: func(ctx context.Context) (string, error) {
			if sc.exports {
				return exportsDetail, nil
			}
			ports := sc.portChecks()
			skipped := max(0, len(ports)-maxDialedPorts)
			findings := sc.dialAll(ctx, ports[:len(ports)-skipped])
			return preflight.Summarize(name+" at ", findings, func(passed []string) string {
				text := fmt.Sprintf("connections are accepted at %d of %d ports", len(passed), len(findings))
				switch {
				case len(findings) == 0:
					text = "no Service of this source is probed"
				case skipped > 0:
					text += fmt.Sprintf(" (%d more were not tried)", skipped)
				}
				return text
			})
		},
	}
}

// portChecks returns the ports of all Services of the source, sorted.
func (sc *sourceCheck) portChecks() []*portCheck {
	byPort := map[uint16]*portCheck{}
	seen := map[netip.AddrPort]bool{}
	for _, resolution := range sc.checker.resolutions {
		t := resolution.Target
		if resolution.Rejection != nil || resolution.OptedOut || t.Settings.Probe.Mode == probe.Off ||
			!slices.Contains(t.Settings.AllSources(), sc.Name) {
			continue
		}
		port := sc.probePortOf(&t)
		p := byPort[port]
		if p == nil {
			p = &portCheck{port: port}
			byPort[port] = p
		}
		p.services = append(p.services, t.String())
		p.timeout = min(max(p.timeout, cmp.Or(t.Settings.Probe.Timeout, probe.DefaultTimeout)), maxDialTimeout)
		for _, a := range sc.addressesFor(t) {
			endpoint := netip.AddrPortFrom(a, port)
			switch {
			case seen[endpoint]:
			case sc.allowsAddress(a):
				p.addresses = append(p.addresses, a)
			default:
				p.denied++
			}
			seen[endpoint] = true
		}
	}
	return slices.SortedFunc(maps.Values(byPort), func(a, b *portCheck) int { return cmp.Compare(a.port, b.port) })
}

// probePortOf returns the port at which this source's endpoints of a target are probed.
func (sc *sourceCheck) probePortOf(t *targets.Target) uint16 {
	if t.FollowsPorts(sc.Name) {
		if followed, problem := t.FollowPorts(sc.Name, inputs.ReportedPorts(sc.snapshot), sc.AllowsPort); problem == "" {
			return followed.ProbePort
		}
	}
	return t.ProbePortOf(sc.Name)
}

// addressesFor returns the addresses that the source reports for a target, ready members first.
func (sc *sourceCheck) addressesFor(t targets.Target) []netip.Addr {
	var ready, others []netip.Addr
	for _, m := range sc.snapshot.Members {
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

// dialAll connects once to some of the addresses at each port.
func (sc *sourceCheck) dialAll(ctx context.Context, ports []*portCheck) []preflight.Finding {
	var g errgroup.Group
	g.SetLimit(maxConcurrentDials)
	for _, p := range ports {
		p.results = make([]error, min(len(p.addresses), maxDialedMembers))
		for i := range p.results {
			g.Go(func() error {
				dialer := net.Dialer{Timeout: p.timeout}
				conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(p.addresses[i], p.port).String())
				if err == nil {
					err = conn.Close()
				}
				p.results[i] = err
				return nil
			})
		}
	}
	g.Wait() //nolint:errcheck // evaluatePort reports the errors
	all := make([]preflight.Finding, len(ports))
	for i, p := range ports {
		all[i] = sc.evaluatePort(p)
	}
	return all
}

// evaluatePort reports how many of the dialed addresses accepted a connection.
func (sc *sourceCheck) evaluatePort(p *portCheck) preflight.Finding {
	found := preflight.Finding{Name: strconv.Itoa(int(p.port))}
	dialed := len(p.results)
	var failed []string
	for _, err := range p.results {
		if err != nil {
			failed = append(failed, err.Error())
		}
	}
	found.Observed = fmt.Sprintf("%d of %d addresses accept connections at port %d", dialed-len(failed), dialed, p.port)
	if skipped := len(p.addresses) - dialed; skipped > 0 {
		found.Observed += fmt.Sprintf(" (%d more were not tried)", skipped)
	}
	cidrs := sc.settingName("SECURED_SUBNET_CIDR")
	switch services := display.List(p.services); {
	case dialed == 0 && p.denied > 0:
		found.Err = fmt.Errorf(
			"all %d addresses that the inventory reports for %s are outside %s; nothing would be written; check %s",
			p.denied,
			services,
			sc.describeAllowlist(),
			cidrs,
		)
	case dialed == 0:
		found.Err = preflight.Warning("no member matches the IP families and the node selector of %s", services)
	case len(failed) == dialed:
		found.Err = fmt.Errorf(
			"%s, for %s: %s; check the network in between, the Service's targetPort, and that the backends listen there",
			found.Observed,
			services,
			failed[0],
		)
	case len(failed) > 0:
		found.Err = preflight.Warning("%s, for %s: %s; failing addresses will be not ready", found.Observed, services, display.List(failed))
	case p.denied > 0:
		found.Err = preflight.Warning(
			"%s; %d others are outside %s and will never be written; check %s",
			found.Observed,
			p.denied,
			sc.describeAllowlist(),
			cidrs,
		)
	}
	return found
}
