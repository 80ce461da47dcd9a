package ionosapi

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is a way in which the cloud answers other than it should, or other than one expects.
type Kind string

// The kinds that replace the answer.
const (
	TooManyRequests        Kind = "429"          // without Retry-After
	TooManyRequestsSeconds Kind = "429-seconds"  // Retry-After: the seconds of Wait (default 10s)
	TooManyRequestsDate    Kind = "429-date"     // Retry-After: an HTTP date, Wait from now
	ServerError            Kind = "500"          //
	BadGatewayHTML         Kind = "502"          // with a body in HTML
	Unavailable            Kind = "503"          //
	Unauthorized           Kind = "401"          // "midway": with Skip
	Hang                   Kind = "hang"         // no answer until the client gives up
	Reset                  Kind = "reset"        // the TCP connection is reset
	EmptyBody              Kind = "empty-body"   // 200 without a byte
	EmptyObject            Kind = "empty-object" // 200 with {}
	NoContent              Kind = "204"          //
	ErrorIn200             Kind = "error-in-200" // 200 with the body of an error
	Redirect               Kind = "redirect"     // 307 to Target (default https://elsewhere.invalid)
	Oversized              Kind = "oversized"    // a true answer with Bytes (default 128 MiB) of padding
)

// The kinds that spoil the answer's bytes.
const (
	Truncated   Kind = "truncated"    // the second half of the JSON is missing
	ItemsNull   Kind = "items-null"   // "items": null
	UnknownType Kind = "unknown-type" // a type that the SDK's enum does not have
	StringLAN   Kind = "string-lan"   // the lan of a NIC is a string
	WrongID     Kind = "wrong-id"     // the answer is about something else
	PlainText   Kind = "plain-text"   // Content-Type: text/plain
)

// The kinds that show another state: of the server list, except where it says otherwise.
const (
	EmptyList      Kind = "empty-list"      // no servers, in due form
	Shrink         Kind = "shrink"          // a page lacks its first server
	Repeat         Kind = "repeat"          // each later page repeats the one before
	NoLinks        Kind = "no-links"        // a page links to no other, though there are more
	ZeroLimit      Kind = "zero-limit"      // a page echoes the limit 0
	Busy           Kind = "busy"            // all servers are BUSY
	ShuffledIPs    Kind = "shuffled-ips"    // the ips of each NIC come in another order each time
	LateNICs       Kind = "late-nics"       // no server has NICs, yet
	DuplicateNames Kind = "duplicate-names" // all servers bear one name
	SharedAddress  Kind = "shared-address"  // every NIC bears Address (default 10.0.0.250) first, declared as failover of its LAN
	HiddenSharing  Kind = "hidden-sharing"  // as shared-address, but not declared
)

// Kinds are all there are.
func Kinds() []Kind {
	return []Kind{
		TooManyRequests, TooManyRequestsSeconds, TooManyRequestsDate, ServerError, BadGatewayHTML, Unavailable,
		Unauthorized, Hang, Reset, EmptyBody, EmptyObject, NoContent, ErrorIn200, Redirect, Oversized,
		Truncated, ItemsNull, UnknownType, StringLAN, WrongID, PlainText,
		EmptyList, Shrink, Repeat, NoLinks, ZeroLimit, Busy, ShuffledIPs, LateNICs, DuplicateNames, SharedAddress, HiddenSharing,
	}
}

// Fault is a fault that is switched on, and for which requests.
type Fault struct {
	ID   int    `json:"id"` // given by the cloud
	Kind Kind   `json:"kind"`
	Path string `json:"path,omitempty"` // prefix of the path after /cloudapi/v6; empty: all

	Skip  int `json:"skip,omitempty"`  // let this many requests pass first
	Count int `json:"count,omitempty"` // then hit this many; 0: until it is removed

	Wait    Duration `json:"wait,omitempty"`
	Target  string   `json:"target,omitempty"`
	Address string   `json:"address,omitempty"`
	Bytes   int64    `json:"bytes,omitempty"`
}

// AddFault switches a fault on, beside those that are on, and returns its number. For one
// request the first that replaces the answer wins; the others add up.
func (c *Cloud) AddFault(f Fault) (int, error) {
	if !slices.Contains(Kinds(), f.Kind) {
		return 0, fmt.Errorf("fault kind %q: expected one of %v", f.Kind, Kinds())
	}
	if f.Skip < 0 || f.Count < 0 || f.Bytes < 0 || f.Wait < 0 {
		return 0, errors.New("skip, count, bytes and wait must not be negative")
	}
	if f.Path != "" {
		f.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(f.Path, basePath), "/")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	f.ID = c.next
	c.faults = append(c.faults, &f)
	return f.ID, nil
}

// RemoveFault switches one off.
func (c *Cloud) RemoveFault(id int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return remove(&c.faults, func(f *Fault) bool { return f.ID == id }, "fault", strconv.Itoa(id))
}

// ClearFaults switches all off.
func (c *Cloud) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

// Faults are those that are on, with the counts that are left.
func (c *Cloud) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Fault{}
	for _, f := range c.faults {
		out = append(out, *f)
	}
	return out
}

// strike says which faults hit a request to the path (after /cloudapi/v6), and counts it.
func (c *Cloud) strike(path string) faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hit faults
	c.faults = slices.DeleteFunc(c.faults, func(f *Fault) bool {
		if !strings.HasPrefix(path, f.Path) {
			return false
		}
		if f.Skip > 0 {
			f.Skip--
			return false
		}
		hit = append(hit, *f)
		if f.Count == 0 {
			return false
		}
		f.Count--
		return f.Count == 0
	})
	return hit
}

// faults are those that hit one request.
type faults []Fault

func (fs faults) find(k Kind) (Fault, bool) {
	i := slices.IndexFunc(fs, func(f Fault) bool { return f.Kind == k })
	if i < 0 {
		return Fault{}, false
	}
	return fs[i], true
}

func (fs faults) has(k Kind) bool {
	_, ok := fs.find(k)
	return ok
}
