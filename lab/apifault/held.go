package apifault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// HeldWrite is a write of an EndpointSlice that the proxy keeps back, as a slow network or a slow API
// server does. It goes on unchanged, whether or not its client still waits.
type HeldWrite struct {
	// Method and Slice are those of the request. They may be read once Arrived is closed.
	Method string
	Slice  *discoveryv1.EndpointSlice // nil: the request deletes

	arrived, released chan struct{}
	status            chan int
}

// HoldNextWrite keeps the next write of an EndpointSlice back, and that one alone.
func (p *Proxy) HoldNextWrite() *HeldWrite {
	held := &HeldWrite{arrived: make(chan struct{}), released: make(chan struct{}), status: make(chan int, 1)}
	p.change(func() { p.holdNext = held })
	return held
}

// Arrived is closed when the write has reached the proxy.
func (h *HeldWrite) Arrived() <-chan struct{} { return h.arrived }

// Release lets the write go on, and returns the HTTP status of the API server's answer. It may be called once.
func (h *HeldWrite) Release(ctx context.Context) (status int, err error) {
	close(h.released)
	select {
	case status = <-h.status:
		if status == 0 {
			err = errors.New("release a held write: the API server gave no answer")
		}
		return status, err
	case <-ctx.Done():
		return 0, fmt.Errorf("release a held write: %w", context.Cause(ctx))
	}
}

// keepBack waits until the write is released. It returns the request as it goes on then, without the
// connection of its client; nil if the client never sent all of it, or the proxy was closed.
func (h *HeldWrite) keepBack(r *http.Request, closed <-chan struct{}) *http.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	h.Method = r.Method
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		h.Slice, _ = object.(*discoveryv1.EndpointSlice)
	}
	close(h.arrived)
	select {
	case <-h.released:
	case <-closed:
		return nil
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}
