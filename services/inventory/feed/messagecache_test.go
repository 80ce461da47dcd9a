package feed

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestReadersAtSamePositionShareMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := NewSet("", "epoch")
		apply(set, nodeChanges(1000))
		set.Publish(publishedStatus(1), nil)
		one, other := set.NewReader(nil, nil, time.Second), set.NewReader(nil, nil, time.Second)
		send := func(r *Reader) (sent []*Message) {
			_, messages := r.Next()
			sent = slices.Collect(messages)
			r.Sent()
			return sent
		}
		first := send(one)
		if len(first) < 3 || !slices.Equal(first, send(other)) {
			t.Error("the messages of a reset are not shared")
		}
		apply(set, []roster.Change{{Name: "worker-00003"}})
		if change := send(one); len(change) != 1 || !slices.Equal(change, send(other)) {
			t.Error("the message of a change is not shared")
		}
	})
}

// Readers at different positions need different messages, even if they call at the same moment.
func TestReadersAtDifferentPositionsGetTheirOwn(t *testing.T) {
	changes := nodeChanges(4)
	synctest.Test(t, func(t *testing.T) {
		set := NewSet("", "epoch")
		readers := map[string]*Reader{}
		connect := func(name string) { readers[name] = set.NewReader(nil, nil, 0) }
		names := func(name string) (sent []string) {
			r := readers[name]
			_, messages := r.Next()
			for m := range messages {
				for _, n := range m.Content.GetUpserts() {
					sent = append(sent, n.GetName())
				}
				sent = append(sent, m.Content.GetRemoved()...)
				if m.Content.GetReset_() {
					sent = append(sent, "reset")
				}
				sent = append(sent, fmt.Sprint(m.Content.GetStatus().GetObservation()))
			}
			r.Sent()
			return sent
		}
		connect("before")
		checkEqual(t, "before the first publication", names("before"), []string{"0"})
		set.Publish(publishedStatus(1), nil)
		connect("early")
		checkEqual(t, "early", names("early"), []string{"reset", "1"})
		apply(set, changes[:1])
		connect("late")
		checkEqual(t, "late", names("late"), []string{"worker-00000", "reset", "1"})
		apply(set, changes[1:2])
		checkEqual(t, "early, of two", names("early"), []string{"worker-00000", "worker-00001", "1"})
		checkEqual(t, "late, of one", names("late"), []string{"worker-00001", "1"})
		connect("new")
		checkEqual(t, "new", names("new"), []string{"worker-00000", "worker-00001", "reset", "1"})
		apply(set, changes[2:3])
		checkEqual(t, "early, of another", names("early"), []string{"worker-00002", "1"})
		set.Publish(publishedStatus(2), nil)
		checkEqual(t, "early, of another observation", names("early"), []string{"2"})
	})
}
