package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource delivers the updates that a test puts in.
type fakeSource struct {
	mu      sync.Mutex
	update  roster.Update
	changed chan struct{}
}

func (s *fakeSource) put(update roster.Update) {
	s.mu.Lock()
	s.update = update
	s.mu.Unlock()
	s.changed <- struct{}{}
}

func (s *fakeSource) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (s *fakeSource) Changed() <-chan struct{}      { return s.changed }

func (s *fakeSource) Take() roster.Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	update := s.update
	update.LastContact = time.Now()
	s.update = roster.Update{}
	return update
}

func (s *fakeSource) Verify(context.Context, roster.Verification) (uint64, error) { return 0, nil }

// logLines returns the lines of a log without time and epoch.
func logLines(t *testing.T, out *bytes.Buffer) (lines []map[string]any) {
	t.Helper()
	for d := json.NewDecoder(out); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		delete(line, "time")
		delete(line, "epoch")
		lines = append(lines, line)
	}
	return lines
}

func TestDebugLogFollowsChange(t *testing.T) {
	node := func(name, address string, state roster.NodeState) roster.Node {
		return roster.Node{Name: name, UID: name, InternalIPs: []netip.Addr{netip.MustParseAddr(address)}, State: state}
	}
	for level, want := range map[string][]map[string]any{
		"info": nil,
		"debug": {
			{"level": "DEBUG", "msg": "update received", "source": "file", "node": "worker-1", "state": "draining"},
			{"level": "DEBUG", "msg": "update received", "source": "file", "node": "worker-2", "removed": true},
			{"level": "DEBUG", "msg": "node resolved", "source": "file", "node": "worker-1", "state": "draining", "address": "10.0.1.11"},
			{"level": "DEBUG", "msg": "node resolved", "source": "file", "node": "worker-2", "removed": true},
			{"level": "DEBUG", "msg": "delta published", "source": "file", "revision": 5.0, "observation": 1.0},
		},
	} {
		t.Run(level, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				log := command.LogSettings{Level: level}.NewLogger(&out).With("source", "file")
				nodes, set := &fakeSource{changed: make(chan struct{})}, feed.NewSet("", "epoch")
				c := New(Config{
					Source:      nodes,
					Set:         set,
					Registerer:  prometheus.NewRegistry(),
					Propagation: NewPropagation(prometheus.NewRegistry()),
					Log:         log,
					Roster: roster.Config{
						CIDRs: []netip.Prefix{
							netip.MustParsePrefix("10.0.1.0/24"),
						},
						Method:          roster.ByRecord,
						ListInterval:    time.Minute,
						ConfirmInterval: time.Second,
					},
				})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- c.Run(ctx) }()
				nodes.put(roster.Update{Changed: []roster.Node{
					node(
						"worker-1",
						"10.0.1.11",
						roster.Ready,
					),
					node("worker-2", "10.0.1.12", roster.Ready),
					node("worker-3", "10.0.1.13", roster.Ready),
				}})
				synctest.Wait()
				if status, _ := set.Status(); !status.Publishable {
					t.Fatalf("not published: %+v", status)
				}
				out.Reset()
				nodes.put(
					roster.Update{
						Changed: []roster.Node{node("worker-1", "10.0.1.11", roster.Draining)},
						Removed: []string{"worker-2"},
					},
				)
				synctest.Wait()
				time.Sleep(time.Second) // virtual time: verifications happen and have no lines
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if d := cmp.Diff(want, logLines(t, &out)); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
			})
		})
	}
}
