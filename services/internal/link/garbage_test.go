package link

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"
)

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// http2Frame encodes a frame of HTTP/2.
func http2Frame(kind, flags byte, stream uint32, payload string) string {
	head := make([]byte, 9)
	binary.BigEndian.PutUint32(head, uint32(len(payload))<<8|uint32(kind))
	head[4] = flags
	binary.BigEndian.PutUint32(head[5:], stream)
	return string(head) + payload
}

const (
	frameData, frameHeaders, frameReset, frameSettings, frameContinuation = 0, 1, 3, 4, 9
	endHeaders                                                            = 4
)

var settingsFrame = http2Frame(frameSettings, 0, 0, "")

// hpackHeader encodes a header in HPACK, without index and Huffman code.
func hpackHeader(name, value string) string {
	text := func(s string) string {
		if len(s) < 127 {
			return string([]byte{byte(len(s))}) + s
		}
		return string(binary.AppendUvarint([]byte{127}, uint64(len(s)-127))) + s // HPACK integers have the same encoding
	}
	return "\x00" + text(name) + text(value)
}

var requestHeaders = hpackHeader(":method", "POST") + hpackHeader(":scheme", "https") + hpackHeader(":path", "/test.Probe/Who") +
	hpackHeader(":authority", "x") + hpackHeader("te", "trailers") + hpackHeader("content-type", "application/grpc")

func randomBytes(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}

// garbageCases are ways to connect, and what the client then sends.
var garbageCases = []struct {
	name  string
	plain bool                              // without TLS
	tls   func(t *testing.T, c *tls.Config) // changes a good handshake
	sends string
	ends  bool   // ends the connection, not only the call
	reply string // contained in the server's reply
}{
	{name: "bytes that are not TLS", plain: true, sends: randomBytes(1000), ends: true},
	{name: "a TLS record with an excessive length", plain: true, sends: "\x16\x03\x01\xff\xff" + randomBytes(100), ends: true},
	{name: "an invalid client hello", plain: true, sends: "\x16\x03\x01\x00\x64" + randomBytes(100), ends: true},
	{name: "HTTP/1 without TLS", plain: true, sends: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ends: true},
	{name: "HTTP/2 without TLS", plain: true, sends: http2Preface + settingsFrame, ends: true},
	{name: "another application protocol", tls: func(_ *testing.T, c *tls.Config) { c.NextProtos = []string{"other"} }, ends: true},
	{
		name:  "the application protocol of HTTP/1",
		tls:   func(_ *testing.T, c *tls.Config) { c.NextProtos = []string{"http/1.1"} },
		sends: "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		ends:  true,
	},
	{name: "TLS 1.2", tls: func(_ *testing.T, c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, ends: true},
	{name: "no client certificate", tls: func(_ *testing.T, c *tls.Config) { c.Certificates = nil }, ends: true},
	{name: "HTTP/1 after a good handshake", sends: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ends: true},
	{name: "random bytes after a good handshake", sends: randomBytes(1000), ends: true},
	{name: "random bytes after the preface", sends: http2Preface + randomBytes(1000), ends: true},
	{name: "a frame that is too large", sends: http2Preface + settingsFrame + "\xff\xff\xff\x00\x00\x00\x00\x00\x01", ends: true},
	{name: "data for no stream", sends: http2Preface + settingsFrame + http2Frame(frameData, 0, 0, "x"), ends: true},
	{
		name:  "headers that cannot be decoded",
		sends: http2Preface + settingsFrame + http2Frame(frameHeaders, endHeaders, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		ends:  true,
	},
	{
		name:  "a stream ID reserved for the server",
		sends: http2Preface + settingsFrame + http2Frame(frameHeaders, endHeaders, 2, requestHeaders),
		ends:  true,
	},
	{name: "a header block without an end", sends: http2Preface + settingsFrame + http2Frame(frameHeaders, 0, 1, requestHeaders) +
		strings.Repeat(http2Frame(frameContinuation, 0, 1, hpackHeader("x", randomBytes(1000))), 100), ends: true},
	{
		name: "a call that is not gRPC",
		sends: http2Preface + settingsFrame + http2Frame(
			frameHeaders,
			endHeaders,
			1,
			hpackHeader(":method", "GET")+hpackHeader(":scheme", "https")+hpackHeader(":path", "/"),
		),
	},
	{name: "headers that are too large", sends: http2Preface + settingsFrame + http2Frame(frameHeaders, 0, 1, requestHeaders) +
		http2Frame(frameContinuation, 0, 1, hpackHeader("x", strings.Repeat("x", 15<<10))) +
		http2Frame(
			frameContinuation,
			endHeaders,
			1,
			hpackHeader("y", strings.Repeat("y", 15<<10)),
		), reply: http2Frame(frameReset, 0, 1, "\x00\x00\x00\x06")},
	{name: "a header that is too large", sends: http2Preface + settingsFrame + http2Frame(frameHeaders, 0, 1, requestHeaders) +
		http2Frame(frameContinuation, endHeaders, 1, hpackHeader("x", strings.Repeat("x", 16<<10))), ends: true},
	{name: "headers after those that are too many", sends: http2Preface + settingsFrame + http2Frame(frameHeaders, 0, 1, requestHeaders) +
		http2Frame(frameContinuation, 0, 1, hpackHeader("x", strings.Repeat("x", 15<<10))) +
		http2Frame(frameContinuation, 0, 1, hpackHeader("y", strings.Repeat("y", 15<<10))) +
		http2Frame(frameContinuation, endHeaders, 1, hpackHeader("z", "z")), ends: true},
	{
		name: "a request that is too large",
		sends: http2Preface + settingsFrame + http2Frame(
			frameHeaders,
			endHeaders,
			1,
			requestHeaders,
		) + http2Frame(
			frameData,
			1,
			1,
			"\x00\x7f\xff\xff\xff"+randomBytes(1000),
		),
	},
	{
		name: "a request that is not a message",
		sends: http2Preface + settingsFrame + http2Frame(
			frameHeaders,
			endHeaders,
			1,
			requestHeaders,
		) + http2Frame(
			frameData,
			1,
			1,
			"\x00\x00\x00\x00\x10"+strings.Repeat("\xff", 16),
		),
	},
}

const pingFrame = "\x00\x00\x08\x06\x00\x00\x00\x00\x00????????"

// Garbage ends only its connection, or only its call. Another client's stream, opened before, continues.
func TestGarbageEndsOnlyItsConnection(t *testing.T) {
	r := newTestLink(t, serverCert)
	pair := r.clientCert(t, writerCert)
	honest := r.dial(t, operatorCert, serverURI)
	live := openWatch(t, honest)
	for _, c := range garbageCases {
		t.Run(c.name, func(t *testing.T) {
			conn := must(net.Dial("tcp", r.address))(t)
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			if !c.plain {
				cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}}
				if c.tls != nil {
					c.tls(t, cfg)
				}
				conn = tls.Client(conn, cfg)
			}
			io.WriteString(conn, c.sends) // reading returns its error
			if !c.ends {
				io.WriteString(conn, pingFrame) // the server replies to it after it has handled everything before
			}
			reply := readReply(t, conn, c.ends)
			if !c.ends && !strings.Contains(reply, "????????") {
				t.Errorf("connection ended with the call: %q", reply)
			}
			if !strings.Contains(reply, c.reply) {
				t.Errorf("reply %q does not contain %q", reply, c.reply)
			}
			if _, err := callProbe(t, honest, "Who", ""); err != nil {
				t.Errorf("another client is affected: %v", err)
			}
		})
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := live.RecvMsg(new(emptypb.Empty)); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("another client's stream ended before the server stopped: %v", err)
	}
}

// readReply reads until the connection ends, or until the reply to a ping.
func readReply(t *testing.T, conn net.Conn, untilEnd bool) string {
	t.Helper()
	var reply strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := conn.Read(b)
		reply.Write(b[:n])
		if isTimeout(err) {
			t.Fatalf("connection stays open after %q", reply.String())
		}
		if err != nil || !untilEnd && strings.Contains(reply.String(), "????????") {
			return reply.String()
		}
	}
}
