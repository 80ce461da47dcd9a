package search

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Spans of the writer's model. A tick is longer than the four seconds that two observations are apart
// at least; a shrink window is two ticks.
const (
	tick         = 5 * time.Second
	shrinkWindow = 2 * tick
	maxStaleness = 4 * tick
	expireAfter  = tick
	horizon      = maxStaleness + tick // older times make no difference
	failback     = time.Minute         // after which a source stands by again
)

// Setup is a small world of one writer.
type Setup struct {
	Nodes   int // up to 3; each belongs to the source of its number, modulo Sources
	Sources int // 1 or 2
	Probing bool
	ListOut bool
	Lies    bool // the last node's address is outside of the fence, and it is not there at first
	StandBy bool // the second source stands by for the first
	Expiry  bool // endpoints of a source expire that has not been trusted for expireAfter
}

// writerWorld is one target and the writer that leads: what its sources and probes say, the slices, and what
// verdict.Decide remembers. After each step it decides, plans and writes, as the product's reconciler does.
type writerWorld struct {
	setup   *Setup
	now     time.Time
	leading time.Time
	sources [2]sourceOf
	probes  [3]probe.Status
	away    bool // the API server

	memory   verdict.Memory
	decision verdict.Decision
	slices   []*discoveryv1.EndpointSlice // as the API server has them
	listed   []planner.Endpoint           // in them

	accounts [2]account // our own, of who leaves
	serving  time.Time  // since when the first source has a ready endpoint, if the second stands by; zero: it has none
	ever     [3]bool    // which node was ever told
}

// sourceOf is what one source says, and how it is connected.
type sourceOf struct {
	words        [3]verdict.State // unlisted: it does not list the node
	heard, alive bool
	wordAt       time.Time
	life         int
	observation  uint64
	observedAt   time.Time
}

const unlisted verdict.State = 100

// Writer returns the model of one writer. At first every node is READY, passes its probe and is listed
// as ready; the writer has led for long.
func Writer(of Setup) World {
	w := &writerWorld{setup: &of, now: start, leading: start.Add(-time.Hour)}
	for s := range of.Sources {
		from := &w.sources[s]
		*from = sourceOf{
			words: [3]verdict.State{unlisted, unlisted, unlisted}, heard: true, alive: true,
			wordAt: start, life: 1, observation: 1, observedAt: start,
		}
	}
	for n := range of.Nodes {
		if !w.outside(n) {
			w.tell(n, verdict.Ready)
			w.probe(n, probe.Passing)
		}
	}
	if err := w.settle(); err != nil {
		panic(err) // a world that is at rest has nothing to break
	}
	return w
}

// outside says whether a node's address is outside of the fence.
func (w *writerWorld) outside(n int) bool { return w.setup.Lies && n == w.setup.Nodes-1 }

// of is the source that a node belongs to.
func (w *writerWorld) of(n int) int { return n % w.setup.Sources }

// tier is 1 for a source that stands by, else 0.
func (w *writerWorld) tier(s int) int {
	if w.setup.StandBy {
		return s
	}
	return 0
}

func sourceName(s int) string { return [...]string{"blue", "green"}[s] }

func (w *writerWorld) address(n int) netip.Addr {
	if w.outside(n) {
		return netip.AddrFrom4([4]byte{10, 9, 0, byte(n + 1)})
	}
	return address(n)
}

func (w *writerWorld) number(a netip.Addr) int {
	for n := range w.setup.Nodes {
		if w.address(n) == a {
			return n
		}
	}
	return nobody
}

var fence = verdict.Allowlist{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}

// input is what the decision rests on.
func (w *writerWorld) input() verdict.Input {
	in := verdict.Input{
		Limits: verdict.Limits{
			MaxStaleness: maxStaleness, EmptyThreshold: 2, ShrinkWindow: shrinkWindow,
			ListUnready: w.setup.ListOut, Probing: w.setup.Probing,
		},
		LeadingSince: w.leading,
	}
	if w.setup.Expiry {
		in.Limits.ExpireAfter = expireAfter
	}
	for s := range w.setup.Sources {
		from := &w.sources[s]
		source := verdict.Source{
			Name:               sourceName(s),
			EverSynced:         from.heard,
			Connected:          from.alive,
			MembershipSynced:   from.heard,
			MembershipSyncedAt: from.wordAt,
			Epoch:              fmt.Sprint("life-", from.life),
			Observation:        from.observation,
			ObservationAt:      from.observedAt,
			Allowlist:          fence,
			Tier:               w.tier(s),
		}
		for n, state := range from.words[:w.setup.Nodes] {
			if state != unlisted {
				source.Members = append(source.Members, verdict.Member{Address: w.address(n), Name: name(n), State: state})
			}
		}
		in.Sources = append(in.Sources, source)
	}
	for n := range w.setup.Nodes {
		probe := w.probes[n]
		probe.Address = w.address(n)
		in.Probes = append(in.Probes, probe)
	}
	in.Current = heldAs(w.listed)
	return in
}

// heldAs is what slices list, as the verdict hears it.
func heldAs(listed []planner.Endpoint) (all []verdict.CurrentEndpoint) {
	for _, e := range listed {
		all = append(all, verdict.CurrentEndpoint{
			Address: e.Address, Source: e.Group,
			Conditions: verdict.Conditions{Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
		})
	}
	return all
}

// react decides, and writes unless the API server is away. A decision that was written is taken once
// more: the answer must be the same.
func (w *writerWorld) react() error {
	in := w.input()
	memory, d := verdict.Decide(w.memory, in, w.now)
	w.memory, w.decision = memory, d
	if err := w.judge(in, d); err != nil {
		return err
	}
	if w.setup.StandBy && !readyOf(w, 0, listOf(d)) {
		w.serving = time.Time{}
	} else if w.setup.StandBy && w.serving.IsZero() {
		w.serving = w.now
	}
	if w.away {
		return nil
	}
	if d.Write {
		if err := w.write(d); err != nil {
			return err
		}
	}
	again, second := verdict.Decide(memory, w.input(), w.now)
	w.memory, w.decision = again, second
	if got, want := w.picture(listOf(second)), w.picture(listOf(d)); got != want {
		return fmt.Errorf("flapping: decided %q, and after it was written %q", want, got)
	}
	if second.Write && !planner.Compute(order(second, perSlice), w.slices).Empty() {
		return fmt.Errorf("a write without a change (I3): decided %q twice", w.picture(listOf(d)))
	}
	for n := range w.setup.Nodes { // what is gone is not probed any more
		if !slices.ContainsFunc(second.Endpoints, func(e verdict.Endpoint) bool {
			return e.Address == w.address(n) && e.Verdict != verdict.Remove && e.Rule != verdict.RuleAllowlist
		}) {
			w.probes[n] = probe.Status{}
		}
	}
	return nil
}

// listOf is what a decision lists.
func listOf(d verdict.Decision) (all []planner.Endpoint) {
	for _, e := range d.Endpoints {
		if e.Listed {
			all = append(all, planner.Endpoint{
				Address: e.Address, Group: e.Source,
				Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating,
			})
		}
	}
	return all
}

// order is what the planner is asked for.
func order(d verdict.Decision, perSlice int) planner.Desired {
	port := int32(30080)
	return planner.Desired{
		Namespace: "web", Service: "shop", ManagedBy: "slicefeed-default", FirstName: "shop",
		Owner:       metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "uid"},
		GroupLabels: []string{targets.LabelSource}, DefaultGroup: targets.DefaultSource,
		Families:    []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints:   listOf(d),
		MaxPerSlice: perSlice,
	}
}

// perSlice makes three nodes, or two sources, need more than one slice.
const perSlice = 2

// write makes the slices as planned, one request after the other. What is to stay is listed after each.
func (w *writerWorld) write(d verdict.Decision) error {
	desired := order(d, perSlice)
	plan := planner.Compute(desired, w.slices)
	before := w.listed
	now := slices.Clone(w.slices)
	lists := func(all []planner.Endpoint, a netip.Addr) bool {
		return slices.ContainsFunc(all, func(e planner.Endpoint) bool { return e.Address == a })
	}
	stay := func() error {
		held := planner.CurrentEndpoints(desired, now)
		for _, e := range before {
			if lists(desired.Endpoints, e.Address) && !lists(held, e.Address) {
				return fmt.Errorf("%s is to stay, and between two writes nobody lists it", e.Address)
			}
		}
		return nil
	}
	at := func(name string) int {
		return slices.IndexFunc(now, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
	}
	for _, slice := range plan.Create {
		now = append(now, slice)
		if err := stay(); err != nil {
			return err
		}
	}
	for _, slice := range plan.Update {
		now[at(slice.Name)] = slice
		if err := stay(); err != nil {
			return err
		}
	}
	for _, slice := range plan.Delete {
		now = slices.Delete(now, at(slice.Name), at(slice.Name)+1)
		if err := stay(); err != nil {
			return err
		}
	}
	w.slices, w.listed = now, planner.CurrentEndpoints(desired, now)
	if got, want := w.picture(w.listed), w.picture(desired.Endpoints); got != want {
		return fmt.Errorf("divergence: decided %q, and the slices say %q", want, got)
	}
	return nil
}

// tell has a node's source say something of it.
func (w *writerWorld) tell(n int, state verdict.State) {
	w.sources[w.of(n)].words[n] = state
	if w.sources[w.of(n)].heard && state != unlisted {
		w.ever[n] = true
	}
}

// probe has the probe of a node say something.
func (w *writerWorld) probe(n int, h probe.Health) {
	p := probe.Status{Health: h, Since: w.now, RunStart: w.now, RunLast: w.now}
	if w.probes[n].Health == h {
		p.RunStart = w.probes[n].RunStart
	}
	w.probes[n] = p
}

// pass lets time pass: links that are up bring heartbeats, and every probe says the same again.
func (w *writerWorld) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for s := range w.setup.Sources {
		if w.sources[s].alive {
			w.sources[s].wordAt = w.now
		}
	}
	for n := range w.setup.Nodes {
		if w.probes[n].Health != probe.Pending {
			w.probes[n].RunLast = w.now
		}
	}
}

// observe completes a look of a source at its outside, if its link is up.
func (w *writerWorld) observe(s int) {
	if from := &w.sources[s]; from.alive {
		from.observation, from.observedAt = from.observation+1, w.now
	}
}

// Key encodes the world.
func (w *writerWorld) Key() []byte {
	oldest := horizon
	if w.setup.Expiry {
		oldest += expireAfter
	}
	if w.setup.StandBy {
		oldest = max(oldest, failback+tick)
	}
	return paint(w.now, oldest, w.memory, w.leading, w.sources, w.probes, w.away, w.slices, w.accounts, w.ever, w.serving)
}

func word(e planner.Endpoint) string {
	switch {
	case e.Ready:
		return "ready"
	case e.Serving:
		return "drain"
	default:
		return "out"
	}
}

// picture says who is listed as what.
func (w *writerWorld) picture(all []planner.Endpoint) string {
	var words []string
	for _, e := range all {
		words = append(words, fmt.Sprintf("%d:%s", w.number(e.Address), word(e)))
	}
	return strings.Join(words, " ")
}

// String pictures the world.
func (w *writerWorld) String() string {
	var guards []string
	for _, g := range w.decision.Guards {
		guards = append(guards, string(g.Rule))
	}
	held := ""
	if len(guards) > 0 {
		held = ", held back by " + strings.Join(guards, ", ")
	}
	return fmt.Sprintf("the slices say %q%s", w.picture(w.listed), held)
}
