package probe

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func keyFor(t *testing.T, address string, spec Spec) Key {
	t.Helper()
	ap, err := netip.ParseAddrPort(address[strings.LastIndex(address, "/")+1:]) // also accepts the URL of a server
	if err != nil {
		t.Fatal(err)
	}
	return Key{Address: ap.Addr(), Port: ap.Port(), Spec: spec}
}

// closedAddress returns an address that refuses connections.
func closedAddress(t *testing.T) string {
	l := listenTCP(t)
	defer l.Close()
	return l.Addr().String()
}

func listenTCP(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestModesRoundTripAsText(t *testing.T) {
	for _, m := range Modes() {
		if back, err := ParseMode(m.String()); err != nil || back != m {
			t.Errorf("%v does not round-trip", m)
		}
	}
	if _, err := ParseMode("icmp"); err == nil || !strings.Contains(err.Error(), "off, tcp, http, https, grpc") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestValidatesSpecs(t *testing.T) {
	for _, bad := range []Spec{
		{Mode: 9},
		{Mode: HTTP, Path: "healthz"},
		{Mode: HTTP, Path: "http://other.example/"},
		{Mode: HTTP, Path: "/" + strings.Repeat("x", maxPathLength)},
		{Mode: HTTP, Host: "two words"},
		{Mode: HTTPS, Host: "web.example/path"},
		{Mode: HTTPS, Host: "web.example\r\nX-More: 1"},
		{Mode: HTTPS, Host: "web.example:https"},
		{Mode: GRPC, Host: "höst.example"},
		{Mode: GRPC, Service: "two words"},
		{Mode: GRPC, Service: "\x00"},
		{Mode: GRPC, Service: strings.Repeat("x", maxServiceLength+1)},
		{Mode: TCP, Interval: -1},
		{Mode: TCP, Timeout: -1},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
	for _, good := range []Spec{
		{Mode: HTTP, Path: "/healthz?a=b", Host: "web.example:8080"},
		{Mode: HTTPS, Host: "10.0.0.1"},
		{Mode: HTTPS, Host: "[2001:db8::1]:8443"},
		{Mode: GRPC, Service: "shop.v1.Orders", Host: "shop_1.example", TLS: true},
	} {
		if err := good.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestUsedSpecFieldsDistinguishKeys(t *testing.T) {
	for _, row := range []struct{ one, other Spec }{
		{Spec{Mode: TCP}, Spec{Mode: HTTP}},
		{Spec{Mode: TCP}, Spec{Mode: TCP, Timeout: time.Minute}},
		{Spec{Mode: TCP}, Spec{Mode: TCP, Interval: time.Minute}},
		{Spec{Mode: HTTP}, Spec{Mode: HTTP, Path: "/healthz"}},
		{Spec{Mode: HTTPS}, Spec{Mode: HTTPS, Host: "web.example"}},
		{Spec{Mode: GRPC}, Spec{Mode: GRPC, Service: "shop.v1.Orders"}},
		{Spec{Mode: GRPC}, Spec{Mode: GRPC, Host: "web.example"}},
		{Spec{Mode: GRPC}, Spec{Mode: GRPC, TLS: true}},
	} {
		one, other := Key{Spec: row.one}.Canonical(), Key{Spec: row.other}.Canonical()
		if one == other {
			t.Errorf("%+v and %+v are equal", row.one, row.other)
		}
	}
}
