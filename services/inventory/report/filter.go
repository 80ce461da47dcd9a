package report

import (
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

const maxFilter = 512 // bytes

// filter is the filter of a request. The zero value selects everything.
type filter struct {
	text string

	namespace, service string // only of exported Services; the service as namespace/name, empty: all of the namespace
	node               string
	address            netip.Addr
}

// parseFilter reads a filter, as the comments of GetReportRequest define it. Its error is for the client.
func parseFilter(text string, exports bool) (f filter, err error) {
	if len(text) > maxFilter || !utf8.ValidString(text) {
		return f, status.Errorf(codes.InvalidArgument, "filter is longer than %d bytes or not UTF-8", maxFilter)
	}
	f.text, f.node = text, text
	if namespace, rest, ok := strings.Cut(text, "/"); ok {
		var name string
		name, f.node, _ = strings.Cut(rest, "/")
		if exports {
			f.namespace = namespace
			if name != "" {
				f.service = namespace + "/" + name
			}
		}
	}
	if a, err := netip.ParseAddr(f.node); err == nil {
		f.node, f.address = "", a.Unmap().WithZone("")
	}
	return f, nil
}

// hasDetails reports whether the filter selects single nodes, which are shown in full.
func (f *filter) hasDetails() bool { return f.service != "" || f.isNode() }

func (f *filter) isNode() bool { return f.node != "" || f.address.IsValid() }

func (f *filter) selectsService(name string) bool {
	if f.service != "" {
		return name == f.service
	}
	return f.namespace == "" || strings.HasPrefix(name, f.namespace+"/")
}

// selectsNode reports whether the filter selects a node of a Service that it selects.
func (f *filter) selectsNode(m *roster.Member, resolver *resolve.Resolver) bool {
	switch {
	case f.node != "":
		return m.Name == f.node
	case !f.address.IsValid():
		return true
	case slices.Contains(m.InternalIPs, f.address), slices.Contains(m.Holding.Addresses(), f.address):
		return true
	}
	return slices.ContainsFunc(resolver.Describe(&m.Candidate).Candidates, func(c resolve.Candidate) bool { return c.Address == f.address })
}
