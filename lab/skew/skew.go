// Package skew is an in-between that makes each end of a gRPC stream meet a peer of another
// version: it alters the messages on their way, on the wire, as a newer or older peer would have
// sent them. It promises to alter nothing else. It refuses to play either end: both are the real ones.
package skew

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Between passes calls on to a server. Make one with NewBetween, and serve it by a
// grpc.Server with its Options.
type Between struct {
	to *grpc.ClientConn

	mu                sync.Mutex
	requests, answers Alter
	broken            chan struct{}
	altered           int
}

// NewBetween returns an in-between that alters nothing yet.
func NewBetween(to *grpc.ClientConn) *Between {
	return &Between{to: to, broken: make(chan struct{})}
}

// Options are those of a server that passes all calls on.
func (b *Between) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnknownServiceHandler(b.pass), grpc.ForceServerCodecV2(raw{}), grpc.WaitForHandlers(true)}
}

// Alter says what becomes of messages from now on, those of streams under way included.
func (b *Between) Alter(requests, answers Alter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests, b.answers = requests, answers
}

// Break ends all streams, as a lost connection does.
func (b *Between) Break() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.broken)
	b.broken = make(chan struct{})
}

// Altered is the number of messages that left in another form than they came.
func (b *Between) Altered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.altered
}

// pass passes a call on that has one request, as all of ours do.
func (b *Between) pass(_ any, from grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(from)
	method, err := find(path)
	if err != nil {
		return err
	}
	b.mu.Lock()
	broken := b.broken
	b.mu.Unlock()
	ctx, cancel := context.WithCancelCause(from.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-broken:
			cancel(errBroken)
		case <-ctx.Done():
		}
	}()
	err = b.relay(ctx, from, path, method)
	if errors.Is(context.Cause(ctx), errBroken) {
		return errBroken
	}
	return err
}

var errBroken = status.Error(codes.Unavailable, "the in-between has broken the stream")

func (b *Between) relay(ctx context.Context, from grpc.ServerStream, path string, method protoreflect.MethodDescriptor) error {
	var request []byte
	if err := from.RecvMsg(&request); err != nil {
		return err
	}
	to, err := b.to.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path, grpc.ForceCodecV2(raw{}))
	if err != nil {
		return err
	}
	if request, err = b.alter(request, method.Input(), func() Alter { return b.requests }); err != nil {
		return err
	}
	if err := errors.Join(to.SendMsg(&request), to.CloseSend()); err != nil {
		return err
	}
	for {
		var answer []byte
		if err := to.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if answer, err = b.alter(answer, method.Output(), func() Alter { return b.answers }); err != nil {
			return err
		}
		if err := from.SendMsg(&answer); err != nil {
			return err
		}
	}
}

func (b *Between) alter(m []byte, is protoreflect.MessageDescriptor, how func() Alter) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := how()
	altered, err := a.message(is, m)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if string(altered) != string(m) {
		b.altered++
	}
	return altered, nil
}

// find finds what a path such as /package.Service/Method calls.
func find(path string) (protoreflect.MethodDescriptor, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, status.Error(codes.Unimplemented, err.Error())
	}
	if s, ok := d.(protoreflect.ServiceDescriptor); ok {
		if method := s.Methods().ByName(protoreflect.Name(name)); method != nil {
			return method, nil
		}
	}
	return nil, status.Errorf(codes.Unimplemented, "%s is no method", path)
}

// raw leaves messages encoded.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(m any) (mem.BufferSlice, error) {
	b, ok := m.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a message of type %T", m)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, m any) error {
	b, ok := m.(*[]byte)
	if !ok {
		return fmt.Errorf("a message of type %T", m)
	}
	*b = data.Materialize()
	return nil
}
