package roster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

const (
	dc = "0dc00000-0000-4000-8000-000000000000"
	s1 = "11111111-1111-4111-8111-111111111111"
	s2 = "22222222-2222-4222-8222-222222222222"
	s3 = "33333333-3333-4333-8333-333333333333"
)

var (
	t0   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cidr = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}

	expandIDs  = strings.NewReplacer("S1", s1, "S2", s2, "S3", s3)
	shortenIDs = strings.NewReplacer(s1, "S1", s2, "S2", s3, "S3", dc, "DC")
)

// TestHistories plays the scripts in testdata/histories; their README has the commands.
func TestHistories(t *testing.T) {
	testkit.RunScripts(t, func(t *testing.T) func(string) string { return (&world{t: t}).play })
}

// world is what a script drives: a roster, its source and its cloud, with a clock that only the script moves.
type world struct {
	*Roster

	t      *testing.T
	now    time.Time
	number uint64 // that the source has caught up with
	nodes  map[string]Node
	cloud  Listing
}

// play carries out a command. Updates with " ; " between them arrive at once.
func (w *world) play(line string) string {
	var output string
	var update *Input
	for part := range strings.SplitSeq(expandIDs.Replace(line), " ; ") {
		args := splitCommand(part)
		switch command, args := args[0], args[1:]; command {
		case "roster":
			w.start(args)
		case "ready":
			w.start(args)
			w.cloud = listing(server(s1, "a", "10.0.0.11"))
			c := w.changeNode("a", []string{"server=" + s1, "ips=10.0.0.11"})
			w.Apply(w.now, Input{Source: Update{Changed: []Node{c}, LastContact: w.now, Verified: w.number}})
			w.run(0, nil)
		case "pass":
			w.now = w.now.Add(w.parseDuration(args[0]))
		case "cloud":
			w.setCloud(args)
		case "next":
			output = describeActions(w.NextActions(w.now), w.now)
		case "run":
			output = w.run(w.parseDuration(args[0]), args[1:])
		case "wait":
			w.run(w.parseDuration(args[0]), args[1:])
		case "show":
			output = w.describeNodes() + w.describeStatus()
		case "nodes":
			output = w.describeNodes()
		case "status":
			output = w.describeStatus()
		case "describe":
			output = w.describe(args[0])
		default:
			update = cmp.Or(update, &Input{})
			w.addToUpdate(update, command, args)
		}
	}
	if update != nil {
		output = describeChanges(w.Apply(w.now, *update))
	}
	return shortenIDs.Replace(output)
}

func (w *world) start(args []string) {
	cfg := Config{Method: ByCloud, CIDRs: cidr, ExportLabels: []string{"label"}}
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "method":
			cfg.Method = lookUp(w, map[string]Method{"node-address": ByNodeAddress, "record": ByRecord}, value)
		case "confirm":
			cfg.ConfirmInterval = w.parseDuration(value)
		case "verify":
			cfg.VerifyInterval = w.parseDuration(value)
		case "any-address":
			cfg.CIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		default:
			w.t.Fatalf("unknown setting %s", key)
		}
	}
	*w = world{Roster: New(cfg), t: w.t, now: t0, number: 1, nodes: map[string]Node{}}
}

func (w *world) addToUpdate(update *Input, command string, args []string) {
	switch command {
	case "node":
		update.Source.Changed = append(update.Source.Changed, w.changeNode(args[0], args[1:]))
		update.Source.LastContact, update.Source.Verified = w.now, w.number
	case "remove":
		update.Source.Removed = append(update.Source.Removed, args...)
		update.Source.LastContact, update.Source.Verified = w.now, w.number
	case "source":
		w.changeSource(&update.Source, args)
	case "verified":
		r := &VerificationResult{StartedAt: w.now, Number: w.number}
		r.Mode = lookUp(w, map[string]Verification{"light": LightVerification, "full": FullVerification}, args[0])
		for _, arg := range args[1:] {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "started":
				r.StartedAt = w.now.Add(w.parseDuration(value))
			case "number":
				r.Number = uint64(w.parseInt(value))
			case "error":
				r.Err, r.Number = errors.New(value), 0
			default:
				w.t.Fatalf("unknown property %s of a verification", key)
			}
		}
		update.Verification = r
	case "listed":
		r := &ListingResult{StartedAt: w.now, Listing: w.cloud}
		for _, arg := range args {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "started":
				r.StartedAt = w.now.Add(w.parseDuration(value))
			case "error":
				r.Err = errors.New(value)
			case "retry-after":
				r.RetryAfter = w.parseDuration(value)
			default:
				w.t.Fatalf("unknown property %s of a listing", key)
			}
		}
		update.Listing = r
	default:
		w.t.Fatalf("unknown command %s", command)
	}
}

// changeNode returns what the source reports about a node now: what it last reported, with these changes.
func (w *world) changeNode(name string, args []string) Node {
	c, known := w.nodes[name]
	if !known {
		c = Node{Name: name, UID: "uid-" + name, State: Ready}
	}
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "name":
			c.Name = value
		case "uid":
			c.UID = value
		case "server":
			c.ProviderID = "ionos://" + value
		case "provider":
			c.ProviderID = value
		case "uuid":
			c.SystemUUID = value
		case "ips":
			c.InternalIPs = w.parseAddresses(value)
		case "state":
			c.State = lookUp(w, map[string]NodeState{
				"READY": Ready, "DRAINING": Draining, "NOT_READY": NotReady, "none": 0,
			}, value)
		case "zone":
			c.Zone = strings.ReplaceAll(value, `\xff`, "\xff")
		case "port":
			c.Ports = []contract.Port{{Protocol: "TCP", Number: uint16(w.parseInt(value))}}
		case "label":
			c.Labels = map[string]string{"label": value}
		case "invalid":
			c.Invalid = value
		case "excluded":
			c.Excluded = lookUp(w, map[string]OmissionReason{
				"": 0, "label": ExcludedByLabel, "selector": NotSelected, "control-plane": ControlPlane,
			}, value)
		case "by":
			c.ExcludedBy = value
		default:
			w.t.Fatalf("unknown property %s of a node", key)
		}
	}
	w.nodes[name] = c
	return c
}

func (w *world) changeSource(update *Update, args []string) {
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "contact":
			update.LastContact, update.Verified = w.now, w.number
		case "number":
			w.number = uint64(w.parseInt(value))
			update.LastContact, update.Verified = w.now, w.number
		case "failure":
			update.Failure = value
		case "partial":
			update.PartialError = value
		case "withheld":
			update.Withheld = value
		default:
			w.t.Fatalf("unknown property %s of a source", key)
		}
	}
}

// setCloud sets what the cloud has: servers such as S1/name=10.0.0.1,10.0.0.2+10.0.0.3, with a plus between NICs.
func (w *world) setCloud(args []string) {
	w.cloud = Listing{Invalid: map[string]string{}}
	for _, arg := range args {
		key, value, hasNICs := strings.Cut(arg, "=")
		server := append(strings.Split(key, "/"), "", dc)
		switch key {
		case "failover":
			w.cloud.Failover = w.parseAddresses(value)
		case "invalid":
			w.cloud.Invalid[value] = "a NIC without an ID"
		default:
			s := Server{ID: server[0], Name: server[1], Datacenter: cmp.Or(server[2], dc)}
			for i, addresses := range strings.Split(value, "+") {
				if hasNICs {
					s.NICs = append(s.NICs, NIC{ID: fmt.Sprintf("nic-%d", i), LAN: "3", Addresses: w.parseAddresses(addresses)})
				}
			}
			w.cloud.Servers = append(w.cloud.Servers, s)
		}
	}
}

// run answers the requests of the roster for some time, and returns what was requested and what became of it.
func (w *world) run(d time.Duration, args []string) string {
	var out strings.Builder
	options := map[string]string{}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		options[key] = value
	}
	_, silent := options["silent"]
	var verifyError, listError error
	if text, ok := options["verify-error"]; ok {
		verifyError = errors.New(text)
	}
	if text, ok := options["list-error"]; ok {
		listError = errors.New(text)
	}
	old := w.Status(w.now)
	for end, turns := w.now.Add(d), 0; turns < 1000; turns++ {
		a := w.NextActions(w.now)
		var what []string
		if a.Verify != NoVerification {
			what = append(what, a.Verify.String()+" verification")
			if !silent {
				w.Apply(
					w.now,
					Input{Verification: &VerificationResult{StartedAt: w.now, Mode: a.Verify, Number: w.number, Err: verifyError}},
				)
			}
		}
		if a.List {
			what = append(what, "listing")
			if !silent {
				w.Apply(w.now, Input{Listing: &ListingResult{StartedAt: w.now, Listing: w.cloud, Err: listError}})
			}
		}
		if !silent {
			w.Apply(w.now, Input{Source: Update{LastContact: w.now, Verified: w.number}})
		}
		what = append(what, describeProgress(old, w.Status(w.now))...)
		old = w.Status(w.now)
		if len(what) > 0 {
			fmt.Fprintf(&out, "%-8s %s\n", w.now.Sub(t0), strings.Join(what, ", "))
		}
		if a.Verify == NoVerification && !a.List {
			if !a.Wake.After(w.now) {
				w.t.Fatalf("wakes at %s, which is not after %s, and requests nothing", a.Wake, w.now)
			}
			if a.Wake.After(end) {
				w.now = end
				return out.String()
			}
			w.now = a.Wake
		}
	}
	w.t.Fatalf("1000 requests without an end:\n%s", out.String())
	return ""
}

// describeProgress describes what is new in a status.
func describeProgress(before, now Status) (all []string) {
	if now.Observation != before.Observation {
		all = append(all, fmt.Sprintf("observation %d", now.Observation))
	}
	if now.Publishable != before.Publishable {
		all = append(all, map[bool]string{true: "published", false: "withdrawn"}[now.Publishable])
	}
	if now.Membership.Sync != before.Membership.Sync {
		all = append(all, "membership "+describeStatusPart(now.Membership))
	}
	if now.Addresses.Sync != before.Addresses.Sync {
		all = append(all, "addresses "+describeStatusPart(now.Addresses))
	}
	return all
}

func describeStatusPart(part PartStatus) string {
	return strings.TrimSuffix(contractName(part.Sync)+": "+part.Reason, ": ")
}

func describeActions(a Actions, now time.Time) string {
	var all []string
	if a.Verify != NoVerification {
		all = append(all, a.Verify.String()+" verification")
	}
	if a.List {
		all = append(all, "listing")
	}
	return strings.Join(append(all, fmt.Sprintf("again in %s\n", a.Wake.Sub(now))), ", ")
}

func describeChanges(changes []Change) string {
	var out strings.Builder
	for _, c := range changes {
		if c.Node == nil {
			fmt.Fprintf(&out, "- %s\n", c.Name)
		} else {
			fmt.Fprintf(&out, "+ %s %s at %s\n", c.Name, contractName(c.Node.State), joinAddresses(c.Node.Addresses))
		}
	}
	return out.String()
}

func (w *world) describeNodes() string {
	var out strings.Builder
	for _, n := range w.Nodes() {
		fmt.Fprintf(&out, "%s %s for %s at %s", n.Name, contractName(n.State), w.now.Sub(n.Since), joinAddresses(n.Addresses))
		if n.ServerID != "" {
			fmt.Fprintf(&out, ", server %s", n.ServerID)
		}
		for _, p := range n.Ports {
			fmt.Fprintf(&out, ", port %s", p)
		}
		fmt.Fprintln(&out)
	}
	for _, m := range w.sortedMembers() {
		if !m.IsPublished() {
			fmt.Fprintf(&out, "%s omitted, %s: %s\n", m.Name, m.Omission.Reason, m.Omission.Message)
		}
	}
	return cmp.Or(out.String(), "no nodes\n")
}

func (w *world) describeStatus() string {
	s := w.Status(w.now)
	var out strings.Builder
	fmt.Fprintf(&out, "membership for %s %s\n", w.now.Sub(s.Membership.Since), describeStatusPart(s.Membership))
	fmt.Fprintf(&out, "addresses for %s %s\n", w.now.Sub(s.Addresses.Since), describeStatusPart(s.Addresses))
	fmt.Fprintf(&out, "observation %d, published: %t\n", s.Observation, s.Publishable)
	return out.String()
}

// describe returns what is shown of a node.
func (w *world) describe(name string) string {
	m := w.members[name]
	if m == nil {
		return "unknown\n"
	}
	var out strings.Builder
	one := w.Members(Filter{Name: name, Details: true})[0]
	if one.Match != "" {
		fmt.Fprintf(&out, "server  %s %s\n", one.Server, one.Match)
	}
	for _, c := range one.Candidates {
		fmt.Fprintf(&out, "%s  %s\n", c.Address, strings.TrimPrefix(c.From+": "+c.Reason, ": "))
	}
	if one.Omission.Reason != 0 {
		fmt.Fprintf(&out, "%s: %s\n", one.Omission.Reason, one.Omission.Message)
	}
	if one.IsPublished() {
		fmt.Fprintf(&out, "=> %s at %s\n", contractName(one.State), joinAddresses(one.Addresses))
	} else {
		fmt.Fprintln(&out, "=> omitted")
	}
	return out.String()
}

func (r *Roster) sortedMembers() []Member {
	return slices.SortedFunc(
		slices.Values(r.Members(Filter{Details: true})),
		func(a, b Member) int { return strings.Compare(a.Name, b.Name) },
	)
}

// Nodes returns the published nodes, sorted by name.
func (r *Roster) Nodes() (nodes []*Node) {
	for _, m := range r.sortedMembers() {
		if m.IsPublished() {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// contractName is the name of an enum value in the contract.
func contractName(value fmt.Stringer) string { return strings.ToUpper(value.String()) }

func joinAddresses(addresses []netip.Addr) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(addresses), " ", ", "), "[]")
}

// splitCommand splits a command at spaces outside of double quotes.
func splitCommand(line string) []string {
	quoted := false
	fields := strings.FieldsFunc(line, func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ' ' && !quoted
	})
	for i, field := range fields {
		fields[i] = strings.ReplaceAll(field, `"`, "")
	}
	return fields
}

func (w *world) parseAddresses(text string) (all []netip.Addr) {
	for address := range strings.SplitSeq(text, ",") {
		if address != "" {
			all = append(all, netip.MustParseAddr(address))
		}
	}
	return all
}

func (w *world) parseDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) parseInt(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func lookUp[T any](w *world, values map[string]T, name string) T {
	value, ok := values[name]
	if !ok {
		w.t.Fatalf("unknown value %q", name)
	}
	return value
}
