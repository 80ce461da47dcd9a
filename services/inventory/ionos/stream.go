package ionos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

// The SDK reads a whole answer and then decodes it, which holds both, and its types take several
// times what the text does. Measured with v6.3.11 as the process's peak (VmHWM): 375 MB for a page of
// 63 MiB of usual servers, 3.5 GB (2.2 GB live) for one of empty servers, which take 3 bytes each.
// So the transport takes the servers out of a page while it is read, one at a time, and leaves the
// SDK the rest.

// What may be held of an answer at a time, in bytes.
const (
	mostServer = 256 << 10 // of one server; real ones have about 10 KB
	mostOther  = 1 << 20   // of any answer that is no page of servers, and of the rest of a page
)

var errNotJSON = errors.New("unexpected end of JSON input")

// serverSink takes a server of a page. Its error ends the reading.
type serverSink func(ionoscloud.Server) error

type serverSinkKey struct{}

// withServerSink returns a context in which the servers of a page go to the sink.
func withServerSink(ctx context.Context, sink serverSink) context.Context {
	return context.WithValue(ctx, serverSinkKey{}, sink)
}

// bound limits the body of an answer, and has the servers of a page taken out of it.
func bound(r *http.Response, limit int64) io.ReadCloser {
	sink, isPage := r.Request.Context().Value(serverSinkKey{}).(serverSink)
	if !isPage || r.StatusCode >= 300 || !strings.Contains(strings.ToLower(r.Header.Get("Content-Type")), "json") {
		limit = min(limit, mostOther)
		return &bounded{ReadCloser: r.Body, left: limit, limit: limit}
	}
	return &streamed{ReadCloser: &bounded{ReadCloser: r.Body, left: limit, limit: limit}, sink: sink}
}

// streamed is the body of a page. What is read from it has no servers any more.
type streamed struct {
	io.ReadCloser

	sink serverSink
	rest *bytes.Reader // nil: not read yet
}

func (s *streamed) Read(p []byte) (int, error) {
	if s.rest == nil {
		rest, err := takeServers(s.ReadCloser, s.sink)
		if err != nil {
			return 0, err
		}
		s.rest = bytes.NewReader(rest)
	}
	return s.rest.Read(p)
}

// takeServers reads a page to its end and returns it without its servers, which the sink got.
func takeServers(body io.Reader, sink serverSink) (rest []byte, err error) {
	p := &pageReader{in: &window{Reader: body}, sink: sink}
	p.json = json.NewDecoder(p.in)
	err = p.read()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if p.json.InputOffset() == 0 && p.in.read == 0 {
			return nil, nil // the SDK takes an empty answer for success, and we find it empty
		}
		err = fmt.Errorf("%w (%w)", errNotJSON, err)
	}
	if err != nil {
		return nil, err
	}
	return p.rest.Bytes(), nil
}

type pageReader struct {
	in   *window
	json *json.Decoder
	sink serverSink
	rest bytes.Buffer
	seen bool // the items
}

func (p *pageReader) read() error {
	p.allow(mostServer)
	switch token, err := p.json.Token(); {
	case err != nil:
		return err
	case token == nil:
		p.rest.WriteString("null")
		return p.end()
	case token != json.Delim('{'):
		return fmt.Errorf("the answer is no object but %.40v", token)
	}
	p.rest.WriteByte('{')
	for p.more() {
		token, err := p.json.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // a key is always one
		if err := p.member(name); err != nil {
			return err
		}
	}
	if err := p.expect('}'); err != nil {
		return err
	}
	p.rest.WriteByte('}')
	return p.end()
}

func (p *pageReader) end() error {
	p.allow(mostOther)
	if _, err := p.json.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows the answer: %w", err)
	}
	return nil
}

// member reads one member of the page. Like encoding/json, it does not mind the case of names.
func (p *pageReader) member(name string) error {
	if p.rest.Len() > 1 {
		p.rest.WriteByte(',')
	}
	key, err := json.Marshal(name)
	if err != nil {
		return err
	}
	p.rest.Write(append(key, ':'))
	if strings.EqualFold(name, "items") {
		return p.items()
	}
	p.allow(mostOther)
	var value json.RawMessage
	if err := p.json.Decode(&value); err != nil {
		return err
	}
	if p.rest.Write(value); p.rest.Len() > mostOther {
		return fmt.Errorf("the answer without its servers is longer than %d bytes", mostOther)
	}
	return nil
}

func (p *pageReader) items() error {
	if p.seen {
		return errors.New("the answer has its items twice")
	}
	p.seen = true
	p.allow(mostServer)
	token, err := p.json.Token()
	switch {
	case err != nil:
		return err
	case token == nil:
		p.rest.WriteString("null")
		return nil
	case token != json.Delim('['):
		return fmt.Errorf("the items are no list but %.40v", token)
	}
	for p.more() {
		p.allow(mostServer)
		var s ionoscloud.Server
		if err := p.json.Decode(&s); err != nil {
			return err
		}
		if err := p.sink(s); err != nil {
			return err
		}
	}
	p.rest.WriteString("[]")
	return p.expect(']')
}

func (p *pageReader) expect(want json.Delim) error {
	p.allow(mostServer)
	token, err := p.json.Token()
	if err == nil && token != want {
		err = fmt.Errorf("unexpected %.40v, want %s", token, want)
	}
	return err
}

func (p *pageReader) more() bool {
	p.allow(mostServer)
	return p.json.More()
}

// allow bounds what is read, and so held, for the next token or value.
func (p *pageReader) allow(bytes int64) {
	p.in.size, p.in.until = bytes, p.json.InputOffset()+bytes
}

// window fails when it is read beyond a position.
type window struct {
	io.Reader

	read, until, size int64
}

func (w *window) Read(b []byte) (int, error) {
	if w.read >= w.until {
		return 0, fmt.Errorf("a part of the answer is longer than %d bytes", w.size)
	}
	n, err := w.Reader.Read(b[:min(int64(len(b)), w.until-w.read)])
	w.read += int64(n)
	return n, err
}
