package feed

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"pgregory.net/rapid"
)

type Message = stream.Message[inventoryv1.WatchNodesResponse]

// receiveAll sends a client everything that it does not have yet, and checks every message.
func receiveAll(c *strictClient, r *Reader) error {
	return receiveEach(c, r, func(*Message) {})
}

func receiveEach(c *strictClient, r *Reader, each func(*Message)) error {
	_, messages := r.Next()
	for m := range messages {
		each(m)
		if err := c.receive(m.Content); err != nil {
			return fmt.Errorf("%w; the message is %v", err, m.Content)
		}
	}
	r.Sent()
	return nil
}

// connect starts a stream of a client that shares the set's messages.
func (s *Set) connect(c *strictClient) *Reader {
	from, err := ResumePosition(c.begin())
	if err != nil {
		panic(err)
	}
	return s.NewReader(from, nil, 5*time.Second)
}

// Clients that were disconnected at revision 0 reconnect together with clients that are up to date:
// "nothing changed" and "changed since revision 0" are different messages.
func TestResumeAtRevisionZeroGetsAllUpserts(t *testing.T) {
	for name, order := range map[string][2]bool{"the client behind connects first": {true, false}, "the current client connects first": {false, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := NewSet("", "epoch")
				set.Publish(publishedStatus(1), nil)
				var behind, current strictClient
				for _, c := range []*strictClient{&behind, &current} {
					if err := receiveAll(c, set.connect(c)); err != nil {
						t.Fatal(err)
					}
				}
				apply(set, nodeChanges(5))
				if err := receiveAll(&current, set.connect(&current)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second) // shared messages expire
				for _, isBehind := range order {
					c := &current
					if isBehind {
						c = &behind
					}
					if err := receiveAll(c, set.connect(c)); err != nil {
						t.Fatal(err)
					}
					checkEqual(t, "nodes", len(c.set), 5)
				}
			})
		})
	}
}

// Clients at arbitrary positions call the same server, whose messages they share, at the same moments.
// All messages keep the contract.
func TestSharedMessagesKeepTheContract(t *testing.T) {
	shared := 0
	synctest.Test(t, func(t *testing.T) {
		check := struct{ testing.TB }{t} // without the deadline of t, which no bubble has
		rapid.Check(check, func(t *rapid.T) { shareMessages(t, &shared) })
	})
	if shared == 0 {
		t.Error("no message was shared: the test proves nothing")
	}
}

func shareMessages(t *rapid.T, shared *int) {
	sent := map[*Message]bool{}
	count := func(m *Message) {
		if sent[m] {
			*shared++
		}
		sent[m] = true
	}
	set := NewSet("", "epoch")
	type peer struct {
		strictClient

		reader *Reader // nil: disconnected
	}
	peers := make([]*peer, 12)
	for i := range peers {
		peers[i] = &peer{}
	}
	status, pools := publishedStatus(1), []string{"blue", "red"}
	status.Publishable = rapid.Bool().Draw(t, "published from the start")
	set.Publish(status, nil)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0, 1:
			var changes []roster.Change
			for range rapid.IntRange(1, 6).Draw(t, "changes") {
				i := rapid.IntRange(0, 7).Draw(t, "node")
				c := roster.Change{Name: fmt.Sprintf("n%d", i)}
				if rapid.IntRange(0, 2).Draw(t, "removed or upserted") > 0 {
					c.Node = newNode(c.Name, i, roster.NodeState(rapid.IntRange(1, 3).Draw(t, "state")))
					c.Node.Labels = map[string]string{"pool": rapid.SampledFrom(pools).Draw(t, "pool")}
				}
				changes = append(changes, c)
			}
			apply(set, changes)
		case 2:
			status.Observation++
			status.Publishable = status.Publishable || rapid.Bool().Draw(t, "published")
			set.Publish(status, nil)
		case 3, 4:
			for _, p := range peers {
				if rapid.Bool().Draw(t, "cut off") {
					p.reader = nil
				}
			}
		default: // some clients receive, in this order and at the same moment
			for _, p := range rapid.Permutation(peers).Draw(t, "order")[:rapid.IntRange(1, len(peers)).Draw(t, "readers")] {
				if p.reader == nil {
					p.reader = set.connect(&p.strictClient)
				}
				if err := receiveEach(&p.strictClient, p.reader, count); err != nil {
					t.Fatal(err)
				}
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "pause") == 0 { // long enough for shared messages to expire
			time.Sleep(time.Second)
		}
	}
}
