package pair

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
)

// What only a process or the cloud itself can say, and tells nobody by itself, is asked
// again and again at this pace.
const askEvery = 10 * time.Millisecond

// Until asks until the answer is yes. The error is about what was waited for, and the last that was met meanwhile.
func Until(ctx context.Context, what string, yes func(context.Context) (bool, error)) error {
	var last error
	ended := wait.PollUntilContextCancel(ctx, askEvery, true, func(ctx context.Context) (ok bool, _ error) {
		ok, last = yes(ctx)
		return ok, nil
	})
	if ended != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(context.Cause(ctx), last))
	}
	return nil
}

// Metric reads a metric without labels from the component's /metrics.
func (h *Component) Metric(ctx context.Context, name string) (float64, error) {
	text, err := h.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", h.Name, name)
}

// Leading returns the writer that says that it leads.
func (p *Pair) Leading(ctx context.Context) (*Component, error) {
	for _, writer := range p.Writers {
		if !writer.Running() {
			continue
		}
		if leads, err := writer.Metric(ctx, "slicefeed_writer_leader"); err != nil {
			return nil, err
		} else if leads == 1 {
			return writer, nil
		}
	}
	return nil, errors.New("no writer leads")
}

// WaitLeading waits until one of the writers says that it leads.
func (p *Pair) WaitLeading(ctx context.Context) (leader *Component, err error) {
	return leader, Until(ctx, "a writer leads", func(ctx context.Context) (bool, error) {
		var err error
		leader, err = p.Leading(ctx)
		return err == nil, err
	})
}

// WaitSubscribed waits until so many writers have a stream from the inventory.
func (p *Pair) WaitSubscribed(ctx context.Context, writers int) error {
	return Until(ctx, fmt.Sprintf("%d writers are subscribed", writers), func(ctx context.Context) (bool, error) {
		n, err := p.Inventory.Metric(ctx, "slicefeed_inventory_subscribers")
		return err == nil && int(n) >= writers, err
	})
}

// WaitObservations waits until the inventory has made so many complete observations from now on.
func (p *Pair) WaitObservations(ctx context.Context, more int) error {
	const metric = "slicefeed_inventory_observations_total"
	before, err := p.Inventory.Metric(ctx, metric)
	if err != nil {
		return err
	}
	return Until(ctx, fmt.Sprintf("the inventory has made %d more observations", more), func(ctx context.Context) (bool, error) {
		now, err := p.Inventory.Metric(ctx, metric)
		return err == nil && now >= before+float64(more), err
	})
}

// WaitListing waits until the cloud has been listed as a whole, from a moment after the
// call, and returns in how many pages the servers came.
func (c *Cloud) WaitListing(ctx context.Context) (pages int, err error) {
	begun := time.Now()
	err = Until(ctx, "the inventory has listed the cloud", func(context.Context) (bool, error) {
		pages = listed(c.Requests(), begun)
		return pages > 0, nil
	})
	return pages, err
}

// listed returns the pages of the first whole listing that began after begun, from the
// first page of servers to the LAN, which is read last; 0: there has been none.
func listed(requests []ionosapi.Request, begun time.Time) int {
	pages := 0
	for _, r := range requests {
		path, query, _ := strings.Cut(r.URL, "?")
		servers := strings.HasSuffix(path, "/servers")
		switch {
		case r.At.Before(begun):
		case r.Status != http.StatusOK:
			pages = 0
		case servers && strings.Contains("&"+query+"&", "&offset=0&"):
			pages = 1
		case servers && pages > 0:
			pages++
		case strings.HasSuffix(path, "/lans/"+itoa(PrivateLAN)) && pages > 0:
			return pages
		}
	}
	return 0
}
