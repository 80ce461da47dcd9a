package subscriber

import (
	"context"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"google.golang.org/grpc"
)

// nodeStream is a call to WatchNodes that is read by a goroutine of its own.
type nodeStream struct {
	cancel   context.CancelFunc
	messages <-chan *inventoryv1.WatchNodesResponse // closed at the end
	err      error                                  // why it ended; valid once messages is closed
}

// openStream calls WatchNodes with what the view holds now (rules R5, R6, R7).
func (s *Subscriber) openStream(ctx context.Context, conn Conn, observe bool) *nodeStream {
	req := &inventoryv1.WatchNodesRequest{
		ConfirmObservations: uint32(min(max(s.cfg.ConfirmObservations, 0), inventoryv1.MaxConfirmObservations)),
		ObserveNow:          observe,
	}
	if cursor, digest, ok := s.mirror.ResumePoint(); ok {
		req.Cursor = &inventoryv1.Cursor{Epoch: cursor.Epoch, Revision: cursor.Revision}
		req.Digest = digest[:]
	}
	if observe {
		s.observeRequestedAt = time.Now()
	}
	ctx, cancel := context.WithCancel(ctx)
	messages := make(chan *inventoryv1.WatchNodesResponse)
	st := &nodeStream{cancel: cancel, messages: messages}
	go func() {
		defer close(messages)
		st.err = receiveMessages(ctx, conn, req, messages)
	}()
	return st
}

// receiveMessages hands over messages until the stream ends. Nothing is read ahead of what is taken.
func receiveMessages(ctx context.Context, conn grpc.ClientConnInterface, req *inventoryv1.WatchNodesRequest, to chan<- *inventoryv1.WatchNodesResponse) error {
	// The call fails with the first attempt to connect, rather than wait while the channel backs off.
	call, err := inventoryv1.NewInventoryServiceClient(conn).WatchNodes(ctx, req, grpc.ForceCodecV2(newLimitedCodec()))
	if err != nil {
		return err
	}
	for {
		m, err := call.Recv()
		if err != nil {
			return err
		}
		tracepoint.Log(tracepoint.Received)
		select {
		case to <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close ends the stream and waits for its reader. It may be called twice, and on nil.
func (st *nodeStream) close() {
	if st == nil {
		return
	}
	st.cancel()
	for range st.messages {
	}
}
