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

// The SDK reads a complete response and then decodes it. It holds both, and its types take several times
// the size of the text. Measured with v6.3.11 as the peak of the process (VmHWM): 375 MB for a page of
// 63 MiB of usual servers, 3.5 GB (2.2 GB live) for one of empty servers, which take 3 bytes each.
// Therefore the transport extracts the servers of a page one by one while it is read, and leaves the rest
// to the SDK.

// Limits of the parts of a response that are held in memory, in bytes.
const (
	maxServerBytes = 256 << 10 // of one server; real ones have about 10 KB
	maxOtherBytes  = 1 << 20   // of a response that is not a page of servers, and of the rest of a page
)

var errNotJSON = errors.New("unexpected end of JSON input")

// serverSink receives a server of a page. Its error ends the reading.
type serverSink func(ionoscloud.Server) error

type serverSinkKey struct{}

// withServerSink returns a context in which the transport passes the servers of a page to the sink.
func withServerSink(ctx context.Context, sink serverSink) context.Context {
	return context.WithValue(ctx, serverSinkKey{}, sink)
}

// limitBody limits the body of a response, and extracts the servers of a page from it.
func limitBody(r *http.Response, limit int64) io.ReadCloser {
	sink, isPage := r.Request.Context().Value(serverSinkKey{}).(serverSink)
	if !isPage || r.StatusCode >= 300 || !strings.Contains(strings.ToLower(r.Header.Get("Content-Type")), "json") {
		limit = min(limit, maxOtherBytes)
		return &limitedBody{ReadCloser: r.Body, remaining: limit, limit: limit}
	}
	return &pageBody{ReadCloser: &limitedBody{ReadCloser: r.Body, remaining: limit, limit: limit}, sink: sink}
}

// pageBody is the body of a page. Reading it returns the page without its servers.
type pageBody struct {
	io.ReadCloser

	sink serverSink
	rest *bytes.Reader // nil: not read yet
}

func (b *pageBody) Read(p []byte) (int, error) {
	if b.rest == nil {
		rest, err := extractServers(b.ReadCloser, b.sink)
		if err != nil {
			return 0, err
		}
		b.rest = bytes.NewReader(rest)
	}
	return b.rest.Read(p)
}

// extractServers reads a complete page, passes its servers to the sink and returns the rest.
func extractServers(body io.Reader, sink serverSink) (rest []byte, err error) {
	p := &pageReader{input: &limitedInput{Reader: body}, sink: sink}
	p.decoder = json.NewDecoder(p.input)
	err = p.readPage()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if p.decoder.InputOffset() == 0 && p.input.read == 0 {
			return nil, nil // the SDK accepts an empty response, and checkIdentity then rejects it
		}
		err = fmt.Errorf("%w (%w)", errNotJSON, err)
	}
	if err != nil {
		return nil, err
	}
	return p.rest.Bytes(), nil
}

type pageReader struct {
	input     *limitedInput
	decoder   *json.Decoder
	sink      serverSink
	rest      bytes.Buffer
	itemsRead bool
}

func (p *pageReader) readPage() error {
	p.limitNext(maxServerBytes)
	switch token, err := p.decoder.Token(); {
	case err != nil:
		return err
	case token == nil:
		p.rest.WriteString("null")
		return p.expectEnd()
	case token != json.Delim('{'):
		return fmt.Errorf("response is not an object but %.40v", token)
	}
	p.rest.WriteByte('{')
	for p.hasMore() {
		token, err := p.decoder.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // a key is always a string
		if err := p.readMember(name); err != nil {
			return err
		}
	}
	if err := p.expectDelim('}'); err != nil {
		return err
	}
	p.rest.WriteByte('}')
	return p.expectEnd()
}

func (p *pageReader) expectEnd() error {
	p.limitNext(maxOtherBytes)
	token, err := p.decoder.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("trailing data after the response: %w", err)
	}
	return fmt.Errorf("trailing data after the response: %.40v", token)
}

// readMember reads a member of the page. Like encoding/json, it ignores the case of names.
func (p *pageReader) readMember(name string) error {
	if p.rest.Len() > 1 {
		p.rest.WriteByte(',')
	}
	key, err := json.Marshal(name)
	if err != nil {
		return err
	}
	p.rest.Write(append(key, ':'))
	if strings.EqualFold(name, "items") {
		return p.readItems()
	}
	p.limitNext(maxOtherBytes)
	var value json.RawMessage
	if err := p.decoder.Decode(&value); err != nil {
		return err
	}
	if p.rest.Write(value); p.rest.Len() > maxOtherBytes {
		return fmt.Errorf("response without its servers is longer than %d bytes", maxOtherBytes)
	}
	return nil
}

func (p *pageReader) readItems() error {
	if p.itemsRead {
		return errors.New("response has items twice")
	}
	p.itemsRead = true
	p.limitNext(maxServerBytes)
	token, err := p.decoder.Token()
	switch {
	case err != nil:
		return err
	case token == nil:
		p.rest.WriteString("null")
		return nil
	case token != json.Delim('['):
		return fmt.Errorf("items are not a list but %.40v", token)
	}
	for p.hasMore() {
		p.limitNext(maxServerBytes)
		var s ionoscloud.Server
		if err := p.decoder.Decode(&s); err != nil {
			return err
		}
		if err := p.sink(s); err != nil {
			return err
		}
	}
	p.rest.WriteString("[]")
	return p.expectDelim(']')
}

func (p *pageReader) expectDelim(want json.Delim) error {
	p.limitNext(maxServerBytes)
	token, err := p.decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("unexpected %.40v, want %s", token, want)
	}
	return err
}

func (p *pageReader) hasMore() bool {
	p.limitNext(maxServerBytes)
	return p.decoder.More()
}

// limitNext limits how much is read, and thus held, for the next token or value.
func (p *pageReader) limitNext(maxBytes int64) {
	p.input.partLimit, p.input.limit = maxBytes, p.decoder.InputOffset()+maxBytes
}

// limitedInput returns an error when it is read beyond a position.
type limitedInput struct {
	io.Reader

	read      int64 // bytes read so far
	limit     int64 // position up to which may be read
	partLimit int64 // bytes that the current part may have; for the error
}

func (i *limitedInput) Read(p []byte) (int, error) {
	if i.read >= i.limit {
		return 0, fmt.Errorf("part of the response is longer than %d bytes", i.partLimit)
	}
	n, err := i.Reader.Read(p[:min(int64(len(p)), i.limit-i.read)])
	i.read += int64(n)
	return n, err
}
