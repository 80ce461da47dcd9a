package preflight

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// probedService is a target of these sources that is probed at a port.
func probedService(name string, port uint16, from ...string) targets.Resolution {
	return targets.Resolution{Relevant: true, Target: targets.Target{
		Key: targets.Key{Namespace: "web", Name: name}, ProbePort: port, Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Settings: targets.Settings{Sources: from, Probe: probe.Spec{Mode: probe.TCP}},
	}}
}

func TestProbeCheckDialsAllowedMembers(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	member := func(state subscriber.NodeState, all ...string) *subscriber.Member {
		m := &subscriber.Member{State: state}
		for _, a := range all {
			m.Addresses = append(m.Addresses, netip.MustParseAddr(a))
		}
		return m
	}
	var notListening []*subscriber.Member
	for i := range maxDialedMembers {
		notListening = append(notListening, member(subscriber.NotReady, fmt.Sprintf("127.0.0.%d", i+2)))
	}
	for _, tt := range []struct {
		name    string
		members []*subscriber.Member
		want    string
	}{
		{"one that listens", []*subscriber.Member{member(subscriber.Ready, "127.0.0.1", "fd00::1")}, "ok|1 of 1"},
		{"one that does not", []*subscriber.Member{member(subscriber.Ready, "127.0.0.2")}, "FAIL|0 of 1|connection refused|targetPort"},
		{"one of two", []*subscriber.Member{member(subscriber.Ready, "127.0.0.2"), member(subscriber.Ready, "127.0.0.1")}, "WARN|1 of 2|127.0.0.2"},
		{"ready ones first, and ten at most", append(slices.Clone(notListening), member(subscriber.Ready, "127.0.0.1")), "WARN|1 of 10|(1 more were not tried)|and 6 more"},
		{"none", nil, "WARN|no member matches"},
		{"none of the Service's family", []*subscriber.Member{member(subscriber.Ready, "fd00::1")}, "WARN|no member matches"},
		{"an address outside the allowlist is not dialed", []*subscriber.Member{member(subscriber.Ready, "127.1.0.1"), member(subscriber.Ready, "127.0.0.1")}, "WARN|1 of 1|1 others are outside"},
		{"all are outside", []*subscriber.Member{member(subscriber.Ready, "127.1.0.1")}, "FAIL|all 1 addresses|SECURED_SUBNET_CIDR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, _ := newTestChecker(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
			src := pc.sources[0]
			src.snapshot.Members = tt.members
			pc.resolutions = []targets.Resolution{probedService("shop", port, "default")}
			detail, err := src.probeCheck().Run(t.Context())
			wantOutcome(t, tt.want, detail, err)
		})
	}

	t.Run("many ports", func(t *testing.T) {
		pc, _ := newTestChecker(t, twoSources(t, nil))
		blue, green := pc.sources[0], pc.sources[1]
		blue.CIDRs, green.CIDRs = []netip.Prefix{
			netip.MustParsePrefix("127.0.0.0/24"),
		}, []netip.Prefix{
			netip.MustParsePrefix("127.0.0.0/24"),
		}
		blue.snapshot.Members = []*subscriber.Member{member(subscriber.Ready, "127.0.0.1")}
		off, rejected, optedOut := probedService(
			"off",
			4,
			"blue",
		), probedService(
			"rejected",
			5,
			"blue",
		), probedService(
			"opted-out",
			6,
			"blue",
		)
		off.Target.Settings.Probe.Mode = probe.Off
		rejected.Rejection, optedOut.OptedOut = &targets.Rejection{}, true
		pc.resolutions = []targets.Resolution{
			off,
			rejected,
			optedOut,
			probedService(
				"a",
				port,
				"blue",
				"green",
			),
			probedService("b", port, "blue"),
			probedService("c", 1, "blue"),
			probedService("d", 2, "blue"),
		}
		wantPrefixes(t, []string{
			"ok blue: probes connections are accepted at 1 of 3 ports",
			"FAIL blue: probes at 1 0 of 1 addresses accept connections at port 1, for web/c: ",
			"FAIL blue: probes at 2 0 of 1 addresses accept connections at port 2, for web/d: ",
		}, runCheck(t, blue.probeCheck()))
		wantPrefixes(
			t,
			[]string{"WARN green: probes no member matches the IP families and the node selector of web/a"},
			runCheck(t, green.probeCheck()),
		)
		pc.resolutions = pc.resolutions[:3]
		wantPrefixes(t, []string{"ok green: probes no Service of this source is probed"}, runCheck(t, green.probeCheck()))
	})

	t.Run("Services that share a port are dialed once", func(t *testing.T) {
		pc, _ := newTestChecker(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
		pc.sources[0].snapshot.Members = []*subscriber.Member{member(subscriber.Ready, "127.0.0.1", "127.1.0.1")}
		pc.resolutions = []targets.Resolution{probedService("a", port, "default"), probedService("b", port, "default")}
		wantPrefixes(
			t,
			[]string{"WARN probes 1 of 1 addresses accept connections at port " + strconv.Itoa(int(port)) + "; 1 others"},
			runCheck(t, pc.sources[0].probeCheck()),
		)
	})

	t.Run("a node selector", func(t *testing.T) {
		pc, _ := newTestChecker(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
		here, there := member(subscriber.Ready, "127.0.0.1"), member(subscriber.Ready, "127.0.0.2")
		here.Labels = map[string]string{"pool": "blue"}
		pc.sources[0].snapshot.Members = []*subscriber.Member{there, here}
		pc.resolutions = []targets.Resolution{probedService("a", port, "default")}
		pc.resolutions[0].Target.Settings.NodeSelector = labels.SelectorFromSet(labels.Set{"pool": "blue"})
		wantPrefixes(t, []string{"ok probes 1 of 1 addresses"}, runCheck(t, pc.sources[0].probeCheck()))
	})

	t.Run("more ports than are dialed", func(t *testing.T) {
		pc, _ := newTestChecker(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
		pc.sources[0].snapshot.Members = []*subscriber.Member{member(subscriber.Ready, "127.0.0.1")}
		for i := range maxDialedPorts + 7 {
			pc.resolutions = append(pc.resolutions, probedService("a", uint16(i+1), "default"))
		}
		if got := runCheck(
			t,
			pc.sources[0].probeCheck(),
		); len(got) != 22 ||
			!strings.Contains(got[0], "at 0 of 50 ports (7 more were not tried)") {
			t.Errorf("%d lines: %s", len(got), got[0])
		}
	})
}
