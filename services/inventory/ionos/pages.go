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
// The end is a page that is shorter than asked for and has no link to a next one; a full
// one without a link is followed all the same, and a shorter one with a link too (the cloud
// may cap the limit). What a single page leaves out at its end cannot be known from here.

// order is a property by which the cloud can sort. Names need not be unique; a cloud that
// orders equal ones at random shows servers twice, which is torn.
const order = "name"

// most servers of a datacenter: bounds what an endless cloud can make us hold.
const most = 100_000

var errTorn = errors.New("the pages do not fit together")

// listed is a server as a page has it, or why it cannot be read. It is all that is kept of a page:
// as the SDK has them, servers take several times as much.
type listed struct {
	roster.Server // at least its ID

	bad error
}

// servers reads all servers of a datacenter, each once, every one with an ID.
func (c *Client) servers(ctx context.Context, dc datacenter) ([]listed, error) {
	servers, err := c.readPages(ctx, dc)
	if errors.Is(err, errTorn) {
		c.log.InfoContext(ctx, "servers changed while they were listed, reading them again", "datacenter", dc.id, "reason", err)
		servers, err = c.readPages(ctx, dc)
	}
	if err != nil {
		return nil, fmt.Errorf("list servers of datacenter %s: %w", dc.id, err)
	}
	return servers, nil
}

func (c *Client) readPages(ctx context.Context, dc datacenter) ([]listed, error) {
	var all []listed
	seen := make(map[string]bool)
	for {
		offset := max(len(all)-1, 0)
		page, more, err := c.readPage(ctx, dc, offset)
		if err != nil {
			return nil, err
		}
		fresh := page
		if len(all) > 0 {
			if len(page) == 0 || page[0].ID != all[len(all)-1].ID {
				return nil, fmt.Errorf("%w: something shifted at position %d", errTorn, offset)
			}
			all[len(all)-1] = page[0] // the newer word
			fresh = page[1:]
		}
		for _, s := range fresh {
			if seen[s.ID] {
				return nil, fmt.Errorf("%w: server %s came twice", errTorn, short(s.ID))
			}
			seen[s.ID] = true
		}
		all = append(all, fresh...)
		switch {
		case !more && len(page) < c.pageSize:
			return all, nil
		case len(fresh) == 0 && more:
			return nil, fmt.Errorf("%w: more is promised after position %d, none given", errTorn, offset)
		case len(fresh) == 0:
			return all, nil
		case len(all) > most:
			return nil, fmt.Errorf("more than %d servers", most)
		}
	}
}

// readPage reads one page, and whether the cloud says that there are more.
func (c *Client) readPage(ctx context.Context, dc datacenter, offset int) ([]listed, bool, error) {
	var page ionoscloud.Servers
	err := c.call(ctx, func(ctx context.Context) error {
		var err error
		page, _, err = c.api.ServersApi.DatacentersServersGet(ctx, dc.id).
			Depth(3).Pretty(false).OrderBy(order).Offset(int32(offset)).Limit(int32(c.pageSize)).Execute()
		return err
	})
	if err != nil {
		return nil, false, err // what was decoded so far is half filled
	}
	// Many odd answers decode without complaint: an empty body, {}, a 204, an error body.
	if err := isThe("collection", dc.id+"/servers", page.Type, page.Id); err != nil {
		return nil, false, err
	}
	if page.Items == nil {
		return nil, false, errors.New("the answer has no items, not even none")
	}
	if page.Offset != nil && *page.Offset != float32(offset) {
		return nil, false, fmt.Errorf("%w: asked for position %d, got %g", errTorn, offset, *page.Offset)
	}
	servers := make([]listed, 0, len(*page.Items))
	for i, s := range *page.Items {
		if id(s) == "" {
			return nil, false, fmt.Errorf("the server at position %d has no id", offset+i)
		}
		server, err := convert(s, dc)
		servers = append(servers, listed{server, err})
	}
	more := page.Links != nil && page.Links.Next != nil && *page.Links.Next != ""
	return servers, more, nil
}

// isThe checks that an answer is about what was asked for.
func isThe(kind, id string, gotKind *ionoscloud.Type, gotID *string) error {
	if gotKind == nil || gotID == nil {
		return fmt.Errorf("the answer lacks its type or id: expected the %s %s", kind, id)
	}
	if string(*gotKind) != kind || !strings.EqualFold(*gotID, id) {
		return fmt.Errorf("the answer is the %s %s: expected the %s %s", *gotKind, short(*gotID), kind, id)
	}
	return nil
}

// id is the server's, as we write it; empty if it has none.
func id(s ionoscloud.Server) string {
	if s.Id == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(*s.Id))
}
