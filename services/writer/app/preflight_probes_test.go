package app

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

	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// probed is a Service of these sources that is probed at a port.
func probed(name string, port uint16, from ...string) targets.View {
	return targets.View{Ours: true, Target: targets.Target{
		Key: targets.Key{Namespace: "web", Name: name}, ProbePort: port, Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Settings: targets.Settings{Sources: from, Probe: prober.Spec{Mode: prober.TCP}},
	}}
}

func TestDialsMembersInsideOfTheFence(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	member := func(state subscriber.State, all ...string) *subscriber.Member {
		m := &subscriber.Member{State: state}
		for _, a := range all {
			m.Addresses = append(m.Addresses, netip.MustParseAddr(a))
		}
		return m
	}
	var deaf []*subscriber.Member
	for i := range fewMembers {
		deaf = append(deaf, member(subscriber.NotReady, fmt.Sprintf("127.0.0.%d", i+2)))
	}
	for _, tt := range []struct {
		name    string
		members []*subscriber.Member
		want    string
	}{
		{"one that listens", []*subscriber.Member{member(subscriber.Ready, "127.0.0.1", "fd00::1")}, "ok|1 of 1"},
		{"one that does not", []*subscriber.Member{member(subscriber.Ready, "127.0.0.2")}, "FAIL|0 of 1|connection refused|targetPort"},
		{"one of two", []*subscriber.Member{member(subscriber.Ready, "127.0.0.2"), member(subscriber.Ready, "127.0.0.1")}, "WARN|1 of 2|127.0.0.2"},
		{"ready ones first, and ten at most", append(slices.Clone(deaf), member(subscriber.Ready, "127.0.0.1")), "WARN|1 of 10|(1 more were not asked)|and 6 more"},
		{"none", nil, "WARN|no member"},
		{"none of the Service's family", []*subscriber.Member{member(subscriber.Ready, "fd00::1")}, "WARN|no member"},
		{"one that the fence keeps out is not asked", []*subscriber.Member{member(subscriber.Ready, "127.1.0.1"), member(subscriber.Ready, "127.0.0.1")}, "WARN|1 of 1|1 others are outside"},
		{"all are outside", []*subscriber.Member{member(subscriber.Ready, "127.1.0.1")}, "FAIL|all of the 1|SECURED_SUBNET_CIDR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := ground(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
			o := f.origins[0]
			o.word.Members = tt.members
			f.views = []targets.View{probed("shop", port, "default")}
			saw, err := o.probes().Run(t.Context())
			agrees(t, tt.want, saw, err)
		})
	}

	t.Run("many ports", func(t *testing.T) {
		f, _ := ground(t, twoSources(t, nil))
		blue, green := f.origins[0], f.origins[1]
		blue.CIDRs, green.CIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/24")}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/24")}
		blue.word.Members = []*subscriber.Member{member(subscriber.Ready, "127.0.0.1")}
		off, refused, leaving := probed("off", 4, "blue"), probed("refused", 5, "blue"), probed("leaving", 6, "blue")
		off.Target.Settings.Probe.Mode = prober.Off
		refused.Refusal, leaving.Leaving = &targets.Refusal{}, true
		f.views = []targets.View{
			off, refused, leaving,
			probed("a", port, "blue", "green"), probed("b", port, "blue"), probed("c", 1, "blue"), probed("d", 2, "blue"),
		}
		begins(t, []string{
			"ok blue: probes connections are accepted at 1 of 3 ports",
			"FAIL blue: probes at 1 0 of 1 addresses accept connections at port 1, for web/c: ",
			"FAIL blue: probes at 2 0 of 1 addresses accept connections at port 2, for web/d: ",
		}, told(t, blue.probes()))
		begins(t, []string{"WARN green: probes there is no member of the families and the node selector of web/a to try"}, told(t, green.probes()))
		f.views = f.views[:3]
		begins(t, []string{"ok green: probes no Service that has this source is probed"}, told(t, green.probes()))
	})

	t.Run("Services that share a port are asked for once", func(t *testing.T) {
		f, _ := ground(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
		f.origins[0].word.Members = []*subscriber.Member{member(subscriber.Ready, "127.0.0.1", "127.1.0.1")}
		f.views = []targets.View{probed("a", port, "default"), probed("b", port, "default")}
		begins(t, []string{"WARN probes 1 of 1 addresses accept connections at port " + strconv.Itoa(int(port)) + "; 1 others"}, told(t, f.origins[0].probes()))
	})

	t.Run("a node selector", func(t *testing.T) {
		f, _ := ground(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
		here, there := member(subscriber.Ready, "127.0.0.1"), member(subscriber.Ready, "127.0.0.2")
		here.Labels = map[string]string{"pool": "blue"}
		f.origins[0].word.Members = []*subscriber.Member{there, here}
		f.views = []targets.View{probed("a", port, "default")}
		f.views[0].Target.Settings.NodeSelector = labels.SelectorFromSet(labels.Set{"pool": "blue"})
		begins(t, []string{"ok probes 1 of 1 addresses"}, told(t, f.origins[0].probes()))
	})

	t.Run("so many ports that not all are asked", func(t *testing.T) {
		f, _ := ground(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
		f.origins[0].word.Members = []*subscriber.Member{member(subscriber.Ready, "127.0.0.1")}
		for i := range mostPorts + 7 {
			f.views = append(f.views, probed("a", uint16(i+1), "default"))
		}
		if got := told(t, f.origins[0].probes()); len(got) != mostLines+2 || !strings.Contains(got[0], "at 0 of 50 ports (7 more were not asked)") {
			t.Errorf("%d lines: %s", len(got), got[0])
		}
	})
}
