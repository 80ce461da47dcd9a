package ionos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

// The API returns a collection in pages, by offset and without a snapshot. When a server is deleted
// between two requests, another one moves to the previous page and would be missed. Therefore the order
// is fixed, and each request starts at the last server of the previous page. If the new page starts with
// that server, nothing moved across the boundary, and every server that existed throughout was read.
// Otherwise the pages are inconsistent: they are read once more, and then it is an error. Comparing two
// complete readings was rejected, because it costs twice as many requests.
//
// A listing ends with a page that has fewer servers than its limit and no link to a next page. The limit
// is the one that the response echoes, because the API may apply a lower one than requested. A full page
// without a link is followed, and so is a shorter page with a link. If a page is cut at another limit
// than the one it echoes, that cannot be detected.

// orderBy is a property by which the API can sort. Names need not be unique; if the API orders equal
// names randomly, servers appear twice, which makes the pages inconsistent.
const orderBy = "name"

// minPageSize is two, because pages overlap by one server.
const minPageSize = 2

// maxServers of a datacenter limits memory if pages never end.
const maxServers = 100_000

var errInconsistentPages = errors.New("inconsistent pages")

// serverResult is a server of a page, or why its data is invalid. Nothing else of a page is kept, because
// the SDK's servers take several times as much memory.
type serverResult struct {
	roster.Server // has at least the ID

	err error
}

// listServers returns all servers of a datacenter, each once and with an ID.
func (c *Client) listServers(ctx context.Context, dc datacenter) ([]serverResult, error) {
	servers, err := c.readPages(ctx, dc)
	if errors.Is(err, errInconsistentPages) {
		c.log.InfoContext(ctx, "servers changed during listing, reading again", "datacenter", dc.id, "reason", err)
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
				return nil, fmt.Errorf("%w: servers moved at position %d", errInconsistentPages, offset)
			}
			all[len(all)-1] = servers[0] // the newer state
			servers = servers[1:]
		}
		for _, s := range servers {
			if seen[s.ID] {
				return nil, fmt.Errorf("%w: server %s appears twice", errInconsistentPages, truncate(s.ID))
			}
			seen[s.ID] = true
		}
		all = append(all, servers...)
		switch {
		case !page.hasNext && !page.isFull:
			return all, nil
		case len(servers) == 0 && page.hasNext:
			return nil, fmt.Errorf("%w: page after position %d is empty", errInconsistentPages, offset)
		case len(servers) == 0:
			return all, nil
		case len(all) > maxServers:
			return nil, fmt.Errorf("more than %d servers", maxServers)
		}
	}
}

// page is one response of a listing.
type page struct {
	servers []serverResult
	isFull  bool // it has as many servers as the limit that the API applied
	hasNext bool // it links to a next page
}

func (c *Client) readPage(ctx context.Context, dc datacenter, offset int) (page, error) {
	var servers []serverResult
	size := int(c.pageSize.Load())
	ctx = withServerSink(ctx, func(s ionoscloud.Server) error {
		position := offset + len(servers)
		switch id := serverID(s); {
		case len(servers) == size:
			return fmt.Errorf("page has more than the requested %d servers", size)
		case id == "":
			return fmt.Errorf("server at position %d has no id", position)
		case len(id) > maxTextLength:
			return fmt.Errorf("id of server at position %d has %d bytes, want at most %d", position, len(id), maxTextLength)
		}
		server, err := convertServer(s, dc)
		if err != nil {
			server = roster.Server{ID: server.ID} // nothing else of it is kept
		}
		servers = append(servers, serverResult{server, err})
		return nil
	})
	var startedAt time.Time
	response, err := callAPI(ctx, c, func(ctx context.Context) (ionoscloud.Servers, *ionoscloud.APIResponse, error) {
		startedAt = time.Now()
		return c.api.ServersApi.DatacentersServersGet(ctx, dc.id).
			Depth(3).Pretty(false).OrderBy(orderBy).Offset(int32(offset)).Limit(int32(size)).Execute()
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // the next listing tries a smaller page
		c.pageSize.Store(int64(max(size/2, minPageSize)))
	case err == nil && time.Since(startedAt) < c.timeout/4:
		c.pageSize.Store(int64(min(size*2, c.maxPageSize)))
	}
	if err != nil {
		return page{}, err // the response is only partly decoded
	}
	// Many invalid responses decode without an error: an empty body, {}, a 204, an error body.
	if err := checkIdentity("collection", dc.id+"/servers", response.Type, response.Id); err != nil {
		return page{}, err
	}
	if response.Items == nil {
		return page{}, errors.New("response without items")
	}
	if len(*response.Items) > 0 {
		return page{}, errors.New("servers are not in JSON") // the transport takes the servers out of JSON only
	}
	if response.Offset != nil && *response.Offset != float32(offset) {
		return page{}, fmt.Errorf("%w: want position %d, got %g", errInconsistentPages, offset, *response.Offset)
	}
	limit, err := appliedLimit(response.Limit, size)
	if err != nil {
		return page{}, err
	}
	return page{servers, len(servers) >= limit, hasNextPage(response.Links)}, nil
}

func hasNextPage(links *ionoscloud.PaginationLinks) bool {
	return ionoscloud.ToValueDefault(ionoscloud.ToValueDefault(links).Next) != ""
}

// appliedLimit returns how many servers make a page full, given the limit that its response echoes. An
// API that caps pages at one server cannot be read, because pages overlap by one.
func appliedLimit(echoed *float32, requested int) (int, error) {
	if echoed == nil {
		return requested, nil
	}
	limit := int(*echoed)
	if float32(limit) != *echoed || limit < minPageSize || limit > requested {
		return 0, fmt.Errorf("response echoes the limit %g, want %d to the requested %d", *echoed, minPageSize, requested)
	}
	return limit, nil
}

// checkIdentity checks that a response is about the requested object.
func checkIdentity(kind, id string, gotKind *ionoscloud.Type, gotID *string) error {
	if gotKind == nil || gotID == nil {
		return fmt.Errorf("response without type or id, want %s %s", kind, id)
	}
	if string(*gotKind) != kind || !strings.EqualFold(*gotID, id) {
		return fmt.Errorf("response is %s %s, want %s %s", *gotKind, truncate(*gotID), kind, id)
	}
	return nil
}

// serverID returns the normalized ID of a server; empty if it has none.
func serverID(s ionoscloud.Server) string {
	return strings.ToLower(strings.TrimSpace(ionoscloud.ToValueDefault(s.Id)))
}
