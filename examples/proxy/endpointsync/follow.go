package endpointsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

// The delays of rule R14.
const (
	minDelay          = 500 * time.Millisecond
	firstLimit        = time.Second
	maxDelay          = 4 * time.Second
	maxViolationDelay = 5 * time.Minute
	stableAfter       = 30 * time.Second
)

// Follower keeps a set abreast of a writer. All fields are mandatory.
type Follower struct {
	Client   writerv1.WriterServiceClient
	Services []*writerv1.ServiceSelector // none: all
	Synced   func(*Set)                  // called with each synced state; the set is not to be kept
	Log      *slog.Logger

	set      Set
	failures int // ends of a stream since one was synced for a while
	breaches int // those of them, and later ones, that were for a breach
}

// errSilence ends a stream of which nothing was heard for three heartbeats (rule R9).
var errSilence = errors.New("nothing was heard for three heartbeats")

// Run follows until ctx is done; then its error is nil. It ends earlier only if the server calls
// the request malformed and that has no cursor, since repeating it would not help (rule R14).
func (f *Follower) Run(ctx context.Context) error {
	for {
		synced, err := f.stream(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it ended because it was to
		}
		var breach Breach
		malformed := status.Code(err) == codes.InvalidArgument
		if malformed && f.set.cursor == nil {
			return fmt.Errorf("watch endpoints: %w", err)
		}
		if errors.As(err, &breach) || malformed {
			f.set.Forget()
		}
		wait := f.delay(synced, breach != "", rand.Float64())
		f.Log.Info("the stream has ended, what is held stays in use", "error", err, "again in", wait.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// delay is how long to wait after the end of a stream that was synced for some time; random is
// uniform in [0, 1).
func (f *Follower) delay(synced time.Duration, breach bool, random float64) time.Duration {
	stable := synced >= stableAfter
	if stable {
		f.failures = 0
	}
	limit := min(firstLimit<<min(f.failures, 16), maxDelay)
	f.failures++
	switch {
	case breach:
		limit = max(limit, min(firstLimit<<min(f.breaches, 16), maxViolationDelay))
		f.breaches++
	case stable:
		f.breaches = 0
	}
	return minDelay + time.Duration(random*float64(limit-minDelay))
}

// stream follows one stream to its end, and says for how long it was synced.
func (f *Follower) stream(ctx context.Context) (synced time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	interval := 5 * time.Second
	silence := time.AfterFunc(3*interval, func() { cancel(errSilence) })
	defer silence.Stop()

	req := &writerv1.WatchEndpointsRequest{Services: f.Services}
	f.set.Begin(req)
	stream, err := f.Client.WatchEndpoints(ctx, req)
	if err != nil {
		return 0, err
	}
	var since time.Time
	for first := true; ; first = false {
		m, err := stream.Recv()
		if !since.IsZero() {
			synced = time.Since(since)
		}
		if err != nil {
			if errors.Is(context.Cause(ctx), errSilence) {
				err = errSilence
			}
			return synced, err
		}
		if first && m.GetHeartbeatInterval() != nil {
			interval = min(max(m.GetHeartbeatInterval().AsDuration(), time.Second), time.Minute)
		}
		silence.Reset(3 * interval)
		made, err := f.set.Apply(m)
		if err != nil {
			return synced, err
		}
		if made {
			if since.IsZero() {
				since = time.Now()
			}
			f.Synced(&f.set)
		}
	}
}
