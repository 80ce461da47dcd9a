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
	fewMembers = 10 // at one port
	mostPorts  = 50
	mostDials  = 50 // at one time
	mostWait   = 5 * time.Second
)

// door is a port at which a source's members would be probed.
type door struct {
	port      uint16
	timeout   time.Duration
	services  []string     // that would have it probed
	addresses []netip.Addr // of members inside of the fence, ready ones first
	fenced    int          // that the fence keeps out: those are not asked either
	answers   []error      // of the first addresses; nil: it accepts connections
}

// probes connects once to some of the source's members, at each port that would be probed.
func (o *origin) probes() preflight.Check {
	unasked := 0
	name := o.check("probes")
	return group{
		Check: preflight.Check{Name: name, Needs: []string{o.check(checkWord), checkServices}, Within: manyPatience},
		each:  name + " at ",
		find: func(ctx context.Context) ([]finding, error) {
			doors := o.doors()
			unasked = max(0, len(doors)-mostPorts)
			return o.knock(ctx, doors[:len(doors)-unasked]), nil
		},
		summary: func(work []string, all int) string {
			if all == 0 {
				return "no Service that has this source is probed"
			}
			saw := fmt.Sprintf("connections are accepted at %d of %d ports", len(work), all)
			if unasked > 0 {
				saw += fmt.Sprintf(" (%d more were not asked)", unasked)
			}
			return saw
		},
	}.check()
}

// doors are sorted by port.
func (o *origin) doors() []*door {
	at := map[uint16]*door{}
	seen := map[netip.AddrPort]bool{}
	for _, view := range o.flight.views {
		t := view.Target
		if view.Refusal != nil || view.Leaving || t.Settings.Probe.Mode == prober.Off || !slices.Contains(t.Settings.Sources, o.Name) {
			continue
		}
		d := at[t.ProbePort]
		if d == nil {
			d = &door{port: t.ProbePort}
			at[t.ProbePort] = d
		}
		d.services = append(d.services, t.String())
		d.timeout = min(max(d.timeout, cmp.Or(t.Settings.Probe.Timeout, prober.DefaultTimeout)), mostWait)
		for _, a := range o.addresses(t) {
			place := netip.AddrPortFrom(a, t.ProbePort)
			switch {
			case seen[place]:
			case o.inside(a):
				d.addresses = append(d.addresses, a)
			default:
				d.fenced++
			}
			seen[place] = true
		}
	}
	return slices.SortedFunc(maps.Values(at), func(a, b *door) int { return cmp.Compare(a.port, b.port) })
}

// addresses are those that the source tells for a Service, ready members first.
func (o *origin) addresses(t targets.Target) []netip.Addr {
	var ready, others []netip.Addr
	for _, m := range o.word.Members {
		if s := t.Settings.NodeSelector; s != nil && !s.Matches(labels.Set(m.Labels)) {
			continue
		}
		for _, a := range m.Addresses {
			switch {
			case !slices.Contains(t.Families, planner.Family(a)):
			case m.State == subscriber.Ready:
				ready = append(ready, a)
			default:
				others = append(others, a)
			}
		}
	}
	return append(ready, others...)
}

// knock connects once to some of the addresses at each door.
func (o *origin) knock(ctx context.Context, doors []*door) []finding {
	var g errgroup.Group
	g.SetLimit(mostDials)
	for _, d := range doors {
		d.answers = make([]error, min(len(d.addresses), fewMembers))
		for i := range d.answers {
			g.Go(func() error {
				d.answers[i] = d.connect(ctx, d.addresses[i])
				return nil
			})
		}
	}
	g.Wait() //nolint:errcheck // what is wrong is judged door by door
	all := make([]finding, len(doors))
	for i, d := range doors {
		all[i] = o.judgeDoor(d)
	}
	return all
}

func (d *door) connect(ctx context.Context, a netip.Addr) error {
	dialer := net.Dialer{Timeout: d.timeout}
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a, d.port).String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// judgeDoor says how many of those that were asked let us in.
func (o *origin) judgeDoor(d *door) finding {
	found := finding{name: strconv.Itoa(int(d.port))}
	asked := len(d.answers)
	failed := slices.DeleteFunc(d.answers, func(err error) bool { return err == nil })
	found.saw = fmt.Sprintf("%d of %d addresses accept connections at port %d", asked-len(failed), asked, d.port)
	if left := len(d.addresses) - asked; left > 0 {
		found.saw += fmt.Sprintf(" (%d more were not asked)", left)
	}
	cidrs := o.setting("SECURED_SUBNET_CIDR")
	switch whose := some(d.services); {
	case asked == 0 && d.fenced > 0:
		found.failure = fmt.Sprintf("all of the %d addresses that the inventory tells for %s are outside of %s: nothing would be written: check %s", d.fenced, whose, o.fenceInWords(), cidrs)
	case asked == 0:
		found.warning = fmt.Sprintf("there is no member of the families and the node selector of %s to try", whose)
	case len(failed) == asked:
		found.failure = fmt.Sprintf("%s, for %s: %v: check the network in between, the Service's targetPort, and that the backends listen there", found.saw, whose, failed[0])
	case len(failed) > 0:
		found.warning = fmt.Sprintf("%s, for %s: %s: those that fail would be out", found.saw, whose, fewOf(failed))
	case d.fenced > 0:
		found.warning = fmt.Sprintf("%s; %d others are outside of %s and would never be written: check %s", found.saw, d.fenced, o.fenceInWords(), cidrs)
	}
	return found
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
