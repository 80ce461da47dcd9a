package hostile

import (
	"crypto/tls"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/slicefeed/slicefeed/lab/load"
	"github.com/slicefeed/slicefeed/services/inventory/app"
)

// asInventory has this program be the inventory, whose memory is its own then.
const asInventory = "HOSTILE_AS_INVENTORY"

func TestMain(m *testing.M) {
	if os.Getenv(asInventory) != "" {
		os.Exit(app.Component("test").Main([]string{"serve"}, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// enemy is the client of the inventory that means harm. The honest one is the first of a crowd.
var enemy = load.SubscriberName(1)

// inventory is the real one as a process of its own, with a file of nodes.
type inventory struct {
	*load.Server

	t     *testing.T
	fleet *load.Fleet
}

func startInventory(t *testing.T, nodes int) *inventory {
	t.Helper()
	i := &inventory{t: t}
	site, err := load.NewSite(t.TempDir())
	i.must(err)
	i.fleet, err = load.NewFleet(t.TempDir(), nodes)
	i.must(err)
	i.Server, err = site.InventoryAt(load.Ports{Service: i.free(), Admin: i.free(), Debug: i.free()}, i.fleet, os.Args[0], asInventory+"=1")
	i.must(err)
	t.Cleanup(func() {
		if err := i.Stop(20 * time.Second); err != nil {
			t.Errorf("the inventory did not end in order: %v", err)
		}
	})
	return i
}

func (i *inventory) free() int {
	i.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	i.must(err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (i *inventory) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// as is the TLS of a client.
func (i *inventory) as(name string) *tls.Config {
	i.t.Helper()
	cfg, err := i.As(name)
	i.must(err)
	return cfg
}

func (i *inventory) dial(name string, options ...grpc.DialOption) *grpc.ClientConn {
	i.t.Helper()
	conn, err := grpc.NewClient(
		"passthrough:"+i.Address(),
		append(options, grpc.WithTransportCredentials(credentials.NewTLS(i.as(name))))...)
	i.must(err)
	i.t.Cleanup(func() { conn.Close() })
	return conn
}

func (i *inventory) metric(name string) float64 {
	i.t.Helper()
	all, err := i.Metrics()
	i.must(err)
	return all.Sum(name)
}

// held is the memory of the inventory's objects and stacks, in MB.
func (i *inventory) held() float64 {
	return (i.metric("go_memstats_heap_alloc_bytes") + i.metric("go_memstats_stack_inuse_bytes")) / (1 << 20)
}
