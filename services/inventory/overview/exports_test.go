package overview

import (
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestPageShowsExportedServicesInUse(t *testing.T) {
	web, api := healthyFixture(), healthyFixture()
	api.data.Status.Membership = source.PartStatus{Sync: source.Unsynced, Since: now, Reason: "service shop/api is not exported"}
	api.data.Nodes = nil
	all := map[string]*fixture{"shop/web": web, "shop/api": api}
	subscribers := func() []nodeserver.Subscriber {
		return []nodeserver.Subscriber{
			{Name: "a.example", Service: "shop/api", Since: now},
			{Name: "a.example", Service: "shop/web", Since: now, LastSentAt: now},
		}
	}
	page := ExportsConfig{
		Selector: "export=yes", Services: func() []string { return []string{"shop/api", "shop/web"} }, Subscribers: subscribers,
		Find: func(service string) (*Config, bool) {
			f, found := all[service]
			if !found {
				return nil, false
			}
			c := f.config()
			c.Subscribers = subscribers
			return c, true
		},
	}
	for filter, want := range map[string][]string{
		"":         {"1 Service is not synced", "labels export=yes", "shop/api", "unsynced", "service shop/api is not exported", "shop/web", "2 endpoints, 1 ready", "1 subscribed"},
		"shop/web": {"2 nodes published", "worker-1", "a.example"},
		"shop/x":   {"No client has requested Service shop/x in the last minutes."},
	} {
		text := renderText(t, page.Page(now, filter))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("the page of %q has no %q:\n%s", filter, w, text)
			}
		}
		if filter == "shop/web" && strings.Count(text, "a.example") != 1 {
			t.Errorf("the page of a Service has subscribers of others:\n%s", text)
		}
	}
}
