package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// ground is a flight before which the cluster has these objects.
func ground(t *testing.T, set map[string]string, objects ...runtime.Object) (*flight, *fake.Clientset) {
	t.Helper()
	cfg, err := load(set)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	mode, err := prober.ParseMode(cfg.ProbeMode)
	if err != nil {
		t.Fatal(err)
	}
	return &flight{cfg: cfg, client: client, namespace: "slicefeed", mode: mode}, client
}

// agrees wants an answer that is marked so, and says all of this.
func agrees(t *testing.T, want, saw string, err error) {
	t.Helper()
	mark := "ok"
	var text strings.Builder
	if err != nil {
		mark, saw = "FAIL", err.Error()
		failed := preflight.Run(t.Context(), &text, []preflight.Check{{Name: "it", Run: func(context.Context) (string, error) { return "", err }}})
		if failed == nil {
			mark = "WARN"
		}
	}
	parts := strings.Split(want, "|")
	if mark != parts[0] {
		t.Errorf("it is %s, want %s: %s", mark, parts[0], saw)
	}
	for _, p := range parts[1:] {
		if !strings.Contains(saw, p) {
			t.Errorf("it does not say %q: %s", p, saw)
		}
	}
}

func TestPreflightAsksForThePermissionsThatTheWriterUses(t *testing.T) {
	reads := []string{
		"get services in web", "list services in web", "watch services in web",
		"get endpointslices in web", "list endpointslices in web", "watch endpointslices in web",
	}
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{nil, append(slices.Clone(reads), "create endpointslices in web", "update endpointslices in web", "delete endpointslices in web",
			"create events in web", "patch events in web", "create leases in slicefeed",
			"get leases slicefeed-default in slicefeed", "update leases slicefeed-default in slicefeed")},
		{map[string]string{"STORE_KIND": "memory"}, reads},
	} {
		f, _ := ground(t, tt.set)
		var got []string
		for _, p := range f.needed() {
			got = append(got, p.String())
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", tt.set, d)
		}
	}
}

func TestEveryCheckThatIsNeededIsMadeBefore(t *testing.T) {
	for _, set := range []map[string]string{nil, {"STORE_KIND": "memory"}, {"HEALTH_CHECK_MODE": "off"}} {
		f, _ := ground(t, set)
		made := map[string]bool{}
		for _, c := range f.checks() {
			for _, n := range c.Needs {
				if !made[n] {
					t.Errorf("%v: %s needs %q, which nobody checks before", set, c.Name, n)
				}
			}
			made[c.Name] = true
		}
		if made["admission policy"] == (set["STORE_KIND"] == "memory") || made["probes"] == (set["HEALTH_CHECK_MODE"] == "off") {
			t.Errorf("%v: %v", set, slices.Sorted(maps.Keys(made)))
		}
	}
}

func TestTellsTheWaysApartInWhichTheInventoryDoesNotLetUsIn(t *testing.T) {
	f, _ := ground(t, nil)
	dialing := `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:9443: `
	handshake := `connection error: desc = "transport: authentication handshake failed: `
	for _, tt := range []struct {
		err      error
		byServer bool
		want     string
	}{
		{nil, true, "ok|spiffe://example.org/slicefeed/inventory at inventory.example:9443"},
		{status.Error(codes.Unavailable, "no look is complete yet"), true, "ok"},
		{status.Error(codes.PermissionDenied, "not on the list"), true, "FAIL|not on the list|ALLOWED_CLIENTS_FILE"},
		{status.Error(codes.Unimplemented, "unknown service"), true, "FAIL|is it an inventory"},
		{status.Error(codes.Unavailable, dialing+`connect: connection refused"`), false, "FAIL|check INVENTORY_ADDRESS"},
		{status.Error(codes.Unavailable, dialing+`EOF"`), false, "FAIL|check INVENTORY_ADDRESS"},
		{status.Error(codes.Unavailable, handshake+`EOF"`), false, "FAIL|check INVENTORY_ADDRESS"},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), false, "FAIL|check INVENTORY_ADDRESS"},
		{status.Error(codes.Unavailable, handshake+`the server's certificate is for [\"a\"], want \"b\""`), false, "FAIL|check INVENTORY_SAN"},
		{status.Error(codes.Unavailable, handshake+`x509: certificate signed by unknown authority"`), false, "FAIL|TLS_PEER_CA_FILE must hold the CA that signs the inventory's"},
		{status.Error(codes.Unavailable, handshake+`the peer's certificate is not for server auth"`), false, "FAIL|usage server auth"},
		{status.Error(codes.Unavailable, handshake+`tls: first record does not look like a TLS handshake"`), false, "FAIL|speaks no TLS"},
		{status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: bad certificate"`), false, "FAIL|refuses our certificate"},
		{status.Error(codes.Unavailable, "write tcp 10.0.0.13:35298->10.0.0.13:9443: write: broken pipe"), false, "FAIL|refuses our certificate"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), false, "FAIL|refuses our certificate"},
	} {
		saw, err := f.answered(tt.err, tt.byServer)
		t.Run(fmt.Sprint(tt.err), func(t *testing.T) { agrees(t, tt.want, saw, err) })
	}
}

func TestJudgesTheFirstWord(t *testing.T) {
	fine := subscriber.Part{State: subscriber.Synced}
	ready, draining := &subscriber.Member{State: subscriber.Ready}, &subscriber.Member{State: subscriber.Draining}
	for _, tt := range []struct {
		name string
		word subscriber.Snapshot
		want string
	}{
		{"all is well", subscriber.Snapshot{Members: []*subscriber.Member{ready, draining}, Membership: fine, Addresses: fine}, "ok|members: 2, ready: 1; membership synced, addresses synced"},
		{"a part is not", subscriber.Snapshot{Members: []*subscriber.Member{ready}, Membership: fine, Addresses: subscriber.Part{Reason: "cloud: 503"}}, "WARN|addresses degraded (cloud: 503)"},
		{"nobody", subscriber.Snapshot{Membership: fine, Addresses: fine}, "WARN|members: 0|ALLOWED_CLIENTS_FILE"},
		{"none is ready", subscriber.Snapshot{Members: []*subscriber.Member{draining}, Membership: fine, Addresses: fine}, "WARN|ready: 0"},
	} {
		saw, err := judgeWord(tt.word)
		t.Run(tt.name, func(t *testing.T) { agrees(t, tt.want, saw, err) })
	}
}

func shop(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "1"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080)}}},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

func TestSaysWhetherTheServiceCanBeServed(t *testing.T) {
	foreign := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "theirs", Labels: map[string]string{discoveryv1.LabelServiceName: "shop"}}}
	ours := foreign.DeepCopy()
	ours.Name, ours.Labels[discoveryv1.LabelManagedBy] = "ours", "slicefeed-default"
	for _, tt := range []struct {
		name    string
		objects []runtime.Object
		want    string
	}{
		{"yes", []runtime.Object{shop(nil), ours}, "ok|web/shop can be served, at port 30080/TCP; slices of ours: 1"},
		{"there is none", nil, "FAIL|There is no Service shop in the namespace web"},
		{"a selector", []runtime.Object{shop(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "shop"} })}, "FAIL|remove spec.selector"},
		{"a port outside of the fence", []runtime.Object{shop(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(22) })}, "FAIL|ALLOWED_PORTS"},
		{"others' slices", []runtime.Object{shop(nil), foreign}, "WARN|theirs|delete them unless that is meant"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := ground(t, nil, tt.objects...)
			saw, err := f.service(t.Context())
			agrees(t, tt.want, saw, err)
		})
	}
}

func TestTriesTheAdmissionPolicyByDryRunsOnly(t *testing.T) {
	denied := func(why string) error {
		return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "it", errors.New("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "+why))
	}
	stray := func(slice *discoveryv1.EndpointSlice) bool {
		return strings.HasPrefix(slice.Endpoints[0].Addresses[0], "192.0.2.")
	}
	for _, tt := range []struct {
		name  string
		set   map[string]string
		judge func(*discoveryv1.EndpointSlice) error
		want  string
	}{
		{"it refuses what is outside, and nothing else", nil, func(s *discoveryv1.EndpointSlice) error {
			if stray(s) {
				return denied("outside")
			}
			return nil
		}, "ok|192.0.2.1 was refused"},
		{"so does a webhook", nil, func(s *discoveryv1.EndpointSlice) error {
			if stray(s) {
				return apierrors.NewBadRequest(`admission webhook "w" denied the request: no`)
			}
			return nil
		}, "ok"},
		{"there is none", nil, func(*discoveryv1.EndpointSlice) error { return nil }, "WARN|192.0.2.1, outside|let pass|deploy/slicefeed-writer/policy.yaml|docs/policy.md"},
		{"it refuses everything", nil, func(*discoveryv1.EndpointSlice) error { return denied("namespace web") }, "FAIL|refused as well|namespace web|agree with the writer's settings"},
		{"it lacks a CIDR", map[string]string{"SECURED_SUBNET_CIDR": "10.0.1.0/24,10.0.2.0/24"}, func(s *discoveryv1.EndpointSlice) error {
			for _, e := range s.Endpoints {
				if !strings.HasPrefix(e.Addresses[0], "10.0.1.") {
					return denied(e.Addresses[0] + " is outside")
				}
			}
			return nil
		}, "FAIL|10.0.2.1 is outside"},
		{"it lacks the end of a range of ports", nil, func(s *discoveryv1.EndpointSlice) error {
			if stray(s) || slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Port > 32000 }) {
				return denied("no")
			}
			return nil
		}, "FAIL|refused as well"},
		{"it lacks the other family", map[string]string{"SECURED_SUBNET_CIDR": "10.0.1.0/24,fd00::/64"}, func(s *discoveryv1.EndpointSlice) error {
			if stray(s) || s.AddressType == discoveryv1.AddressTypeIPv6 {
				return denied("no")
			}
			return nil
		}, "FAIL|refused as well"},
		{"the API server is out of order", nil, func(*discoveryv1.EndpointSlice) error { return apierrors.NewInternalError(errors.New("etcd is away")) }, "FAIL|etcd is away"},
		{"a fence around everything", map[string]string{"SECURED_SUBNET_CIDR": "0.0.0.0/0"}, func(*discoveryv1.EndpointSlice) error { return nil }, "WARN|leaves nothing outside"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, client := ground(t, tt.set)
			client.PrependReactor("create", "endpointslices", func(a ktesting.Action) (bool, runtime.Object, error) {
				create := a.(ktesting.CreateActionImpl) //nolint:forcetypeassert // by its verb
				if !slices.Equal(create.CreateOptions.DryRun, []string{metav1.DryRunAll}) {
					t.Errorf("a create that is no dry run: %+v", create)
				}
				slice := create.Object.(*discoveryv1.EndpointSlice) //nolint:forcetypeassert // by its resource
				return true, slice, tt.judge(slice)
			})
			saw, err := f.policy(t.Context())
			agrees(t, tt.want, saw, err)
		})
	}
}

func TestTheFenceDoesNotContainTheAPIServer(t *testing.T) {
	for _, tt := range []struct {
		name, cidr, ports, at, want string
	}{
		{"outside", "10.0.1.0/24", "30000-32767", "10.0.0.1:6443", "ok|outside of it"},
		{"inside, at a port that is never written", "10.0.0.0/16", "30000-32767", "10.0.0.1:6443", "WARN|10.0.0.1|though not at port 6443"},
		{"inside, at a port that may be", "10.0.0.0/16", "1024-65535", "10.0.0.1:6443", "FAIL|10.0.0.1:6443|narrow"},
		{"inside, in IPv6", "fd00::/64", "443", "[fd00::1]:443", "FAIL|[fd00::1]:443"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := ground(t, map[string]string{"SECURED_SUBNET_CIDR": tt.cidr, "ALLOWED_PORTS": tt.ports})
			f.cluster.Host = "https://" + tt.at
			saw, err := f.fence(t.Context())
			agrees(t, tt.want, saw, err)
		})
	}
	f, _ := ground(t, nil)
	f.cluster.Host = "https://nowhere.invalid:6443"
	saw, err := f.fence(t.Context())
	agrees(t, "WARN|cannot be looked up", saw, err)
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
	many := slices.Repeat([]*subscriber.Member{member(subscriber.NotReady, "127.0.0.2")}, fewProbes)
	for _, tt := range []struct {
		name    string
		members []*subscriber.Member
		want    string
	}{
		{"one that listens", []*subscriber.Member{member(subscriber.Ready, "127.0.0.1", "fd00::1")}, "ok|1 of 1"},
		{"one that does not", []*subscriber.Member{member(subscriber.Ready, "127.0.0.2")}, "FAIL|0 of 1|connection refused|targetPort"},
		{"one of two", []*subscriber.Member{member(subscriber.Ready, "127.0.0.2"), member(subscriber.Ready, "127.0.0.1")}, "WARN|1 of 2|127.0.0.2"},
		{"ready ones first, and ten at most", append(slices.Clone(many), member(subscriber.Ready, "127.0.0.1")), "WARN|1 of 10|(1 more were not asked)|and 6 more"},
		{"none", nil, "WARN|no member"},
		{"none of the Service's family", []*subscriber.Member{member(subscriber.Ready, "fd00::1")}, "WARN|no member"},
		{"one that the fence keeps out is not asked", []*subscriber.Member{member(subscriber.Ready, "127.1.0.1"), member(subscriber.Ready, "127.0.0.1")}, "WARN|1 of 1|1 others are outside"},
		{"all are outside", []*subscriber.Member{member(subscriber.Ready, "127.1.0.1")}, "FAIL|all of the 1|SECURED_SUBNET_CIDR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := ground(t, map[string]string{"SECURED_SUBNET_CIDR": "127.0.0.0/24"})
			f.word.Members = tt.members
			f.target = targets.Target{ProbePort: port, Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}}
			saw, err := f.probes(t.Context())
			agrees(t, tt.want, saw, err)
		})
	}
}
