package verdict

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// TestHistories plays the scripts in testdata/histories: lines of commands that change the world, each group with
// the complete decision after it. See testdata/histories/README.md for the commands.
func TestHistories(t *testing.T) {
	testkit.RunScripts(t, func(t *testing.T) func(string) string {
		w := newWorld(t, 0)
		return func(line string) string {
			fields := strings.Fields(line)
			return w.play(fields[0], fields[1:])
		}
	})
}

// play carries out one command. Only a decision has output.
func (w *world) play(command string, args []string) string {
	switch command {
	case "decide":
		return w.playDecision(slices.Contains(args, "unwritten"))
	case "restart":
		w.restart()
	case "takeover":
		w.takeover()
	case "forget":
		w.mem = Memory{}
	case "pass":
		w.pass(parseAs(w, time.ParseDuration, args[0]))
	case "wait":
		w.now = w.now.Add(parseAs(w, time.ParseDuration, args[0]))
	case "observe":
		w.observe(args[0])
	case "source":
		w.changeSource(args[0], args[1:])
	case "world", "set":
		if command == "world" {
			*w = *newWorld(w.t, 0)
		}
		for _, arg := range args {
			w.set(strings.Cut(arg, "="))
		}
	case "report", "probe", "current":
		source := "blue"
		if command == "report" {
			source, args = args[0], args[1:]
		}
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			node, label, labeled := strings.Cut(key, "@")
			if !labeled {
				label = source
			}
			for _, n := range w.parseNodes(node) {
				w.changeNode(command, label, n, value)
			}
		}
	default:
		w.t.Fatalf("unknown command %s", command)
	}
	return ""
}

func (w *world) set(key, value string, _ bool) {
	limits := &w.in.Limits
	switch key {
	case "nodes":
		*w = *newWorld(w.t, parseAs(w, strconv.Atoi, value))
	case "probing":
		limits.Probing = value == "on"
	case "list-unready":
		limits.ListUnready = value == "on"
	case "window":
		limits.ShrinkWindow = parseAs(w, time.ParseDuration, value)
	case "threshold":
		limits.EmptyThreshold = parseAs(w, strconv.Atoi, value)
	case "failover-below":
		limits.FailoverBelow = parseAs(w, strconv.Atoi, value)
	case "expire-after":
		limits.ExpireAfter = parseAs(w, time.ParseDuration, value)
	case "rejected":
		w.in.Rejected = value == "yes"
	case "paused":
		w.in.Paused = value == "yes"
	case "leading":
		w.in.LeadingSince = time.Time{}
		if value != "no" {
			w.in.LeadingSince = w.now.Add(-parseAs(w, time.ParseDuration, value))
		}
	default:
		w.t.Fatalf("unknown setting %s", key)
	}
}

// changeSource changes a source, which is a new and trusted one if there is none of that name.
func (w *world) changeSource(name string, args []string) {
	if !slices.ContainsFunc(w.in.Sources, func(s Source) bool { return s.Name == name }) {
		s := trusted(name)
		s.MembershipSyncedAt = w.now
		w.in.Sources = append(w.in.Sources, s)
		slices.SortFunc(w.in.Sources, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	}
	s := w.source(name)
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "synced":
			s.EverSynced = value == "yes"
		case "link":
			s.Connected = value == "up"
		case "membership":
			s.MembershipSynced = value == "synced"
		case "epoch":
			s.Epoch, s.Observation = value, 1
		case "selector":
			w.reselect(name, value)
		case "unusable":
			s.Unusable = value
		case "tier":
			s.Tier = parseAs(w, strconv.Atoi, value)
		case "cidrs":
			s.Allowlist.CIDRs = nil
			for cidr := range strings.SplitSeq(value, ",") {
				if cidr != "" {
					s.Allowlist.CIDRs = append(s.Allowlist.CIDRs, parseAs(w, netip.ParsePrefix, cidr))
				}
			}
		case "denied":
			s.Allowlist.Denied = map[netip.Addr]struct{}{}
			for _, n := range w.parseNodes(value) {
				s.Allowlist.Denied[addr(n)] = struct{}{}
			}
		case "removed":
			w.in.Sources = slices.DeleteFunc(w.in.Sources, func(s Source) bool { return s.Name == name })
			return
		default:
			w.t.Fatalf("unknown property %s of a source", key)
		}
	}
}

// changeNode changes what a source reports about a node, its probe, or what the slices list.
func (w *world) changeNode(what, source string, n int, value string) {
	value, at, _ := strings.Cut(value, "|")
	ports := w.parsePorts(at)
	switch what {
	case "report":
		if w.unlist(source, n); value != "-" {
			w.report(
				source,
				n,
				lookUp(w, map[string]State{"READY": Ready, "DRAINING": Draining, "NOT_READY": NotReady, "?": Unknown}, value),
			)
			for i := range w.source(source).Members {
				if m := &w.source(source).Members[i]; m.Address == addr(n) && at == "none" {
					m.Unusable = "no port is reported"
				} else if m.Address == addr(n) {
					m.Ports = ports
				}
			}
		}
	case "probe":
		status, ago, _ := strings.Cut(value, ",")
		w.probeAt(
			n,
			ports.Probe,
			lookUp(w, map[string]probe.Health{"passing": probe.Passing, "failing": probe.Failing, "pending": probe.Pending}, status),
		)
		if status == "failing" {
			p, _ := w.in.Probe(addr(n), ports.Probe)
			if p.RunStart = w.now; ago != "" {
				p.RunStart = w.now.Add(-parseAs(w, time.ParseDuration, ago))
			}
			w.setProbe(p)
		}
	case "current":
		w.in.Current = slices.DeleteFunc(slices.Clone(w.in.Current), func(c CurrentEndpoint) bool { return c.Address == addr(n) })
		if value != "-" {
			w.hold(n, source, lookUp(w, map[string]Conditions{"ready": ready, "draining": draining, "notready": notReady}, value))
			c := &w.in.Current[len(w.in.Current)-1]
			c.Ports, c.Portless = ports, at == "none"
		}
		slices.SortFunc(w.in.Current, func(a, b CurrentEndpoint) int { return a.Address.Compare(b.Address) })
	}
}

// parsePorts reads 31999,dns/UDP:53, of which the first is that of http, and is probed.
func (w *world) parsePorts(text string) Ports {
	if text == "" || text == "none" {
		return Ports{}
	}
	number, _, _ := strings.Cut(text, ",")
	return Ports{Text: "http/TCP:" + text, Probe: uint16(parseAs(w, strconv.Atoi, number))}
}

// playDecision decides, writes the decision unless it must not, and checks that deciding again changes nothing.
func (w *world) playDecision(unwritten bool) string {
	before := w.in.Current
	w.decide()
	text := w.describeDecision()
	if unwritten {
		w.in.Current = before
		return text
	}
	first := held(w.d)
	w.mem, w.d = Decide(w.mem, w.in, w.now)
	if diff := cmp.Diff(first, held(w.d), byValue); diff != "" {
		w.t.Errorf("deciding again after the write lists something else (-first +second):\n%s%s", text, diff)
	}
	return text
}

func (w *world) describeDecision() string {
	var out strings.Builder
	if !w.d.Write {
		out.WriteString("nothing is written\n")
	}
	if w.d.Panic {
		out.WriteString("panic\n")
	}
	for _, e := range w.d.Endpoints {
		a := e.Address.As4()
		name := strconv.Itoa(int(a[2])<<8 + int(a[3]))
		if e.Source != "blue" {
			name += "@" + e.Source
		}
		conditions := "-"
		if e.Listed {
			conditions = strings.NewReplacer("drain", "draining", "out", "notready").Replace(condition(e.Conditions))
		}
		if e.Ports.Text != "" && e.Listed {
			conditions += " at " + strings.TrimPrefix(e.Ports.Text, "http/TCP:")
		}
		fmt.Fprintf(&out, "%-9s %-9s %s by %s: %s\n", name, conditions, e.Verdict, e.Rule, e.Reason)
	}
	for _, g := range w.d.Guards {
		of := "all sources"
		if g.Source != "" {
			of = g.Source
		}
		fmt.Fprintf(&out, "guard %s holds %d of %s\n", g.Rule, g.Held, of)
	}
	ends := func(s Source) bool { return w.d.Wake.Equal(s.MembershipSyncedAt.Add(DefaultMaxStaleness + 1)) }
	if !w.d.Wake.IsZero() && !slices.ContainsFunc(w.in.Sources, ends) {
		fmt.Fprintf(&out, "wakes in %s\n", w.d.Wake.Sub(w.now))
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

// parseNodes reads 3, 0,2 or 0-4.
func (w *world) parseNodes(text string) (nodes []int) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first := parseAs(w, strconv.Atoi, low)
		last := first
		if isRange {
			last = parseAs(w, strconv.Atoi, high)
		}
		for n := first; n <= last; n++ {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func parseAs[T any](w *world, parse func(string) (T, error), text string) T {
	value, err := parse(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return value
}

func lookUp[T any](w *world, values map[string]T, name string) T {
	value, known := values[name]
	if !known {
		w.t.Fatalf("unknown value %q", name)
	}
	return value
}
