package ionos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// The cloud gives a collection in pages, by position, without a snapshot: a server that
// is deleted between two pages shifts another one through the gap, unseen. So the order is
// fixed, and each page is asked for from the position of the server that ended the one
// before. If that same server comes first again, nothing has shifted across the boundary,
// and whatever lived all the while was read. Anything else is a torn reading: begun once
// more, then an error. Rejected: comparing two whole readings, at twice the cost.
//
// A listing ends with a page that has fewer servers than its limit and no link to a next one.
// The limit that counts is the one the answer echoes: the cloud may apply a lower one than we
// asked for. A full page without a link is followed, and so is a shorter one with a link. What a
// page leaves out while it echoes a limit that it did not apply cannot be known from here.

// orderBy is a property by which the cloud can sort. Names need not be unique; a cloud that
// orders equal ones at random shows servers twice, which is torn.
const orderBy = "name"

// maxServers servers of a datacenter: bounds what an endless cloud can make us hold.
const maxServers = 100_000

var errInconsistentPages = errors.New("the pages do not fit together")

// serverResult is a server as a page has it, or why it cannot be read. It is all that is kept of a page:
// as the SDK has them, servers take several times as much.
type serverResult struct {
	roster.Server // at least its ID

	err error
}

// listServers reads all servers of a datacenter, each once, every one with an ID.
func (c *Client) listServers(ctx context.Context, dc datacenter) ([]serverResult, error) {
	servers, err := c.readPages(ctx, dc)
	if errors.Is(err, errInconsistentPages) {
		c.log.InfoContext(ctx, "servers changed while they were listed, reading them again", "datacenter", dc.id, "reason", err)
		servers, err = c.readPages(ctx, dc)
	}
	if err != nil {
		return nil, fmt.Errorf("list servers of datacenter %s: %w", dc.id, err)
	}
	return servers, nil
}

func (c *Client) readPages(ctx context.Context, dc datacenter) ([]serverResult, error) {
	var all []serverResult
	seen := make(map[string]bool)
	for {
		offset := max(len(all)-1, 0)
		page, err := c.readPage(ctx, dc, offset)
		if err != nil {
			return nil, err
		}
		servers := page.servers
		if len(all) > 0 {
			if len(servers) == 0 || servers[0].ID != all[len(all)-1].ID {
				return nil, fmt.Errorf("%w: something shifted at position %d", errInconsistentPages, offset)
			}
			all[len(all)-1] = servers[0] // the newer state
			servers = servers[1:]
		}
		for _, s := range servers {
			if seen[s.ID] {
				return nil, fmt.Errorf("%w: server %s came twice", errInconsistentPages, truncate(s.ID))
			}
			seen[s.ID] = true
		}
		all = append(all, servers...)
		switch {
		case !page.hasNext && !page.isFull:
			return all, nil
		case len(servers) == 0 && page.hasNext:
			return nil, fmt.Errorf("%w: more is promised after position %d, none given", errInconsistentPages, offset)
		case len(servers) == 0:
			return all, nil
		case len(all) > maxServers:
			return nil, fmt.Errorf("more than %d servers", maxServers)
		}
	}
}

// page is one answer of the cloud.
type page struct {
	servers []serverResult
	isFull  bool // it has as many servers as the limit that the cloud applied
	hasNext bool // it links to a next one
}

func (c *Client) readPage(ctx context.Context, dc datacenter, offset int) (page, error) {
	var answer ionoscloud.Servers
	var servers []serverResult
	ctx = withServerSink(ctx, func(s ionoscloud.Server) error {
		position := offset + len(servers)
		switch id := serverID(s); {
		case len(servers) == c.pageSize:
			return fmt.Errorf("the page has more than the %d servers that were asked for", c.pageSize)
		case id == "":
			return fmt.Errorf("the server at position %d has no id", position)
		case len(id) > maxTextLength:
			return fmt.Errorf("the id of the server at position %d has %d bytes, want %d at most", position, len(id), maxTextLength)
		}
		server, err := convertServer(s, dc)
		servers = append(servers, serverResult{server, err})
		return nil
	})
	err := c.callAPI(ctx, func(ctx context.Context) error {
		var err error
		answer, _, err = c.api.ServersApi.DatacentersServersGet(ctx, dc.id).
			Depth(3).Pretty(false).OrderBy(orderBy).Offset(int32(offset)).Limit(int32(c.pageSize)).Execute()
		return err
	})
	if err != nil {
		return page{}, err // what was decoded so far is half filled
	}
	// Many odd answers decode without complaint: an empty body, {}, a 204, an error body.
	if err := checkIdentity("collection", dc.id+"/servers", answer.Type, answer.Id); err != nil {
		return page{}, err
	}
	if answer.Items == nil {
		return page{}, errors.New("the answer has no items, not even none")
	}
	if len(*answer.Items) > 0 {
		return page{}, errors.New("the servers are in no JSON") // which alone is read one by one
	}
	if answer.Offset != nil && *answer.Offset != float32(offset) {
		return page{}, fmt.Errorf("%w: asked for position %d, got %g", errInconsistentPages, offset, *answer.Offset)
	}
	limit, err := appliedLimit(answer.Limit, c.pageSize)
	if err != nil {
		return page{}, err
	}
	hasNext := answer.Links != nil && answer.Links.Next != nil && *answer.Links.Next != ""
	return page{servers, len(servers) >= limit, hasNext}, nil
}

// appliedLimit is how many servers make a page full, given the limit that its answer echoes. A
// cloud that caps its pages at one server cannot be read, since pages overlap by one.
func appliedLimit(echoed *float32, requested int) (int, error) {
	if echoed == nil {
		return requested, nil
	}
	limit := int(*echoed)
	if float32(limit) != *echoed || limit < 2 || limit > requested {
		return 0, fmt.Errorf("the answer echoes the limit %g: want 2 to %d, as asked for", *echoed, requested)
	}
	return limit, nil
}

// checkIdentity checks that an answer is about what was asked for.
func checkIdentity(kind, id string, gotKind *ionoscloud.Type, gotID *string) error {
	if gotKind == nil || gotID == nil {
		return fmt.Errorf("the answer lacks its type or id: expected the %s %s", kind, id)
	}
	if string(*gotKind) != kind || !strings.EqualFold(*gotID, id) {
		return fmt.Errorf("the answer is the %s %s: expected the %s %s", *gotKind, truncate(*gotID), kind, id)
	}
	return nil
}

// serverID is the server's, as we write it; empty if it has none.
func serverID(s ionoscloud.Server) string {
	if s.Id == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(*s.Id))
}
