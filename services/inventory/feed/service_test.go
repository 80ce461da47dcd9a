package feed

import (
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func TestOnlyTheFirstMessageOfAStreamNamesItsService(t *testing.T) {
	published := func(nodes int) func(*Set) {
		return func(s *Set) { apply(s, nodeChanges(nodes)); s.Publish(publishedStatus(1), nil) }
	}
	for name, prepare := range map[string]func(*Set){
		"a status without a set": func(s *Set) { s.Publish(roster.Status{}, nil) },
		"an empty reset":         published(0),
		"a reset of one message": published(1),
		"a reset of chunks":      published(2*contract.MaxChunk + 1),
	} {
		t.Run(name, func(t *testing.T) {
			set := NewSet("shop/web", "epoch")
			prepare(set)
			for range 2 { // the second reader shares the messages of the first
				r := set.NewReader(nil, nil, 1)
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
	s := &Server{readers: map[*Reader]Subscriber{}}
	for _, service := range []string{"shop/web", "shop/api", "shop/web"} {
		r := NewSet(service, "epoch").NewReader(nil, nil, 1)
		s.register(r, Subscriber{Service: service})
	}
	var services []string
	for _, sub := range s.Subscribers() {
		services = append(services, sub.Service)
	}
	checkEqual(t, "subscribers", services, []string{"shop/api", "shop/web", "shop/web"})
}
