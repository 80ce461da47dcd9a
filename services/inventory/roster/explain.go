package roster

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// mostAddresses bounds how many addresses of one machine are explained.
const mostAddresses = 32

// Explanation is the chain that leads from what is said of a node to what is told of it.
type Explanation struct {
	Steps      []Step
	Omitted    Reason // why it is left out; 0: it is not, or it is not known
	Conclusion string // one sentence, with what to do if the node is left out
}

// chain is an explanation in the making.
type chain []Step

func (c *chain) add(result Result, stage, question, saw string, args ...any) {
	*c = append(*c, Step{Stage: stage, Question: question, Result: result, Detail: fmt.Sprintf(saw, args...)})
}

// Explain returns why the node of this name is told as it is, or left out. It looks at what
// was decided and decides nothing; what it says is of the same moment as Nodes and Omitted. The
// name may be one that the source does not know: then known is false, and the explanation says so.
func (r *Roster) Explain(name string) (e Explanation, known bool) {
	m := r.members[name]
	if m == nil {
		return r.explainUnknown(name), false
	}
	c := chain(slices.Clone(m.Steps))
	c.candidate(m.Candidate)
	switch {
	case m.Excluded != 0:
		for _, stage := range []string{StageMatch, StageAddress, StageClaim} {
			if stage != StageMatch || r.cfg.Resolver == ByCloud {
				c.add(Skipped, stage, questions[stage], "not reached: the node is not eligible")
			}
		}
	case r.cfg.Resolver == ByCloud:
		r.explainCloud(&c, m)
		r.explainClaim(&c, m)
	default:
		r.explainAddresses(&c, m, r.sieve(m).sift(canonical(m.InternalIPs)), nil)
		r.explainClaim(&c, m)
	}
	return Explanation{Steps: c, Omitted: m.left.reason, Conclusion: r.verdict(m)}, true
}

// questions are those of stages that were not reached.
var questions = map[string]string{
	StageMatch: "Which server is it?", StageAddress: "Which address is used?", StageClaim: "Can the address be assigned?",
}

func (r *Roster) explainUnknown(name string) Explanation {
	var c chain
	if !r.looks.complete {
		c.add(Skipped, StageSource, "Is it in the source?", "no full verification of the source yet")
		return Explanation{Steps: c, Conclusion: fmt.Sprintf(
			"Node %q is unknown so far: %s. Fix that, or wait.", clip(name), r.membership.Reason)}
	}
	c.add(Failed, StageSource, "Is it in the source?", "no node has this name")
	return Explanation{Steps: c, Conclusion: fmt.Sprintf(
		"Node %q is not in the source. Check the name, and that this inventory reads the node's cluster.", clip(name))}
}

// candidate makes up for what the source left out of its trail.
func (c *chain) candidate(n Candidate) {
	has := func(stage string, failed bool) bool {
		return slices.ContainsFunc(*c, func(s Step) bool { return s.Stage == stage && (!failed || s.Result == Failed) })
	}
	if n.Invalid != "" && !has(StageSource, true) {
		c.add(Failed, StageSource, "Is its data valid?", "%s", n.Invalid)
	}
	switch {
	case n.Excluded != 0 && !has(StageEligibility, true):
		c.add(Failed, StageEligibility, "Is it eligible?", "%s", cmp.Or(n.Advice, shout(n.Excluded)))
	case !has(StageEligibility, false):
		c.add(Passed, StageEligibility, "Is it eligible?", "not excluded")
	}
	if !has(StageState, false) {
		c.add(Note, StageState, "Which state is it in?", "%s", shout(n.State))
	}
}

// explainCloud explains which server a node is, and which of the server's addresses counts.
func (r *Roster) explainCloud(c *chain, m *member) {
	l := &r.lists
	if r.cloud.began.IsZero() {
		c.add(Failed, StageMatch, "Has the cloud been listed?", "%s", join("not yet", l.err))
		c.add(Skipped, StageAddress, questions[StageAddress], "not reached: the cloud has not been listed")
		return
	}
	found := r.cloud.match(m.Candidate)
	c.identities(&r.cloud, m.Candidate, found)
	early := m.firstSeen.Sub(r.cloud.began).Round(time.Millisecond)
	switch {
	case r.fresh(m):
		c.add(Passed, StageMatch, "Is the last listing recent enough?", "it started after the node was first seen")
	case !m.want.empty():
		c.add(Note, StageMatch, "Is the last listing recent enough?", "it started %s before the node was first seen, which is enough for a match by ID", early)
	default:
		c.add(Failed, StageMatch, "Is the last listing recent enough?", "it started %s before the node was first seen; wait for the next one", early)
	}
	if found.server == nil {
		c.add(Skipped, StageAddress, questions[StageAddress], "not reached: no server matches")
		return
	}
	r.explainAddresses(c, m, r.sieve(m).sift(serverAddresses(found.server)), found.server)
}

// identities explains what each of a node's identities says, beside what was decided.
func (c *chain) identities(cl *cloud, n Candidate, found match) {
	datacenter, id, known := parseProviderID(n.ProviderID)
	claims, named := cl.claims(n.SystemUUID), cl.byName[n.Name]
	add := func(by identity, question string, agrees bool, saw string) {
		result := Skipped
		switch {
		case by == found.by && found.why.reason != 0:
			result = Failed
		case by == found.by, by < byName && agrees:
			result = Passed
		}
		c.add(result, StageMatch, question, "%s", saw)
	}

	saw := fmt.Sprintf("%q does not name a server of this cloud", clip(n.ProviderID))
	switch {
	case n.ProviderID == "":
		saw = "the node has none"
	case known && !cl.exists(id):
		saw = fmt.Sprintf("%q: no server has this ID", clip(n.ProviderID))
	case known:
		saw = fmt.Sprintf("%q is %s", clip(n.ProviderID), cl.describe(id))
		if s := cl.byID[id]; s != nil && datacenter != "" && s.Datacenter != datacenter {
			saw += fmt.Sprintf(", which is in the datacenter %s, not %s", s.Datacenter, datacenter)
		}
	}
	add(byProviderID, "Which server, by its provider ID?", known && cl.exists(id), saw)

	uuid := strings.ToLower(n.SystemUUID)
	saw = fmt.Sprintf("%q is not a UUID", clip(n.SystemUUID))
	switch {
	case uuid == "":
		saw = "the node has none"
	case isUUID(uuid):
		saw = fmt.Sprintf("%s is %s; in the other byte order (%s) it is %s", uuid, cl.describe(uuid), swapUUID(uuid), cl.describe(swapUUID(uuid)))
		if swapUUID(uuid) == uuid {
			saw = fmt.Sprintf("%s is %s", uuid, cl.describe(uuid))
		}
		if known && len(claims) > 0 && !slices.Contains(claims, id) {
			saw += "; this contradicts the provider ID"
		}
	}
	add(bySystemUUID, "Which server, by its system UUID?", slices.Contains(claims, found.id), saw)

	switch len(named) {
	case 0:
		saw = fmt.Sprintf("no server has the name %q", clip(n.Name))
	case 1:
		saw = fmt.Sprintf("server %s has the name %q", named[0].ID, clip(n.Name))
	default:
		saw = fmt.Sprintf("%d servers have the name %q, among them %s and %s", len(named), clip(n.Name), named[0].ID, named[1].ID)
	}
	if found.by != byName {
		saw += "; names are used only if no ID identifies a server"
	}
	add(byName, "Which server, by its name?", false, saw)
}

// describe says which server has an ID.
func (c *cloud) describe(id string) string {
	if what, bad := c.bad[id]; bad {
		return fmt.Sprintf("server %s, which has invalid data (%s)", id, clip(what))
	}
	if s := c.byID[id]; s != nil {
		return fmt.Sprintf("server %s (%q)", id, clip(s.Name))
	}
	return "not a known server"
}

// explainAddresses explains the fate of each address of a server, or of the node itself (nil).
func (r *Roster) explainAddresses(c *chain, m *member, left sifted, s *Server) {
	if len(left.borne) == 0 {
		where := "the node has no address"
		if s != nil {
			where = fmt.Sprintf("the server has no address on the configured LANs (NICs there: %d)", len(s.NICs))
		}
		c.add(Failed, StageAddress, questions[StageAddress], "%s", where)
	}
	preferred := r.sieve(m).prefer
	for _, a := range left.borne[:min(len(left.borne), mostAddresses)] {
		f := family(a)
		result := Failed
		var fate string
		switch rivals := len(left.of(f)) - 1; {
		case !reachable(a):
			fate = "loopback, link-local, multicast or unspecified address"
		case !slices.Contains(left.inside, a):
			fate = "outside " + texts(r.cfg.CIDRs)
		case !slices.Contains(left.own, a) && r.cloud.failover[a]:
			fate = "a failover address of its LAN, which moves between servers"
		case !slices.Contains(left.own, a):
			fate = fmt.Sprintf("listed on %d servers", r.cloud.bearers[a])
		case left.chosen[f] == a && rivals == 0:
			result, fate = Passed, "chosen as the only usable address of its family"
		case left.chosen[f] == a:
			result, fate = Passed, "chosen of several, as an InternalIP of the node"
		case left.chosen[f].IsValid():
			fate = fmt.Sprintf("not chosen: %s is an InternalIP of the node, this one is not", left.chosen[f])
		case s == nil:
			fate = fmt.Sprintf("one of %d usable addresses of its family; nothing identifies the right one", rivals+1)
		default:
			fate = fmt.Sprintf("one of %d usable addresses of its family; the node's InternalIPs (%s) do not identify the right one", rivals+1, orNone(texts(preferred)))
		}
		c.add(result, StageAddress, fmt.Sprintf("Can %s be used?", a), "%s%s", placeOf(s, a), fate)
	}
	if more := len(left.borne) - mostAddresses; more > 0 {
		c.add(Note, StageAddress, "Are there more?", "%d more", more)
	}
}

// place says which of the server's NICs bears an address.
func placeOf(s *Server, a netip.Addr) string {
	if s == nil {
		return ""
	}
	for _, n := range s.NICs {
		if slices.Contains(canonical(n.Addresses), a) {
			return fmt.Sprintf("on LAN %s, NIC %s: ", clip(n.LAN), clip(n.ID))
		}
	}
	return ""
}

// explainClaim explains who bears the addresses that the last whole answer gives a node, and
// those that it bears all the same.
func (r *Roster) explainClaim(c *chain, m *member) {
	before := len(*c)
	say := func(result Result, a netip.Addr, saw string, args ...any) {
		c.add(result, StageClaim, fmt.Sprintf("Is %s assigned to it?", a), saw, args...)
	}
	for f := range m.held {
		held, want, waits := m.held[f], m.want[f], m.waits[f]
		switch {
		case held.IsValid() && held == want && m.heirOf[f] != "":
			say(Passed, held, "yes; reassigned from node %q", clip(m.heirOf[f]))
		case held.IsValid() && held == want:
			say(Passed, held, "yes")
		case held.IsValid():
			say(Passed, held, "yes; the current data no longer has it, but it is kept until another address replaces it")
		}
		if waits.IsValid() {
			say(Failed, waits, "no; node %q has it, and the same data names both", clip(r.owners[waits].Name))
		}
		if gone := m.lost[f]; !held.IsValid() && gone.address.IsValid() {
			say(Failed, gone.address, "no; reassigned to node %q", clip(gone.to))
		}
	}
	for _, a := range m.held.list() {
		for _, name := range slices.Sorted(maps.Keys(r.waiting[a])) {
			c.add(Note, StageClaim, fmt.Sprintf("Other claimants of %s?", a), "node %q; the same data names both", clip(name))
		}
	}
	if len(*c) == before {
		c.add(Skipped, StageClaim, questions[StageClaim], "not reached: no usable address")
	}
}

// verdict is the end of the chain in one sentence, or two.
func (r *Roster) verdict(m *member) string {
	switch {
	case m.node == nil:
		return fmt.Sprintf("Omitted, %s: %s", shout(m.left.reason), m.left.advice)
	case !r.told():
		return fmt.Sprintf("Will be published as %s at %s after the first publication (%s).",
			shout(m.node.State), texts(m.node.Addresses), r.silentFor())
	case m.Invalid != "":
		return fmt.Sprintf("Published as %s at %s, its last valid state; the current record is invalid: %s",
			shout(m.node.State), texts(m.node.Addresses), m.Invalid)
	}
	return fmt.Sprintf("Published as %s at %s.", shout(m.node.State), texts(m.node.Addresses))
}

// silentFor is why the first word is not given yet.
func (r *Roster) silentFor() string {
	var why []string
	for i, p := range []Part{r.membership, r.addresses} {
		if p.Sync != Synced {
			why = append(why, []string{"membership: ", "addresses: "}[i]+orNone(p.Reason))
		}
	}
	if why == nil {
		return "some READY nodes have no address yet, and may get one"
	}
	return strings.Join(why, "; ")
}

// shout is a word as the contract writes its enums.
func shout(word fmt.Stringer) string { return strings.ToUpper(word.String()) }

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
