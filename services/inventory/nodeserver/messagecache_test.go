package nodeserver

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"k8s.io/apimachinery/pkg/labels"
)

func TestReadersAtSamePositionShareMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := feed.NewStores("epoch")
		stores.Apply(nodeChanges(1000))
		stores.SetStatus(publishedStatus(1))
		var set Set
		one, other := NewReader(stores.Acquire(feed.View{}), nil, time.Second), NewReader(stores.Acquire(feed.View{}), nil, time.Second)
		one.set, other.set = &set, &set
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
		stores.Apply([]roster.Change{{Name: "worker-00003"}})
		if change := send(one); len(change) != 1 || !slices.Equal(change, send(other)) {
			t.Error("the message of a change is not shared")
		}
	})
}

// Readers at different positions need different messages, even if they call at the same moment.
func TestReadersAtDifferentPositionsGetTheirOwn(t *testing.T) {
	changes := nodeChanges(4)
	everything, blue := feed.View{}, feed.View{Selector: labels.SelectorFromSet(labels.Set{"pool": "blue"})}
	synctest.Test(t, func(t *testing.T) {
		stores := feed.NewStores("epoch")
		var set Set
		readers := map[string]*Reader{}
		connect := func(name string, view feed.View) {
			r := NewReader(stores.Acquire(view), nil, 0)
			r.set = &set
			readers[name] = r
		}
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
		connect("before", everything)
		checkEqual(t, "before the first publication", names("before"), []string{"0"})
		stores.SetStatus(source.Status{Observation: 1})
		connect("blue", blue) // its store has the same status version as the other one had then
		checkEqual(t, "another view before the first publication", names("blue"), []string{"1"})

		stores.SetStatus(publishedStatus(1))
		connect("early", everything)
		checkEqual(t, "early", names("early"), []string{"reset", "1"})
		stores.Apply(changes[:1])
		connect("late", everything)
		checkEqual(t, "late", names("late"), []string{"worker-00000", "reset", "1"})
		stores.Apply(changes[1:2])
		checkEqual(t, "early, of two", names("early"), []string{"worker-00000", "worker-00001", "1"})
		checkEqual(t, "late, of one", names("late"), []string{"worker-00001", "1"})
		connect("new", everything)
		checkEqual(t, "new", names("new"), []string{"worker-00000", "worker-00001", "reset", "1"})
		green := *changes[2].Node
		green.Labels = map[string]string{"pool": "green"}
		stores.Apply([]roster.Change{{Name: green.Name, Node: &green}})
		checkEqual(t, "blue", names("blue"), []string{"worker-00000", "worker-00001", "reset", "1"})
		checkEqual(t, "early, of another", names("early"), []string{"worker-00002", "1"})
		stores.SetStatus(publishedStatus(2))
		checkEqual(t, "early, of another observation", names("early"), []string{"2"})
	})
}
