package nodeserver

import (
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestOnlyTheFirstMessageOfAStreamNamesItsService(t *testing.T) {
	published := func(nodes int) func(*feed.Stores) {
		return func(s *feed.Stores) { s.Apply(nodeChanges(nodes)); s.SetStatus(publishedStatus(1)) }
	}
	for name, prepare := range map[string]func(*feed.Stores){
		"a status without a set": func(s *feed.Stores) { s.SetStatus(source.Status{}) },
		"an empty reset":         published(0),
		"a reset of one message": published(1),
		"a reset of chunks":      published(2*contract.MaxChunk + 1),
	} {
		t.Run(name, func(t *testing.T) {
			stores := feed.NewStores("epoch")
			prepare(stores)
			set := NewSet(SetConfig{Service: "shop/web", Stores: stores})
			for range 2 { // the second reader shares the messages of the first
				r := NewReader(stores.Acquire(feed.View{}), nil, 1)
				r.set = set
				sent := 0
				for range 2 { // what it needs, and a heartbeat
					_, messages := r.Next()
					for m := range messages {
						want := ""
						if sent == 0 {
							want = "shop/web"
						}
						checkEqual(t, "service", m.Content.GetService(), want)
						sent++
					}
					r.Sent()
				}
				if sent < 2 {
					t.Fatalf("%d messages", sent)
				}
			}
		})
	}
}

func TestSubscribersNameTheirService(t *testing.T) {
	s := &Server{readers: map[*Reader]struct{}{}}
	for _, service := range []string{"shop/web", "shop/api", "shop/web"} {
		r := NewReader(feed.NewStores("epoch").Acquire(feed.View{}), nil, 1)
		r.set = NewSet(SetConfig{Service: service})
		s.register(r)
	}
	var services []string
	for _, sub := range s.Subscribers() {
		services = append(services, sub.Service)
	}
	checkEqual(t, "subscribers", services, []string{"shop/api", "shop/web", "shop/web"})
}
