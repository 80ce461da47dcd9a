package hostile

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// unlisted has a certificate of the right CA, and is not on the list.
const unlisted = "unlisted.example"

func TestUnlistedClientsAreRefusedBeforeHTTP2(t *testing.T) {
	i := startInventory(t, 10)
	cfg := i.as(unlisted)
	const dials = 64
	closed, answered := 0, 0
	for range dials {
		conn, err := tls.Dial("tcp", i.address, cfg)
		if err != nil {
			closed++
			continue
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		heard, err := io.ReadAll(conn)
		answered += len(heard)
		if err != nil && !isTimeout(err) {
			closed++
		}
		conn.Close()
	}
	if closed != dials || answered != 0 {
		t.Errorf("%d of %d connections were closed, and %d bytes answered; want all and none", closed, dials, answered)
	}
	// The last one is counted a moment after its connection has ended.
	if got := i.metric("slicefeed_inventory_tls_handshake_errors_total"); got < dials-1 {
		t.Errorf("%v refused handshakes are counted, want %d", got, dials)
	}
}

func isTimeout(err error) bool { return os.IsTimeout(err) }

// Each reset stream is counted as a call, begun or refused; one takes thirty bytes and more. So what
// the inventory has counted tells how many bytes it has read.
func TestRapidResetsAreReadAtTheBudgetsRate(t *testing.T) {
	i := startInventory(t, 10)
	const (
		rate, burst = 128 << 10, 512 << 10 // docs/design/limits.md
		stream      = 30                   // bytes: two frame headers, an error code, six header fields
	)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	var attack sync.WaitGroup
	for n := range 16 {
		attack.Go(func() { rapidResets(ctx, i, rand.New(rand.NewPCG(uint64(n), 1))) })
	}
	for time.Since(began) < 2*attackLasts {
		i.metric("slicefeed_inventory_subscribers") // it is answered meanwhile
	}
	handled := i.metric("slicefeed_inventory_grpc_server_started_total")
	most := (burst + rate*time.Since(began).Seconds()) / stream
	cancel()
	attack.Wait()
	t.Logf("%.0f streams were begun, of at most %.0f", handled, most)
	if handled == 0 || handled > most {
		t.Errorf("%.0f streams were begun, and the budget of bytes has room for %.0f", handled, most)
	}
}

func TestConnectionsAboveTheLimitAreClosedOrAnswered(t *testing.T) {
	i := startInventory(t, 10)
	cfg := i.as(enemy)
	const dials, most = 64, 16 + 8 // docs/design/limits.md
	var open []net.Conn
	for range dials {
		conn, err := tls.Dial("tcp", i.address, cfg)
		if err != nil {
			continue
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil { // the first frame of the server
			open = append(open, conn)
		}
	}
	if len(open) != most {
		t.Errorf("%d of %d connections are open, want %d", len(open), dials, most)
	}
	if got := i.metric("slicefeed_inventory_limit_rejections_total", `limit="connections"`); got != dials-16 {
		t.Errorf("%v connections are counted as too many, want %d", got, dials-16)
	}
}
