// Package resolve finds the addresses of one node: the server that it runs on, and which of the server's
// addresses can be used. It guarantees that a weaker identity of a node never overrides a stronger one,
// that an address of several servers is never used, and that no listing from before a node's time counts
// for it. It does not know other nodes: package assign gives each address to one of them.
package resolve

import (
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Method is how the addresses of a node are found.
type Method uint8

// The methods: by the NICs of its server in the cloud, by the Node's own InternalIP, or by the address in
// the record of the source.
const (
	ByCloud Method = iota + 1
	ByNodeAddress
	ByRecord
)

// Resolver resolves nodes by the last complete listing of the cloud. The zero value has no listing.
type Resolver struct {
	Method Method
	CIDRs  []netip.Prefix // addresses outside them are ignored

	cloud        cloudIndex
	listingError string // of the last listing, if it failed
}

// Result is what was found for a node.
type Result struct {
	ServerID   string // empty: no server was found
	Addresses  AddrPair
	Omission   Omission // why there is no address
	Unreadable bool     // the cloud has invalid data for the server
}

// Omission is why a node is omitted, with a sentence that says what was found and what to do.
type Omission struct {
	Reason source.OmissionReason
	Advice string
}

// SetListing replaces the listing by a complete one that was started at this time.
func (r *Resolver) SetListing(l source.Listing, startedAt time.Time) {
	r.cloud, r.listingError = newCloudIndex(l, startedAt), ""
}

// SetListingError records why the last listing failed. The last complete one stays in use.
func (r *Resolver) SetListingError(text string) { r.listingError = text }

// Resolve resolves a node that was first seen at this time. Trace records the decisions; it may be nil.
func (r *Resolver) Resolve(c *source.Candidate, firstSeen time.Time, trace *source.Trace) Result {
	if r.Method != ByCloud {
		filter := addrFilter{cidrs: r.CIDRs, internalIPs: inOrder(c.InternalIPs)}
		addresses := filter.apply(canonical(c.InternalIPs))
		if trace != nil {
			filter.traceAddresses(trace, addresses, nil)
		}
		return Result{Addresses: addresses.chosen, Omission: r.adviseNode(addresses)}
	}
	if r.cloud.startedAt.IsZero() {
		if trace != nil {
			trace.Add(source.Failed, source.StageMatch, "Has the cloud been listed?", "%s", joinReason("not yet", r.listingError))
			trace.Add(source.Skipped, source.StageAddress, addressQuestion, "not reached: the cloud has not been listed")
		}
		return Result{Omission: Omission{source.NotResolvedYet, "The cloud has not been listed yet. Wait, or see the status of addresses."}}
	}
	return r.resolveInCloud(c, firstSeen, trace)
}

func (r *Resolver) resolveInCloud(c *source.Candidate, firstSeen time.Time, trace *source.Trace) (result Result) {
	found := r.cloud.matchServer(c, trace)
	recent := !r.cloud.startedAt.Before(firstSeen)
	filter := addrFilter{cidrs: r.CIDRs, cloud: &r.cloud, internalIPs: inOrder(c.InternalIPs)}
	var addresses filteredAddrs
	if found.server != nil {
		addresses = filter.apply(serverAddresses(found.server))
	}
	switch {
	case !recent:
		// The next server may have the name, and the server another address, so only a listing of this node's time counts.
		result.Omission = Omission{
			source.NotResolvedYet,
			joinReason("The last cloud listing started before the node was first seen. Wait for the next one", r.listingError) + ".",
		}
	case found.server != nil:
		result = Result{ServerID: found.id, Addresses: addresses.chosen, Omission: r.adviseServer(found.server, addresses)}
	default:
		result = Result{Omission: found.omission, Unreadable: found.omission.Reason == source.InvalidRecord}
	}
	if trace != nil {
		traceListingTime(trace, firstSeen.Sub(r.cloud.startedAt))
		if found.server == nil {
			trace.Add(source.Skipped, source.StageAddress, addressQuestion, "not reached: no server matches")
		} else {
			filter.traceAddresses(trace, addresses, found.server)
		}
	}
	return result
}

// traceListingTime records whether the listing, started this long before the node was first seen, is recent enough.
func traceListingTime(trace *source.Trace, early time.Duration) {
	const question = "Is the last listing recent enough?"
	if early <= 0 {
		trace.Add(source.Passed, source.StageMatch, question, "it started after the node was first seen")
		return
	}
	trace.Add(source.Failed, source.StageMatch, question,
		"it started %s before the node was first seen; wait for the next one", early.Round(time.Millisecond))
}

// TraceNotReached records that a node that is not eligible is not resolved.
func (r *Resolver) TraceNotReached(trace *source.Trace) {
	const detail = "not reached: the node is not eligible"
	if r.Method == ByCloud {
		trace.Add(source.Skipped, source.StageMatch, "Which server is it?", detail)
	}
	trace.Add(source.Skipped, source.StageAddress, addressQuestion, detail)
}

const addressQuestion = "Which address is used?"

func joinReason(what, cause string) string {
	if cause == "" {
		return what
	}
	return what + ": " + cause
}
