package ionos

import (
	"bytes"
	"cmp"
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
	maxPartBytes  = 256 << 10 // of one server, which has about 10 KB, and of the rest of its page
	maxOtherBytes = 1 << 20   // of a response that is not a page of servers
)

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
		return http.MaxBytesReader(nil, r.Body, min(limit, maxOtherBytes))
	}
	return &pageBody{ReadCloser: http.MaxBytesReader(nil, r.Body, limit), sink: sink}
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
	p := &pageReader{input: io.LimitedReader{R: body}, sink: sink, rest: map[string]json.RawMessage{}}
	p.decoder = json.NewDecoder(&p.input)
	err = p.readPage()
	switch {
	case err != nil && p.input.N <= 0:
		return nil, fmt.Errorf("part of the response is longer than %d bytes", maxPartBytes)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("unexpected end of JSON input (%w)", err)
	case err != nil:
		return nil, err
	}
	return json.Marshal(p.rest)
}

type pageReader struct {
	input   io.LimitedReader // up to the limit of the part that is read now
	decoder *json.Decoder
	sink    serverSink
	rest    map[string]json.RawMessage // members by name in lower case: encoding/json ignores the case
}

// next returns the decoder for one token or value. It limits how much is read, and thus held, for it.
func (p *pageReader) next() *json.Decoder {
	p.input.N = maxPartBytes
	return p.decoder
}

func (p *pageReader) readPage() error {
	if err := p.expectToken(json.Delim('{')); err != nil {
		return err
	}
	restBytes := 0
	for p.next().More() {
		token, err := p.next().Token()
		if err != nil {
			return err
		}
		name := strings.ToLower(token.(string)) // a key is always a string
		if name == "items" {
			if err := p.readItems(); err != nil {
				return err
			}
			continue
		}
		var value json.RawMessage
		if err := p.next().Decode(&value); err != nil {
			return err
		}
		p.rest[name] = value
		if restBytes += len(name) + len(value); restBytes > maxPartBytes {
			return fmt.Errorf("response without its servers is longer than %d bytes", maxPartBytes)
		}
	}
	if err := p.expectToken(json.Delim('}')); err != nil {
		return err
	}
	token, err := p.next().Token()
	if errors.Is(err, io.EOF) && p.input.N > 0 {
		return nil
	}
	return cmp.Or(err, fmt.Errorf("trailing data after the response: %.40v", token))
}

func (p *pageReader) readItems() error {
	if p.rest["items"] != nil {
		return errors.New("response has items twice")
	}
	token, err := p.next().Token()
	switch {
	case err != nil:
		return err
	case token == nil:
		p.rest["items"] = json.RawMessage("null")
		return nil
	case token != json.Delim('['):
		return fmt.Errorf("items are not a list but %.40v", token)
	}
	p.rest["items"] = json.RawMessage("[]")
	for p.next().More() {
		var s ionoscloud.Server
		if err := p.next().Decode(&s); err != nil {
			return err
		}
		if err := p.sink(s); err != nil {
			return err
		}
	}
	return p.expectToken(json.Delim(']'))
}

func (p *pageReader) expectToken(want json.Token) error {
	token, err := p.next().Token()
	if err == nil && token != want {
		err = fmt.Errorf("unexpected %.40v in the response, want %s", token, want)
	}
	return err
}
