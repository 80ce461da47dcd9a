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
		page, err := c.readPage(ctx, dc, offset)
		if err != nil {
			return nil, err
		}
		fresh := page.servers
		if len(all) > 0 {
			if len(fresh) == 0 || fresh[0].ID != all[len(all)-1].ID {
				return nil, fmt.Errorf("%w: something shifted at position %d", errTorn, offset)
			}
			all[len(all)-1] = fresh[0] // the newer state
			fresh = fresh[1:]
		}
		for _, s := range fresh {
			if seen[s.ID] {
				return nil, fmt.Errorf("%w: server %s came twice", errTorn, short(s.ID))
			}
			seen[s.ID] = true
		}
		all = append(all, fresh...)
		switch {
		case !page.linked && !page.full:
			return all, nil
		case len(fresh) == 0 && page.linked:
			return nil, fmt.Errorf("%w: more is promised after position %d, none given", errTorn, offset)
		case len(fresh) == 0:
			return all, nil
		case len(all) > most:
			return nil, fmt.Errorf("more than %d servers", most)
		}
	}
}

// page is one answer of the cloud.
type page struct {
	servers []listed
	full    bool // it has as many servers as the limit that the cloud applied
	linked  bool // it links to a next one
}

func (c *Client) readPage(ctx context.Context, dc datacenter, offset int) (page, error) {
	var answer ionoscloud.Servers
	var servers []listed
	ctx = withServerSink(ctx, func(s ionoscloud.Server) error {
		at := offset + len(servers)
		switch sid := id(s); {
		case len(servers) == c.pageSize:
			return fmt.Errorf("the page has more than the %d servers that were asked for", c.pageSize)
		case sid == "":
			return fmt.Errorf("the server at position %d has no id", at)
		case len(sid) > mostText:
			return fmt.Errorf("the id of the server at position %d has %d bytes, want %d at most", at, len(sid), mostText)
		}
		server, err := convert(s, dc)
		servers = append(servers, listed{server, err})
		return nil
	})
	err := c.call(ctx, func(ctx context.Context) error {
		var err error
		answer, _, err = c.api.ServersApi.DatacentersServersGet(ctx, dc.id).
			Depth(3).Pretty(false).OrderBy(order).Offset(int32(offset)).Limit(int32(c.pageSize)).Execute()
		return err
	})
	if err != nil {
		return page{}, err // what was decoded so far is half filled
	}
	// Many odd answers decode without complaint: an empty body, {}, a 204, an error body.
	if err := isThe("collection", dc.id+"/servers", answer.Type, answer.Id); err != nil {
		return page{}, err
	}
	if answer.Items == nil {
		return page{}, errors.New("the answer has no items, not even none")
	}
	if len(*answer.Items) > 0 {
		return page{}, errors.New("the servers are in no JSON") // which alone is read one by one
	}
	if answer.Offset != nil && *answer.Offset != float32(offset) {
		return page{}, fmt.Errorf("%w: asked for position %d, got %g", errTorn, offset, *answer.Offset)
	}
	limit, err := appliedLimit(answer.Limit, c.pageSize)
	if err != nil {
		return page{}, err
	}
	linked := answer.Links != nil && answer.Links.Next != nil && *answer.Links.Next != ""
	return page{servers, len(servers) >= limit, linked}, nil
}

// appliedLimit is how many servers make a page full, given the limit that its answer echoes. A
// cloud that caps its pages at one server cannot be read, since pages overlap by one.
func appliedLimit(echoed *float32, asked int) (int, error) {
	if echoed == nil {
		return asked, nil
	}
	limit := int(*echoed)
	if float32(limit) != *echoed || limit < 2 || limit > asked {
		return 0, fmt.Errorf("the answer echoes the limit %g: want 2 to %d, as asked for", *echoed, asked)
	}
	return limit, nil
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
