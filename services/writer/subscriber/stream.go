package subscriber

import (
	"context"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"google.golang.org/grpc"
)

// nodeStream is a call to WatchNodes, received by its own goroutine.
type nodeStream struct {
	cancel   context.CancelFunc
	messages <-chan *inventoryv1.WatchNodesResponse // closed when the call ends
	err      error                                  // why the call ended; valid once messages is closed
}

// openStream calls WatchNodes with the mirror's cursor and digest (rules R5, R6, R7).
func (s *Subscriber) openStream(ctx context.Context, conn Conn) *nodeStream {
	req := &inventoryv1.WatchNodesRequest{ConfirmObservations: s.confirmObservations()}
	if cursor, digest, ok := s.mirror.ResumePoint(); ok {
		req.Cursor = &inventoryv1.Cursor{Epoch: cursor.Epoch, Revision: cursor.Revision}
		req.Digest = digest[:]
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

// receiveMessages passes on messages until the stream ends. It does not read ahead.
func receiveMessages(ctx context.Context, conn grpc.ClientConnInterface, req *inventoryv1.WatchNodesRequest, to chan<- *inventoryv1.WatchNodesResponse) error {
	// Without WaitForReady the call fails with the first connection attempt, instead of waiting for the
	// channel's backoff.
	call, err := inventoryv1.NewInventoryServiceClient(conn).WatchNodes(ctx, req, grpc.ForceCodecV2(newLimitedCodec()))
	if err != nil {
		return err
	}
	for {
		m, err := call.Recv()
		if err != nil {
			return err
		}
		tracepoint.Mark(tracepoint.DeltaReceived)
		select {
		case to <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close ends the stream and waits for its goroutine. It may be called twice.
func (st *nodeStream) close() {
	st.cancel()
	for range st.messages {
	}
}
