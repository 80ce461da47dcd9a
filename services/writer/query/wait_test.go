package query

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// healthyTarget is newTarget when everything is written as decided.
func healthyTarget() endpoints.Target {
	t := newTarget()
	t.Input.Current = t.Input.Current[:2]
	t.Input.Current[1].Conditions = verdict.Conditions{}
	t.Decision.Endpoints, t.Decision.Guards = t.Decision.Endpoints[:2], nil
	return t
}

// wait returns an answer that waits for 5 s, and writes its progress.
func wait(progress *bytes.Buffer) func(context.Context, request) error {
	return func(ctx context.Context, q request) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		q.err = progress
		return waitHealthy(ctx, q)
	}
}

func TestWaitSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name     string
		operator bool
		alter    func(*endpoints.Target)
		want     string // in the error; empty: healthy
	}{
		{"healthy", false, func(*endpoints.Target) {}, ""},
		{"rejected", false, func(t *endpoints.Target) {
			t.State, t.Reason, t.Message = endpoints.Rejected, "ServiceHasSelector", "Remove it."
		}, "not healthy after 5s: rejected (ServiceHasSelector: Remove it.)"},
		{"paused", false, func(t *endpoints.Target) { t.State = endpoints.Paused }, "not healthy after 5s: paused (Paused: "},
		{"nothing is ready", false, func(t *endpoints.Target) {
			t.Input.Current, t.Decision.Endpoints = t.Input.Current[1:], t.Decision.Endpoints[1:]
		}, "not healthy after 5s: no ready endpoints"},
		{"not written", false, func(t *endpoints.Target) { t.Input.Current = t.Input.Current[:1] }, "not healthy after 5s: 1 address out of sync"},
		{"another zone", false, func(t *endpoints.Target) { t.Input.Current[0].Zone = "far" }, "not healthy after 5s: 1 address out of sync"},
		{"another hostname", false, func(t *endpoints.Target) { t.Input.Current[0].Hostname = "other" }, "not healthy after 5s: 1 address out of sync"},
		{"other ports", false, func(t *endpoints.Target) {
			t.ManagedBy, t.Slices = "slicefeed-default", []*discoveryv1.EndpointSlice{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: "slicefeed-default"}},
				Ports:      []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(1))}}, Endpoints: make([]discoveryv1.Endpoint, 1),
			}}
		}, "not healthy after 5s: 2 addresses out of sync"},
		{"a guard, for a subscriber", false, func(t *endpoints.Target) { t.Decision.Guards = newTarget().Decision.Guards }, "not healthy after 5s: 1 change held by guards"},
		{"a guard, for an operator", true, func(t *endpoints.Target) { t.Decision.Guards = newTarget().Decision.Guards }, "not healthy after 5s: Guard shrink (source blue) holds 1 address: One stays for now: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var progress bytes.Buffer
			text, err := runCommand(t, func(b *endpoints.Store) {
				target := healthyTarget()
				tt.alter(&target)
				b.Put(target)
				b.MarkSynced()
			}, tt.operator, wait(&progress), "web/shop")
			switch {
			case tt.want == "":
				if err != nil || text != "web/shop is healthy: 1 ready, 0 draining, 1 not ready\n" || progress.Len() > 0 {
					t.Errorf("got %q, %q, %v", text, progress.String(), err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want) || text != "" || strings.Contains(err.Error(), "\x1b"):
				t.Errorf("got %q, %v, want an error with %q", text, err, tt.want)
			case strings.Count(progress.String(), "waiting: ") != 1:
				t.Errorf("progress:\n%s", progress.String())
			}
		})
	}
}

func TestWaitReturnsOnceHealthy(t *testing.T) {
	var progress bytes.Buffer
	text, err := runCommand(t, func(b *endpoints.Store) {
		go func() {
			time.Sleep(1500 * time.Millisecond) // virtual time, as below
			b.MarkSynced()                      // without the Service
			time.Sleep(time.Second)
			b.Put(newTarget())
			time.Sleep(time.Second)
			b.Put(healthyTarget())
		}()
	}, false, wait(&progress), "web/shop")
	if err != nil || !strings.HasPrefix(text, "web/shop is healthy: ") {
		t.Errorf("got %q, %v", text, err)
	}
	for _, want := range []string{"waiting: the writer is not ready: ", "waiting: it is not a target of this writer", "waiting: 1 address out of sync; 1 change held by guards\n"} {
		if strings.Count(progress.String(), want) != 1 {
			t.Errorf("progress lacks %q:\n%s", want, progress.String())
		}
	}
}

// failingWriter fails each call.
type failingWriter struct {
	writerv1.WriterServiceClient

	code codes.Code
}

func (f failingWriter) ListTargets(
	context.Context,
	*writerv1.ListTargetsRequest,
	...grpc.CallOption,
) (*writerv1.ListTargetsResponse, error) {
	return nil, status.Error(f.code, "no")
}

func TestWaitGoesOnWhileTheWriterDoesNotRespond(t *testing.T) {
	for code, want := range map[codes.Code]string{
		codes.Unavailable:      "web/shop is not healthy after 5s: Unavailable: no",
		codes.PermissionDenied: "rpc error: code = PermissionDenied desc = no",
	} {
		var progress bytes.Buffer
		_, err := runCommand(t, func(*endpoints.Store) {}, false, func(ctx context.Context, q request) error {
			q.writer = failingWriter{code: code}
			return wait(&progress)(ctx, q)
		}, "web/shop")
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, err := runCommand(t, func(*endpoints.Store) {}, false, func(ctx context.Context, q request) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return wait(&bytes.Buffer{})(ctx, q)
	}, "web/shop")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
