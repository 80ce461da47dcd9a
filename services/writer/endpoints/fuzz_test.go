package endpoints

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/stream"
)

// Every request is rejected, or answered with a complete set.
func FuzzWatchEndpointsRequest(f *testing.F) {
	seed := func(r *writerv1.WatchEndpointsRequest) {
		text, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	store := NewStore("instance")
	store.Put(readyTarget("a", 3))
	store.Put(readyTarget("b", 2))
	store.MarkSynced()
	server := NewServer(ServerConfig{Store: store, Health: health.NewServer(), Registerer: prometheus.NewRegistry()})
	at := store.Feed(false).Since(nil, nil).At
	store.Put(readyTarget("b", 1))
	held := &writerv1.Cursor{Epoch: at.Epoch, Revision: at.Revision}
	seed(allServices())
	seed(oneService("a"))
	seed(oneService(""))
	seed(&writerv1.WatchEndpointsRequest{Cursor: held, Digest: at.Digest[:]})
	seed(&writerv1.WatchEndpointsRequest{Cursor: held, Digest: at.Digest[:], GroupByPort: true})
	seed(
		&writerv1.WatchEndpointsRequest{
			Cursor:   held,
			Digest:   make([]byte, 16),
			Services: []*writerv1.ServiceSelector{{Namespace: "/", Service: "/"}},
		},
	)
	seed(&writerv1.WatchEndpointsRequest{Cursor: &writerv1.Cursor{Epoch: at.Epoch, Revision: 1<<64 - 1}, Digest: at.Digest[:]})
	f.Fuzz(func(t *testing.T, text []byte) {
		var req writerv1.WatchEndpointsRequest
		if proto.Unmarshal(text, &req) != nil {
			return
		}
		r, err := server.newReader(&req)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		_, messages := r.Next()
		n := 0
		for message := range messages {
			n++
			m := message.Content
			if size := proto.Size(m); size > contract.MaxMessageSize {
				t.Fatalf("a message of %d bytes", size)
			}
			for _, e := range m.GetUpserts() {
				if problem := findViolation(e); problem != "" {
					t.Fatalf("%v: %s", e, problem)
				}
			}
		}
		if n == 0 {
			t.Fatal("no answer")
		}
		r.Sent()
		if kind, _ := r.Next(); kind != stream.Heartbeat {
			t.Fatalf("it lacks something: %s", kind)
		}
	})
}
