package hostile

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/load"
)

// enemyBound is what all that one client does may have the inventory hold, in MB: its connections
// with what docs/design/limits.md grants each of them, and garbage that has not been collected yet.
const enemyBound = 64

// attack is what a client with a valid certificate can do besides asking. It goes on until ctx is done.
type attack struct {
	name   string
	does   func(context.Context, *inventory, *rand.Rand)
	silent bool // it makes no call that could be counted
}

var attacks = []attack{
	{name: "cursors, digests and requests of nonsense", does: func(ctx context.Context, i *inventory, r *rand.Rand) {
		conn := i.dial(enemy, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
		for ctx.Err() == nil {
			b := make([]byte, r.IntN(2000))
			for n := range b {
				b[n] = byte(r.Uint32())
			}
			var request any = b
			if r.IntN(2) == 0 {
				request = &inventoryv1.WatchNodesRequest{
					Cursor: &inventoryv1.Cursor{Epoch: strings.Repeat("e", r.IntN(100)), Revision: r.Uint64()},
					Digest: make([]byte, r.IntN(20)),
				}
			}
			call(ctx, conn, request, 20*time.Millisecond)
		}
	}},
	{name: "requests of a megabyte", does: func(ctx context.Context, i *inventory, _ *rand.Rand) {
		conn := i.dial(enemy, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
		for ctx.Err() == nil {
			call(ctx, conn, make([]byte, 1<<20), 100*time.Millisecond)
		}
	}},
	{name: "headers of 15 KB", does: func(ctx context.Context, i *inventory, _ *rand.Rand) {
		conn := i.dial(enemy)
		for ctx.Err() == nil {
			call(metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat("y", 15<<10)), conn, &inventoryv1.WatchNodesRequest{},
				50*time.Millisecond)
		}
	}},
	{name: "streams that are never read", does: func(ctx context.Context, i *inventory, _ *rand.Rand) {
		for range 64 {
			conn := i.dial(enemy, grpc.WithStaticStreamWindowSize(64<<10))
			for range 2 {
				inventoryv1.NewInventoryServiceClient(conn).WatchNodes(ctx, &inventoryv1.WatchNodesRequest{})
			}
		}
		<-ctx.Done()
	}},
	{name: "connections that come and go", silent: true, does: func(ctx context.Context, i *inventory, _ *rand.Rand) {
		cfg := i.as(enemy)
		for ctx.Err() == nil {
			if conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", i.Address()); err == nil {
				conn.Close()
			}
		}
	}},
	{name: "what only operators may ask, again and again", does: func(ctx context.Context, i *inventory, _ *rand.Rand) {
		reports := inventoryv1.NewInventoryReportServiceClient(i.dial(enemy))
		for ctx.Err() == nil {
			_, err := reports.GetReport(ctx, &reportv1.GetReportRequest{})
			switch status.Code(err) {
			case codes.PermissionDenied, codes.ResourceExhausted, codes.Canceled:
			default:
				i.t.Errorf("a subscriber is answered %v", err)
			}
		}
	}},
	{name: "streams that are reset as soon as they are opened", does: rapidResets},
}

// call begins a stream, and leaves it after a while.
func call(ctx context.Context, conn *grpc.ClientConn, request any, after time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, inventoryv1.InventoryService_WatchNodes_FullMethodName)
	if err != nil {
		return
	}
	if stream.SendMsg(request) == nil && stream.CloseSend() == nil {
		stream.RecvMsg(new([]byte))
	}
	<-ctx.Done()
}

func rapidResets(ctx context.Context, i *inventory, _ *rand.Rand) {
	load.ResetRapidly(ctx, i.Address(), i.as(enemy), 1, 0)
}

func TestAHostileSubscriberIsFeltByItselfAlone(t *testing.T) {
	i := startInventory(t, 1000)
	crowd, err := load.NewCrowd(i.Server, 1, 1000)
	i.must(err)
	_, err = crowd.Come(t.Context())
	i.must(err)
	defer func() { i.must(crowd.Leave()) }()
	calm := i.changes(crowd)
	for n, attack := range append(slices.Clip(attacks), frameFloods...) {
		t.Run(attack.name, func(t *testing.T) {
			i.t = t
			before, refused := i.held(), i.metric("slicefeed_inventory_limit_rejections_total")
			handled := i.metric("slicefeed_inventory_grpc_server_handled_total") + i.metric("slicefeed_inventory_streams_ended_total")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var attacking sync.WaitGroup
			attacking.Go(func() { attack.does(ctx, i, rand.New(rand.NewPCG(uint64(n), 1))) })
			began, most := time.Now(), 0.0
			during := i.changes(crowd)
			for most == 0 || time.Since(began) < attackLasts {
				most = max(most, i.held())
			}
			cancel()
			attacking.Wait()
			seen := i.metric(
				"slicefeed_inventory_grpc_server_handled_total",
			) + i.metric(
				"slicefeed_inventory_streams_ended_total",
			) - handled
			if seen == 0 && !attack.silent {
				t.Error("it is counted nowhere")
			}
			t.Logf("a change takes %s in peace and %s meanwhile (%.2f x); %+.1f MB held at most; %v refused, %v calls handled",
				calm.Round(time.Millisecond), during.Round(time.Millisecond), during.Seconds()/calm.Seconds(), most-before,
				i.metric("slicefeed_inventory_limit_rejections_total")-refused,
				seen)
			if most-before > enemyBound {
				t.Errorf("it has the inventory hold %.0f MB more, and at most %d MB are the bound", most-before, enemyBound)
			}
			if during > 5*calm+2*time.Second { // the attack and the inventory share the processors
				t.Errorf("a change takes %s, and took %s in peace", during, calm)
			}
		})
	}
	i.t = t
}

const attackLasts = 1500 * time.Millisecond

// changes makes a few, and returns the median of how long it took until the honest client had them.
func (i *inventory) changes(honest *load.Crowd) time.Duration {
	i.t.Helper()
	var took []time.Duration
	for n := range 5 {
		a := honest.ExpectChange()
		at, err := i.fleet.Flip(n)
		i.must(err)
		times, err := honest.Wait(i.t.Context(), a, at, 30*time.Second)
		i.must(err)
		took = append(took, times.Last())
	}
	return figures.Percentile(took, 50)
}
