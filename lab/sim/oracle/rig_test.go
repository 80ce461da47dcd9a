package oracle

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"
)

// rig tells an oracle a small world: one Service whose endpoints all are in one slice for each
// source, a writer that leads, and sources that tell the truth unless said otherwise.
type rig struct {
	o     *Oracle
	at    time.Time
	who   string
	plans uint64

	version uint64           // of the slices, as far as it counts
	views   map[string]*Told // by writer and source
	truth   map[string][]Member
	lists   map[string]*Slice // by source
	found   []Violation

	config func(who string) Configured
}

const web = "web/web"

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

// settled is a world in which n nodes have been served for long: the leader's first window is
// over, and everybody has seen everything.
func settled(n int, alter ...func(*Configured)) *rig {
	r := bare(alter...)
	r.boot("w1")
	var members []Member
	wants := map[int]fate{}
	for i := range n {
		members = append(
			members,
			Member{
				Name:      "node-" + strconv.Itoa(i),
				Addresses: []netip.Addr{addr(i)},
				State:     Ready,
				Labels:    map[string]string{"pool": strconv.Itoa(i % 2)},
			},
		)
		r.see(Backend{addr(i), 0, true})
		wants[i] = serve
	}
	r.is("default", members...)
	r.tells("default", members...)
	for i := range n {
		r.probe(i, Passing)
	}
	r.see(Leads{"w1", true})
	r.write(wants)
	r.wait(2 * time.Minute)
	r.observes("default")
	return r
}

func bare(alter ...func(*Configured)) *rig {
	r := &rig{
		o: New(Setup{}), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), who: "w1",
		views: map[string]*Told{}, truth: map[string][]Member{}, lists: map[string]*Slice{},
	}
	r.config = func(who string) Configured {
		c := Configured{
			Writer: who, Target: web, Sources: []string{"default"}, Probe: "tcp", IPv4: true,
			ShrinkWindow: time.Minute, EmptyThreshold: 3, MaxStaleness: 15 * time.Minute,
		}
		for _, a := range alter {
			a(&c)
		}
		return c
	}
	return r
}

func (r *rig) see(f Fact) { r.found = append(r.found, r.o.See(r.at, f)...) }

// wait lets time pass, in which what passes is probed again.
func (r *rig) wait(d time.Duration) {
	r.at = r.at.Add(d)
	for a, f := range r.o.writer(r.who).probes["tcp"] {
		if f.Verdict == Passing {
			f.LastPassed = r.at
			r.o.writer(r.who).probes["tcp"][a] = f
		}
	}
}

// boot starts a writer's process, which knows nothing but its settings.
func (r *rig) boot(who string) {
	r.who = who
	r.see(Process{who, true})
	r.see(r.config(who))
	for _, s := range r.config(who).Sources {
		r.see(Fenced{Writer: who, Source: s, Inside: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
		delete(r.views, who+s)
	}
}

// restart kills the writer that the rig speaks of, and has it lead again.
func (r *rig) restart() {
	r.see(Leads{r.who, false})
	r.boot(r.who)
	r.see(Leads{r.who, true})
}

func (r *rig) is(source string, members ...Member) {
	r.truth[source] = members
	r.see(Truth{source, members})
}

func (r *rig) view(source string) *Told {
	v := r.views[r.who+source]
	if v == nil {
		v = &Told{Writer: r.who, Source: source, Ever: true, Synced: true, Alive: true, Membership: true, Epoch: "1"}
		r.views[r.who+source] = v
	}
	return v
}

// tells is a synced state with a new observation.
func (r *rig) tells(source string, members ...Member) {
	v := r.view(source)
	v.Members = members
	r.observes(source)
}

// observes is a new observation of the same.
func (r *rig) observes(source string) {
	v := r.view(source)
	v.Word, v.Received = r.at, r.at
	v.Observation++
	r.see(*v)
}

// doubts alters what the source is worth.
func (r *rig) doubts(source string, alter func(*Told)) {
	v := r.view(source)
	alter(v)
	r.see(*v)
}

// node is a member of the view with another state.
func (r *rig) node(i int, state State) Member {
	return Member{
		Name:      "node-" + strconv.Itoa(i),
		Addresses: []netip.Addr{addr(i)},
		State:     state,
		Labels:    map[string]string{"pool": strconv.Itoa(i % 2)},
	}
}

func (r *rig) probe(i int, v Verdict) { r.probeSince(i, v, r.at) }

func (r *rig) probeSince(i int, v Verdict, since time.Time) {
	f := Probed{Writer: r.who, Probe: "tcp", Address: addr(i), Verdict: v, FailingSince: since}
	f.LastPassed = r.o.writer(r.who).probes["tcp"][netip.AddrPortFrom(addr(i), 0)].LastPassed
	if v == Passing {
		f.LastPassed = r.at
	}
	r.see(f)
}

// write makes the endpoints of the first source what is wanted, in one plan and one request.
func (r *rig) write(wants map[int]fate) { r.writeTo("default", wants) }

func (r *rig) writeTo(source string, wants map[int]fate) {
	before := r.lists[source]
	after := &Slice{Source: source, Rest: "ports"}
	if before != nil {
		for _, e := range before.Endpoints {
			if _, altered := wants[int(e.Address.As4()[3])-1]; !altered {
				after.Endpoints = append(after.Endpoints, e)
			}
		}
	}
	for i := range 256 {
		if f, ok := wants[i]; ok && f.listed {
			after.Endpoints = append(after.Endpoints, Endpoint{f.Conditions, addr(i)})
		}
	}
	r.put(source, after)
}

func (r *rig) put(source string, after *Slice) {
	r.plans++
	r.see(Planned{r.who, web, r.plans, 1})
	r.see(Wrote{Writer: r.who, Target: web, Plan: r.plans, Sent: r.at, Slice: "web-" + source, Before: r.lists[source], After: after})
	r.lists[source] = after
}

// edits is someone else's edit of the slice.
func (r *rig) edits(source string, endpoints ...Endpoint) {
	r.edited(source, &Slice{Source: source, Rest: "ports", Endpoints: endpoints})
	r.see(Noticed{Writer: r.who, Target: web, Version: r.version})
}

// edited is that edit, and the writer does not know it yet.
func (r *rig) edited(source string, s *Slice) {
	r.version++
	r.see(Edited{web, "web-" + source, s, r.version})
	r.lists[source] = s
}

// answer is what a writer does, and one of the rules that it breaks: none when it is right.
type answer struct {
	does  func(*rig)
	rule  string
	story string
}

func right(story string, does func(*rig)) answer { return answer{does, "", story} }

func wrong(rule, story string, does func(*rig)) answer { return answer{does, rule, story} }

func nothing(*rig) {}

func check(t *testing.T, world func() *rig, answers ...answer) {
	t.Helper()
	for _, a := range answers {
		t.Run(a.story, func(t *testing.T) {
			r := world()
			if len(r.found) > 0 {
				t.Fatalf("the history alone breaks %v", r.found)
			}
			a.does(r)
			broken := slices.ContainsFunc(r.found, func(v Violation) bool { return v.Invariant+" "+v.Rule == a.rule })
			if a.rule == "" && len(r.found) > 0 || a.rule != "" && !broken {
				t.Errorf("want %q to be broken, got %v", a.rule, r.found)
			}
		})
	}
}
